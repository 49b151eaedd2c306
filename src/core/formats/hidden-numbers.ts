/** Numbers that count for all accounts, in texts that show an account nothing of them: how much others store, say. */
import { type Cipheriv, createCipheriv, createDecipheriv, type Decipheriv, randomFillSync } from 'node:crypto';

/** One block of the cipher: two numbers of six bytes, and zeros by which a text of another key is recognized. */
const blockBytes = 16;
const numberBytes = 6;
/** Random bytes in front: the same numbers give another text each time, so that nobody sees when they change. */
const saltBytes = 8;

export class HiddenNumbers {
  readonly #cipher: Cipheriv;
  readonly #decipher: Decipheriv;

  /** `key` has 32 bytes. */
  constructor(key: Buffer) {
    // Of single blocks this is what the mode is for. Each block is complete at once, so that one cipher serves for all.
    this.#cipher = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
    this.#decipher = createDecipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  }

  /** Two whole numbers below 2^48 as 32 characters of base64url. */
  hide(first: number, second: number): string {
    const bytes = Buffer.alloc(saltBytes + blockBytes);
    randomFillSync(bytes, 0, saltBytes);
    const block = bytes.subarray(saltBytes);
    block.writeUIntBE(first, 0, numberBytes);
    block.writeUIntBE(second, numberBytes, numberBytes);
    this.#cipher.update(salted(bytes)).copy(block);
    return bytes.toString('base64url');
  }

  /** The numbers of a text that `hide` gave; undefined for any other text. */
  read(text: string): [first: number, second: number] | undefined {
    if (!/^[\w-]{32}$/.test(text)) return undefined;
    const bytes = Buffer.from(text, 'base64url');
    this.#decipher.update(bytes.subarray(saltBytes)).copy(bytes, saltBytes);
    const block = salted(bytes);
    if (block.readUInt32BE(2 * numberBytes) !== 0) return undefined;
    return [block.readUIntBE(0, numberBytes), block.readUIntBE(numberBytes, numberBytes)];
  }
}

/** The block behind the salt, mixed with it; done twice, it is the block again. */
function salted(bytes: Buffer): Buffer {
  const block = bytes.subarray(saltBytes);
  for (let at = 0; at < blockBytes; at += 1) block[at] = (block[at] as number) ^ (bytes[at % saltBytes] as number);
  return block;
}
