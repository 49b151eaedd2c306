/** Numbers that count for all accounts, in texts that show an account nothing of them: how much others store, say. */
import { type Cipheriv, createCipheriv, createDecipheriv, type Decipheriv } from 'node:crypto';

/** One block of the cipher: two numbers of six bytes, and zeros by which a text of another key is recognized. */
const blockBytes = 16;
const numberBytes = 6;

export class HiddenNumbers {
  readonly #cipher: Cipheriv;
  readonly #decipher: Decipheriv;

  /** `key` has 32 bytes. */
  constructor(key: Buffer) {
    // Of single blocks this is what the mode is for. Each block is complete at once, so that one cipher serves for all.
    this.#cipher = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
    this.#decipher = createDecipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  }

  /** Two whole numbers below 2^48 as 22 characters of base64url. */
  hide(first: number, second: number): string {
    const block = Buffer.alloc(blockBytes);
    block.writeUIntBE(first, 0, numberBytes);
    block.writeUIntBE(second, numberBytes, numberBytes);
    return this.#cipher.update(block).toString('base64url');
  }

  /** The numbers of a text that `hide` gave; undefined for any other text. */
  read(text: string): [first: number, second: number] | undefined {
    if (!/^[\w-]{22}$/.test(text)) return undefined;
    const block = this.#decipher.update(Buffer.from(text, 'base64url'));
    if (block.readUInt32BE(2 * numberBytes) !== 0) return undefined;
    return [block.readUIntBE(0, numberBytes), block.readUIntBE(numberBytes, numberBytes)];
  }
}
