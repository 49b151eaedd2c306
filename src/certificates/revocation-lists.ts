/** The revocation lists of registered CAs: read in a thread, stored in parts, and what they end. */
import type { Logger } from 'pino';
import { findEntity } from '../../db/registry/entities.ts';
import type { Registry, Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import type { Lane } from '../core/scheduler/lanes.ts';
import { queueRun } from '../core/scheduler/runs.ts';
import { demandLive, inThread, writeAs } from '../entity/verbs.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { Revocations, Revoked } from '../ports/revocations.ts';
import type { RevocationList } from './pki/reading.ts';
import { digestBytes, isListed } from './pki/serial-numbers.ts';
import type { PkiThreads } from './pki/threads.ts';

/** Bytes of a list in DER, sent or fetched. */
export const maxListBytes = 10 * 1024 * 1024;
/** Digests in one part: a look-up reads one. */
const digestsPerPart = 256;
/** Parts in one statement, and those of a list that the thread of long transactions writes. */
const partsAtOnce = 50;
const longList = 16;

type Authority = Row<'certificateAuthorities'>;

type RevocationListServices = {
  registry: Registry;
  clock: Clock;
  log: Logger;
  audit: Audit;
  pki: PkiThreads;
  revocations: Pick<Revocations, 'certificatesRevoked'>;
};

export class RevocationLists {
  readonly #ctx: RevocationListServices;
  /** Lists that are being taken, by CA: one after the other. */
  readonly #underWay = new Map<string, Promise<void>>();
  /** Milliseconds: the lists that had expired by then have ended what they end. */
  #looked: number;

  constructor(ctx: RevocationListServices) {
    this.#ctx = ctx;
    this.#looked = ctx.clock.now();
  }

  /** A list of this CA, in DER, PEM, or as `crl` of JSON, that is valid now. @throws PlatformError 400/106. */
  async read(lane: Lane, { certificate }: Authority, { body, isJson = false }: GivenList): Promise<RevocationList> {
    const { pki, clock } = this.#ctx;
    const list = await pki.ask(lane, 'readGivenList', { body, isJson }, certificate, clock.now());
    if ('fault' in list) throw invalid('crl', list.fault);
    return list;
  }

  /**
   * Stores a list, and ends the connections of what it names before it resolves. `url` is where it came from without a
   * caller: there the present list again is no fault. @throws PlatformError 404, 410, 400/106 for an older list.
   */
  take(id: string, list: RevocationList, by: { caller: Caller } | { url: string }): Promise<Taken> {
    return queueRun(this.#underWay, id, () => this.#take(id, list, by));
  }

  async #take(id: string, list: RevocationList, by: { caller: Caller } | { url: string }): Promise<Taken> {
    const isLong = list.count > longList * digestsPerPart;
    const writing = isLong ? inThread(this.#ctx.registry) : this.#ctx;
    const { row, isNew } =
      'caller' in by
        ? await writeAs(writing, by.caller, undefined, (tx) => this.#store(tx, id, list, by))
        : await writing.registry.transaction((tx) => this.#store(tx, id, list, by));
    if (!isNew) return { row, revoked: nothing };
    const isRevoked = (serial: string) => isListed(list.digests, serial);
    return { row, revoked: await this.#ctx.revocations.certificatesRevoked(id, isRevoked) };
  }

  async #store(tx: Tx, id: string, list: RevocationList, by: { caller: Caller } | { url: string }) {
    const { clock, audit } = this.#ctx;
    const before = await findEntity(tx, 'certificateAuthorities', id);
    if (!before) throw new PlatformError('notFound');
    demandLive(before);
    const present = before.crlNumber === null ? undefined : BigInt(before.crlNumber);
    const isSame = 'url' in by && BigInt(list.number) === present;
    if (!isSame && present !== undefined && BigInt(list.number) <= present)
      throw invalid('crl', `has the number ${list.number}, which is not higher than ${present} of the present list`);
    const now = timestamp(clock);
    const found = {
      ...{ crlNumber: list.number, crlCount: list.count, crlTaken: now },
      crlNextUpdate: new Date(list.nextUpdate).toISOString(),
    };
    // Of another URL than the present one nothing is noted: that is still due.
    const isPresent = 'url' in by && before.crlUrl === by.url;
    const changes = { ...(!isSame && found), ...(isPresent && { crlChecked: now, crlError: null }) };
    if (!isSame) await replaceParts(tx, before, list);
    if (Object.keys(changes).length > 0)
      await tx.updateTable('certificateAuthorities').set(changes).where('id', '=', id).execute();
    if ('caller' in by)
      await audit.record(tx, {
        ...{ event: 'certificateAuthorityChanged', outcome: 'success', accountId: before.accountId, actor: by.caller },
        target: { kind: 'certificateAuthority', id },
        details: { crlNumber: list.number, crlCount: list.count },
      });
    return { row: { ...before, ...changes }, isNew: !isSame };
  }

  /** A list that has expired lets nobody in: ends the connections of its CA. */
  endExpired(id: string): Promise<Revoked> {
    return this.#ctx.revocations.certificatesRevoked(id, () => true);
  }

  /** Ends the connections of CAs whose lists have expired since the last call. */
  async endDue(): Promise<void> {
    const now = this.#ctx.clock.now();
    const expired = this.#ctx.registry.expiredLists(new Date(this.#looked).toISOString(), new Date(now).toISOString());
    this.#looked = now;
    for (const id of expired) {
      const { connections } = await this.endExpired(id);
      this.#ctx.log.warn({ certificateAuthorityId: id, connections }, 'the revocation list of a CA has expired');
    }
  }
}

/** A list as it was sent, or fetched. */
export interface GivenList {
  body: Uint8Array;
  isJson?: boolean;
}

/** The CA with its new list, and what has ended. */
export interface Taken {
  row: Authority;
  revoked: Revoked;
}

const nothing: Revoked = { connections: 0, subscriptions: 0 };

async function replaceParts(tx: Tx, { id, accountId }: Authority, { digests }: RevocationList): Promise<void> {
  await tx.deleteFrom('revocationListParts').where('certificateAuthorityId', '=', id).execute();
  const all = Buffer.from(digests.buffer, digests.byteOffset, digests.byteLength);
  const partBytes = digestsPerPart * digestBytes;
  for (let from = 0; from < all.length; from += partsAtOnce * partBytes) {
    const parts: Row<'revocationListParts'>[] = [];
    for (let at = from; at < Math.min(all.length, from + partsAtOnce * partBytes); at += partBytes)
      parts.push({
        // A copy: what is sent to the thread of long transactions takes its whole buffer along.
        ...{ certificateAuthorityId: id, accountId, digests: Buffer.from(digests.slice(at, at + partBytes).buffer) },
        first: all.toString('hex', at, at + digestBytes),
      });
    await tx.insertInto('revocationListParts').values(parts).execute();
  }
}
