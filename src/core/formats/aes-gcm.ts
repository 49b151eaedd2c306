/** The one form in which text is encrypted: AES-256-GCM, as 12 bytes of nonce, 16 of tag, and the ciphertext. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

const algorithm = 'aes-256-gcm';
const [nonceBytes, tagBytes] = [12, 16];

/** Encrypts `text` with a key of 32 bytes. `owner` names what it belongs to: it can be decrypted for no other. */
export function encrypt(key: Buffer, text: string, owner = ''): Buffer {
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv(algorithm, key, nonce).setAAD(Buffer.from(owner));
  const ciphertext = [cipher.update(text, 'utf8'), cipher.final()];
  return Buffer.concat([nonce, cipher.getAuthTag(), ...ciphertext]);
}

/** @throws Error if the bytes were encrypted with another key or for another owner, or were changed. */
export function decrypt(key: Buffer, bytes: Buffer, owner = ''): string {
  const start = nonceBytes + tagBytes;
  const options = { authTagLength: tagBytes };
  const decipher = createDecipheriv(algorithm, key, bytes.subarray(0, nonceBytes), options).setAAD(Buffer.from(owner));
  decipher.setAuthTag(bytes.subarray(nonceBytes, start));
  return Buffer.concat([decipher.update(bytes.subarray(start)), decipher.final()]).toString('utf8');
}
