/** Walks DER element by element, so that a long list does not become objects all at once. */

/** One element: its first byte, its content, and all of it. */
export interface Element {
  tag: number;
  content: Buffer;
  whole: Buffer;
}

export const tags = {
  ...{ integer: 0x02, bitString: 0x03, objectId: 0x06, sequence: 0x30 },
  ...{ utcTime: 0x17, generalizedTime: 0x18 },
} as const;

/** The tag of an element with a number of its own, which has others in it. */
export const contextTag = (number: number) => 0xa0 + number;

/** The elements in some bytes, one after the other. @throws Error where the bytes are not DER. */
export function* elementsOf(bytes: Uint8Array = new Uint8Array()): Generator<Element> {
  const der = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < der.length; ) {
    const tag = der.readUInt8(at);
    let length = der.readUInt8(at + 1);
    let begin = at + 2;
    if (length === 0x80 || (tag & 0x1f) === 0x1f) throw new Error('not DER, or a tag of several bytes');
    if (length > 0x80) {
      begin += length & 0x7f;
      length = der.readUIntBE(at + 2, length & 0x7f);
    }
    const end = begin + length;
    if (end > der.length) throw new Error('not DER');
    yield { tag, content: der.subarray(begin, end), whole: der.subarray(at, end) };
    at = end;
  }
}

/** The elements within the one element that some bytes are; none where there are no bytes. @throws Error where they are not DER. */
export function partsOf(bytes: Uint8Array | undefined): Element[] {
  const [outer, more] = elementsOf(bytes);
  if (more) throw new Error('not one element of DER');
  return [...elementsOf(outer?.content)];
}
