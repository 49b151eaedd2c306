/** Walks DER element by element, so that a long list does not become objects all at once: it may have 500,000 entries. */

/** One element of DER: its tag, its content, and all of it. */
export interface Element {
  tagClass: number;
  tagNumber: number;
  content: Uint8Array;
  whole: Uint8Array;
}

/** Tag numbers of class 1, and the class of elements with a number of their own. */
export const tags = { integer: 2, bitString: 3, sequence: 16, utcTime: 23, generalizedTime: 24 } as const;
export const contextClass = 3;

/** The elements in some bytes, one after the other. @throws Error where the bytes are not DER. */
export function* elementsOf(bytes: Uint8Array): Generator<Element> {
  for (let at = 0; at < bytes.length; ) {
    const { begin, end } = boundsAt(bytes, at);
    const tag = bytes[at] ?? 0;
    // A number of 31 says that the number itself comes in further bytes: nothing that is read here has one.
    if ((tag & 0x1f) === 0x1f) throw new Error('not DER');
    const content = bytes.subarray(begin, end);
    yield { tagClass: (tag >> 6) + 1, tagNumber: tag & 0x1f, content, whole: bytes.subarray(at, end) };
    at = end;
  }
}

/** Where the content of the element at a place begins and ends. Lengths are definite, of four bytes at most. */
function boundsAt(bytes: Uint8Array, at: number): { begin: number; end: number } {
  const first = bytes[at + 1] ?? 0x80;
  const isShort = first < 0x80;
  const lengthBytes = isShort ? 0 : first & 0x7f;
  if (!isShort && (lengthBytes === 0 || lengthBytes > 4)) throw new Error('not DER');
  let length = isShort ? first : 0;
  for (let next = 0; next < lengthBytes; next += 1) length = length * 256 + (bytes[at + 2 + next] ?? 0);
  const begin = at + 2 + lengthBytes;
  const end = begin + length;
  if (end > bytes.length) throw new Error('not DER');
  return { begin, end };
}

/** The elements within the one element that some bytes are. @throws Error where they are not one element of DER. */
export function partsOf(bytes: Uint8Array): Element[] {
  const [outer, more] = elementsOf(bytes);
  if (!outer || more) throw new Error('not one element of DER');
  return [...elementsOf(outer.content)];
}
