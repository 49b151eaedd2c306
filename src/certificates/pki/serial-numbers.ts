/** Serial numbers of certificates, and lists of them: digests, because a number may be of any length. */
import { hash } from 'node:crypto';

/** Bytes of one digest. */
export const digestBytes = 16;

/** Hex of a serial number as it is compared: lower case, without zeros at the beginning. */
export function normalSerial(hex: string): string {
  return hex.toLowerCase().replace(/^0+(?=.)/, '');
}

/** What a list has of a serial number, as hex: texts are made and sorted much faster than buffers. */
export function digestOf(hex: string): string {
  return hash('sha256', normalSerial(hex), 'hex').slice(0, 2 * digestBytes);
}

/** Whether a sorted list of digests has one of this serial number. */
export function isListed(digests: Uint8Array, hex: string): boolean {
  const wanted = Buffer.from(digestOf(hex), 'hex');
  let [low, high] = [0, digests.length / digestBytes];
  while (low < high) {
    const middle = (low + high) >> 1;
    const order = wanted.compare(digests, middle * digestBytes, (middle + 1) * digestBytes);
    if (order === 0) return true;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return false;
}
