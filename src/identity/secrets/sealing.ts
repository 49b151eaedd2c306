/**
 * What must be read again and must not be in the database in clear, such as TOTP secrets: sealed with a key that lies
 * next to the database in `keys/`, so that a copy of the database alone shows nothing. Short codes are hashed with it.
 */
import { createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { replaceFile } from '../../../db/files/copies.ts';
import { DamagedFile } from '../../../db/files/damaged.ts';
import { decrypt, encrypt } from '../../core/formats/aes-gcm.ts';
import { HiddenNumbers } from '../../core/formats/hidden-numbers.ts';

const keyBytes = 32;

export class Sealing {
  readonly #key: Buffer;
  /** To make one of bytes takes longer than a digest. */
  readonly #digestKey: KeyObject;
  /** Positions among the messages of all accounts are shown by it. */
  readonly numbers: HiddenNumbers;

  private constructor(key: Buffer) {
    this.#key = key;
    this.#digestKey = createSecretKey(new Uint8Array(hkdfSync('sha256', key, '', 'slipway digest', keyBytes)));
    this.numbers = new HiddenNumbers(Buffer.from(hkdfSync('sha256', key, '', 'slipway numbers', keyBytes)));
  }

  /** Reads `sealing.key` in `directory`; makes it at the first start. @throws DamagedFile. */
  static open(directory: string): Sealing {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, 'sealing.key');
    if (!existsSync(path)) replaceFile(path, randomBytes(keyBytes).toString('base64'));
    const key = Buffer.from(readFileSync(path, 'utf8'), 'base64');
    if (key.length !== keyBytes) throw new DamagedFile(`${path} is not a sealing key.`);
    return new Sealing(key);
  }

  /** Tells keys apart, and nothing of this one. */
  get fingerprint(): string {
    return this.digest('slipway directory', 'sealing.key');
  }

  /** `owner` names what the text belongs to, such as an id: it opens for no other. */
  seal(owner: string, text: string): string {
    return encrypt(this.#key, text, owner).toString('base64');
  }

  /** @throws Error when it was sealed for another owner, with another key, or has been altered. */
  open(owner: string, sealed: string): string {
    return decrypt(this.#key, Buffer.from(sealed, 'base64'), owner);
  }

  /** A keyed hash: without the key nobody can try out what a short code was. Another owner's of the same text differs. */
  digest(owner: string, text: string): string {
    return createHmac('sha256', this.#digestKey).update(`${owner}\0${text}`).digest('base64');
  }
}
