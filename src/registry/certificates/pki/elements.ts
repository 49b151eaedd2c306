/** Walks DER element by element, so that a long list does not become objects all at once. The headers are read by asn1js. */
import { BaseBlock } from 'asn1js';

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
    const { idBlock, lenBlock } = new BaseBlock();
    const afterTag = idBlock.fromBER(bytes, at, bytes.length - at);
    const begin = afterTag < 0 ? -1 : lenBlock.fromBER(bytes, afterTag, bytes.length - afterTag);
    const end = begin + lenBlock.length;
    if (begin < 0 || lenBlock.isIndefiniteForm || end > bytes.length) throw new Error('not DER');
    const { tagClass, tagNumber } = idBlock;
    yield { tagClass, tagNumber, content: bytes.subarray(begin, end), whole: bytes.subarray(at, end) };
    at = end;
  }
}

/** The elements within the one element that some bytes are. @throws Error where they are not one element of DER. */
export function partsOf(bytes: Uint8Array): Element[] {
  const [outer, more] = elementsOf(bytes);
  if (!outer || more) throw new Error('not one element of DER');
  return [...elementsOf(outer.content)];
}
