/**
 * What is kept of a request with an Idempotency-Key: anyone who makes an entity notes it in the same transaction. Answers are sealed
 * with a key made from the Idempotency-Key and a key of the service, because callers choose keys that can be guessed.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { hkdfSync, randomBytes } from 'node:crypto';
import type { Registry, Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { decrypt, encrypt } from '../core/formats/aes-gcm.ts';

/** How long an answer is kept, in milliseconds. */
export const answerLifetime = 72 * 60 * 60 * 1000;

/** One request with a key, while it runs. */
export interface Keyed {
  key: string;
  keyHash: string;
  requestHash: string;
  created: string;
  callerId: string;
  accountId: string;
  /** The new entity is noted in the same transaction, so that a crash before the answer does not make it twice. */
  made: boolean;
  /** The answer was kept in that transaction: it has a secret, or could not be read again. */
  isSealed: boolean;
}

/** Headers that belong to the answer, and not to the request that gets it. */
export type KeptHeaders = Record<string, string>;

/** Status of a kept row whose answer carried a secret that has been used since. */
export const gone = 410;

export const running = new AsyncLocalStorage<Keyed>();

/** Notes inside the transaction which entity a request with a key has made; without a key it does nothing. */
export async function noteMade(tx: Tx, entityId: string): Promise<void> {
  await storeAnswer(tx, { entityId });
}

/** As noteMade, for an answer with a device's secret, which could not be read again: it is kept until it is used. */
export async function noteSecret(tx: Tx, deviceId: string, headers: KeptHeaders, answer: object): Promise<void> {
  await noteSealed(tx, headers, answer, { secretOf: deviceId });
}

/** As noteMade, or after it, for an answer that the caller could not read again, such as one with a secret. */
export async function noteAnswer(tx: Tx, answer: object, headers: KeptHeaders = {}): Promise<void> {
  await noteSealed(tx, headers, answer, {});
}

async function noteSealed(tx: Tx, headers: KeptHeaders, answer: object, of: Partial<Row<'idempotentAnswers'>>) {
  const keyed = running.getStore();
  if (!keyed) return;
  await storeAnswer(tx, { status: 200, answer: sealAnswer(keyed.key, headers, JSON.stringify(answer)), ...of });
}

async function storeAnswer(tx: Tx, what: Partial<Row<'idempotentAnswers'>>): Promise<void> {
  const keyed = running.getStore();
  if (!keyed) return;
  const isSealed = typeof what.answer === 'string';
  if (keyed.made) {
    if (isSealed && !keyed.isSealed)
      await tx.updateTable('idempotentAnswers').set(what).where('keyHash', '=', keyed.keyHash).execute();
    keyed.isSealed ||= isSealed;
    return;
  }
  keyed.made = true;
  keyed.isSealed = isSealed;
  const { keyHash, requestHash, created, callerId, accountId } = keyed;
  const nothing = { entityId: null, secretOf: null, status: null, answer: null };
  await tx
    .insertInto('idempotentAnswers')
    .values({ ...nothing, keyHash, requestHash, created, callerId, accountId, ...what })
    .execute();
}

/** Answers that carry a device's secret end when the device has used it. */
export class SecretAnswers {
  readonly #registry: Registry;
  readonly #devices: Set<string>;

  private constructor(registry: Registry, devices: Set<string>) {
    this.#registry = registry;
    this.#devices = devices;
  }

  static async open(registry: Registry): Promise<SecretAnswers> {
    const rows = await registry.query
      .selectFrom('idempotentAnswers')
      .select('secretOf')
      .where('secretOf', 'is not', null)
      .where('answer', 'is not', null)
      .execute();
    return new SecretAnswers(registry, new Set(rows.flatMap(({ secretOf }) => secretOf ?? [])));
  }

  /** An answer with the secret of this device may have been kept. */
  made(deviceId: string): void {
    if (running.getStore()) this.#devices.add(deviceId);
  }

  /** Devices that have come from another server, with answers that were kept there. */
  arrived(deviceIds: readonly string[]): void {
    for (const deviceId of deviceIds) this.#devices.add(deviceId);
  }

  /** The device has proven its secret: what is kept of it is destroyed. */
  async destroyAnswer(deviceId: string): Promise<void> {
    if (!this.#devices.delete(deviceId)) return;
    await this.#registry.query
      .updateTable('idempotentAnswers')
      .set({ answer: null, status: gone })
      .where('secretOf', '=', deviceId)
      .execute();
  }
}

function sealingKey(key: string, salt: Buffer): Buffer {
  return Buffer.from(hkdfSync('sha256', key, salt, 'slipway idempotent answer', 32));
}

/** `body` is JSON. */
export function sealAnswer(key: string, headers: KeptHeaders, body: string): string {
  return seal(key, `[${JSON.stringify(headers)},${body}]`);
}

/** Headers and body. */
export function unsealAnswer(key: string, sealed: string): [KeptHeaders, unknown] {
  return JSON.parse(unseal(key, sealed)) as [KeptHeaders, unknown];
}

function seal(key: string, text: string): string {
  const salt = randomBytes(16);
  return Buffer.concat([salt, encrypt(sealingKey(key, salt), text)]).toString('base64');
}

function unseal(key: string, sealed: string): string {
  const bytes = Buffer.from(sealed, 'base64');
  return decrypt(sealingKey(key, bytes.subarray(0, 16)), bytes.subarray(16));
}
