/** The revocation lists of the CAs that issue here: signed when they are asked for and something has changed. */
import type { Registry } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { sizedCache } from '../../db/sqlite/cache.ts';
import type { Clock } from '../core/clock.ts';
import { joinRun } from '../core/scheduler/runs.ts';
import type { Readers } from '../core/threads/readers.ts';
import type { Issuing } from './issuing.ts';
import type { PkiThreads } from './pki/threads.ts';

const hour = 60 * 60_000;
/** Milliseconds until the next list at the latest, and after which a list is signed again though nothing has changed. */
const lifetime = 24 * hour;
const refreshedAfter = 12 * hour;
/** Bytes of lists that are kept in memory. */
const keptBytes = 64 * 1024 * 1024;

type Authority = Row<'certificateAuthorities'>;

interface List {
  /** Of the newest revocation that it has. */
  sequence: number;
  signed: number;
  der: Buffer;
}

type IssuedListServices = { registry: Registry; readers: Readers; clock: Clock; pki: PkiThreads; issuing: Issuing };

export class IssuedLists {
  readonly #ctx: IssuedListServices;
  readonly #kept = sizedCache<string, List>(keptBytes, ({ der }) => der.length + 1);
  readonly #underWay = new Map<string, Promise<List>>();

  constructor(ctx: IssuedListServices) {
    this.#ctx = ctx;
  }

  /** The list of an issuing CA, DER: it has all that was revoked before it was asked for. */
  async listOf(authority: Authority): Promise<Buffer> {
    const { id } = authority;
    const { registry, clock } = this.#ctx;
    const sequence = registry.newestRevocation(id);
    const isCurrent = (list: List | undefined): list is List =>
      list !== undefined && list.sequence === sequence && clock.now() - list.signed < refreshedAfter;
    const kept = this.#kept.get(id);
    if (isCurrent(kept)) return kept.der;
    // One that is being signed may have begun before the newest revocation.
    const before = await this.#underWay.get(id);
    if (isCurrent(before)) return before.der;
    return (await joinRun(this.#underWay, id, () => this.#makeList(authority))).der;
  }

  async #makeList(authority: Authority): Promise<List> {
    const { registry, readers, clock, pki, issuing } = this.#ctx;
    const { id, accountId } = authority;
    const lane = { accountId, callerId: id };
    const sequence = registry.newestRevocation(id);
    const now = clock.now();
    const revoked = registry.query
      .selectFrom('revokedCertificates')
      .select(['serialNumber', 'revoked'])
      .where('certificateAuthorityId', '=', id)
      .where('validTo', '>', new Date(now - lifetime).toISOString())
      .orderBy('sequence');
    const rows = await readers.read<{ serialNumber: string; revoked: string }>(lane, revoked.compile());
    const der = await pki.ask(lane, 'makeRevocationList', issuing.signerOf(authority), {
      ...{ from: now, to: now + lifetime },
      revoked: rows.map((row) => ({ serialNumber: row.serialNumber, time: Date.parse(row.revoked) })),
    });
    const list = { sequence, signed: now, der: Buffer.from(der) };
    this.#kept.set(id, list);
    return list;
  }
}
