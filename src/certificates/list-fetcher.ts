/** Fetches the revocation lists of registered CAs from their `crlUrl`: when it is set, and then hourly. */
import type { Logger } from 'pino';
import type { Registry } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { AccountGate } from '../core/account-gate.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { PlatformError } from '../core/errors.ts';
import { onBehalfOf } from '../core/log.ts';
import { exchange, NotPublic } from '../core/network/outbound.ts';
import { joinRun } from '../core/scheduler/runs.ts';
import { Scheduler } from '../core/scheduler/scheduler.ts';
import { maxListBytes, type RevocationLists } from './revocation-lists.ts';

/** Milliseconds from one fetch of a list to the next, between two looks for those that are due, and for expired ones. */
const refetched = 60 * 60_000;
const lookEvery = 60_000;
const tickEvery = 1000;
/** Fetches at once, of all: each holds a list in memory. Of an account there is one, so that hanging ones take no other's place. */
const atOnce = 2;
/** CAs that are looked at, and wait, at once. */
const maxDue = 1000;
const maxWaiting = { ofCaller: 1, ofAccount: 100 };
const maxErrorLength = 200;

type ListFetcherServices = {
  registry: Registry;
  clock: Clock;
  config: Pick<Config, 'bridges'>;
  gate: Pick<AccountGate, 'isAway' | 'workFor'>;
  log: Logger;
  revocationLists: RevocationLists;
};

export class ListFetcher {
  readonly #ctx: ListFetcherServices;
  readonly #turns = new Scheduler({ atOnce, perAccount: 1, maxWaiting });
  /** CAs whose list is fetched, or waits for it. */
  readonly #underWay = new Map<string, Promise<void>>();
  readonly #end = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #lookAgain = 0;

  constructor(ctx: ListFetcherServices) {
    this.#ctx = ctx;
  }

  /** Begins to look for what is due, until `close`. */
  start(): void {
    this.#timer = setInterval(() => this.#tick(), tickEvery);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#end.abort();
    await Promise.all(this.#underWay.values());
  }

  #tick(): void {
    const { log, revocationLists } = this.#ctx;
    revocationLists.endDue().catch((error) => log.error({ err: error }, 'expired revocation lists ended nothing'));
    if (performance.now() < this.#lookAgain) return;
    this.#lookAgain = performance.now() + lookEvery;
    this.fetchDue().catch((error) => log.error({ err: error }, 'revocation lists could not be fetched'));
  }

  /** Fetches the lists that are due; resolves when it is done. */
  async fetchDue(): Promise<void> {
    const { registry, clock } = this.#ctx;
    const before = new Date(clock.now() - refetched).toISOString();
    const due = await registry.query
      .selectFrom('certificateAuthorities')
      .select(['id', 'accountId', 'crlChecked'])
      .where('crlUrl', 'is not', null)
      .where('deleted', 'is', null)
      .orderBy('crlChecked')
      .limit(maxDue)
      .execute();
    const all = due.filter(({ crlChecked }) => crlChecked === null || crlChecked <= before);
    await Promise.all(all.map((authority) => this.fetchList(authority)));
  }

  /**
   * Fetches the list of a CA. Never rejects: the CA shows what went wrong. Where it is being fetched from another URL, the
   * present one is due at the next look.
   */
  fetchList({ id, accountId }: { id: string; accountId: string }): Promise<void> {
    const lane = { accountId, callerId: id };
    return joinRun(this.#underWay, id, () =>
      this.#turns
        .run(lane, 1, () => onBehalfOf({ lane }, () => this.#fetch(id, accountId)))
        .catch((error) => {
          // More than may wait: they are due at the next look.
          if (!(error instanceof PlatformError)) this.#ctx.log.error({ err: error }, 'a list could not be fetched');
        }),
    );
  }

  async #fetch(id: string, accountId: string): Promise<void> {
    const { registry, gate } = this.#ctx;
    const authority = registry.entity('certificateAuthorities', id);
    if (authority?.deleted !== null || authority.crlUrl === null) return;
    if (this.#end.signal.aborted || gate.isAway(accountId)) return;
    await this.#fetchFrom(authority, authority.crlUrl);
  }

  async #fetchFrom(authority: Row<'certificateAuthorities'>, url: string): Promise<void> {
    const { gate, revocationLists } = this.#ctx;
    const { id, accountId } = authority;
    try {
      const body = await this.#download(url);
      const list = await revocationLists.read({ accountId, callerId: id }, authority, { body });
      await gate.workFor(accountId, () => revocationLists.take(id, list, { url }));
    } catch (error) {
      if (!this.#end.signal.aborted) await gate.workFor(accountId, () => this.#noteFailure(id, url, error));
    }
  }

  async #download(url: string): Promise<Uint8Array> {
    const headers = { accept: 'application/pkix-crl, */*', 'user-agent': 'slipway' };
    const { signal } = this.#end;
    const asked = { method: 'GET', headers, signal, maxBytes: maxListBytes };
    const answer = await exchange(new URL(url), asked, this.#ctx.config.bridges);
    if (answer.status !== 200) throw new Error(`the server answered ${answer.status}, and redirects are not followed`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  async #noteFailure(id: string, url: string, error: unknown): Promise<void> {
    const { registry, clock, log } = this.#ctx;
    const crlError = sentenceOf(error).slice(0, maxErrorLength);
    log.warn({ certificateAuthorityId: id, error: crlError }, 'the revocation list of a CA could not be fetched');
    await registry.query
      .updateTable('certificateAuthorities')
      .set({ crlChecked: timestamp(clock), crlError })
      .where('id', '=', id)
      .where('crlUrl', '=', url)
      .execute();
  }
}

function sentenceOf(error: unknown): string {
  if (error instanceof PlatformError) return `the list ${error.details[0]?.message ?? error.message}`;
  const { name, message, code } = error as NodeJS.ErrnoException;
  if (name === 'TimeoutError' || name === 'AbortError') return 'the server did not answer in time';
  // What an operating system says of an address is told by its code.
  return error instanceof NotPublic || code === undefined ? message : code;
}
