/** Secrets that overlap (`graceSeconds`): the previous secret works until the time is over or the new one has connected. */

import type { CredentialRow, Registry } from '../../../db/registry/index.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Clock } from '../../core/clock.ts';

/** Rows of one statement. */
const rowsAtOnce = 500;

/** Of a credential without a previous secret. */
export const noPrevious = { previousHash: null, previousGeneration: null, previousUntil: null };

/** A secret that is in force: its hash, and the generation that a connection made with it bears. */
interface InForce {
  hash: string;
  generation: number;
}

/** The secrets of a credential that are in force now, the newest first. */
export function secretsInForce(credential: CredentialRow | undefined, clock: Clock): InForce[] {
  if (!credential) return [];
  const { secretHash, generation, previousHash, previousGeneration, previousUntil } = credential;
  const newest = { hash: secretHash, generation };
  if (previousHash === null || previousGeneration === null || previousUntil === null) return [newest];
  return Date.parse(previousUntil) > clock.now()
    ? [newest, { hash: previousHash, generation: previousGeneration }]
    : [newest];
}

/** Credentials whose previous secret has not ended yet, in memory, so that a CONNECT of any other asks the disk nothing. */
export class Overlaps {
  readonly #registry: Registry;
  readonly #clock: Clock;
  readonly #gate: Pick<AccountGate, 'work'>;
  /** When the previous secret ends, in milliseconds, by entity. */
  readonly #ends: Map<string, number>;

  private constructor(
    { registry, clock, gate }: { registry: Registry; clock: Clock; gate: Pick<AccountGate, 'work'> },
    ends: Map<string, number>,
  ) {
    this.#registry = registry;
    this.#clock = clock;
    this.#gate = gate;
    this.#ends = ends;
  }

  static async open(services: {
    registry: Registry;
    clock: Clock;
    gate: Pick<AccountGate, 'work'>;
  }): Promise<Overlaps> {
    const rows = await services.registry.query
      .selectFrom('credentials')
      .select(['entityId', 'previousUntil'])
      .where('previousUntil', 'is not', null)
      .execute();
    return new Overlaps(services, new Map(rows.map((row) => [row.entityId, Date.parse(row.previousUntil ?? '')])));
  }

  /** To be told after the commit that made a secret; `until` is null where the previous one has ended with it. */
  changed(entityId: string, until: string | null): void {
    if (until === null) this.#ends.delete(entityId);
    else this.#ends.set(entityId, Date.parse(until));
  }

  /** A secret has let a connection in; whether the previous one has ended by that. */
  async connected(entityId: string, generation: number): Promise<boolean> {
    if (!this.#ends.has(entityId)) return false;
    const { numUpdatedRows } = await this.#registry.query
      .updateTable('credentials')
      .set(noPrevious)
      .where('entityId', '=', entityId)
      .where('generation', '=', generation)
      .where('previousUntil', 'is not', null)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return false;
    this.#forgetEntity(entityId);
    return true;
  }

  /** Ends the previous secrets whose time is over; the entities that have had one. */
  endDue(): Promise<string[]> {
    return this.#gate.work((away) => this.#endDue(away));
  }

  async #endDue(away: readonly string[]): Promise<string[]> {
    const now = this.#clock.now();
    const due = [...this.#ends].filter(([, end]) => end <= now).map(([entityId]) => entityId);
    for (let from = 0; from < due.length; from += rowsAtOnce) {
      const batch = due.slice(from, from + rowsAtOnce);
      await this.#registry.query
        .updateTable('credentials')
        .set(noPrevious)
        .where('entityId', 'in', batch)
        .where('previousUntil', '<=', new Date(now).toISOString())
        .where('accountId', 'not in', away)
        .execute();
      for (const entityId of batch) this.#forgetEntity(entityId);
    }
    return due;
  }

  /** Unless another overlap has begun meanwhile. */
  #forgetEntity(entityId: string): void {
    if (this.#registry.credential(entityId)?.previousUntil == null) this.#ends.delete(entityId);
  }
}
