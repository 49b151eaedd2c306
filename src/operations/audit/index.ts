/** The audit record: who did what to whose security, when and from where. Records are only added, and the oldest beyond an account's limit are removed. It holds no secret. */

import type { Selectable } from 'kysely';
import type { Logger } from 'pino';
import { type Static, Type } from 'typebox';
import type { Db, Registry } from '../../../db/registry/index.ts';
import { DateText, Id, Nullable, oneOf, type Row } from '../../../db/registry/records.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Caller } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { newId } from '../../core/ids.ts';
import { Gathered } from '../../core/limits/gathered.ts';
import { keepNewest } from '../../core/limits/kept.ts';
import type { EntityKind } from '../../core/rights.ts';
import type { Readers } from '../../core/threads/readers.ts';
import { pageOfTable } from '../../entity/list.ts';
import { metaShape, readDate } from '../../entity/routes.ts';
import { type SliceServices, showSlices } from '../../entity/row-slices.ts';
import { sendList, streamed } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import { type AuditEvent, auditEvents } from './events.ts';

/** One event. Without an actor it was somebody unknown; `address` is where the actor spoke from. */
interface AuditEntry {
  event: AuditEvent;
  outcome: 'success' | 'failure';
  accountId: string;
  actor?: Pick<Caller, 'kind' | 'id' | 'address'> | undefined;
  target?: { kind: EntityKind; id: string } | undefined;
  address?: string | undefined;
  /** Further facts; never a secret, a password, a token or a code. */
  details?: Record<string, string | number | boolean | null>;
}

/** Entries of one kind are sampled: one in this time, in milliseconds. */
const sampleEvery = 15 * 60_000;
const samplesRemembered = 50_000;
/** Sampled entries that wait to be written; more are dropped, for they are samples. */
const maxWaiting = 10_000;
/** Of the records that an account keeps, the part that failures of strangers may take in so many milliseconds. */
const strangersPart = 0.1;
const strangersTime = 30 * 24 * 60 * 60_000;
const accountsRemembered = 10_000;
/** Rows of one statement, which takes so many parameters. */
const rowsAtOnce = 500;

/** What strangers have taken of their share of an account since a moment, and what was left out because of it. */
interface StrangersShare {
  since: number;
  taken: number;
  omitted: number;
}

type AuditServices = {
  registry: Registry;
  clock: Clock;
  log: Logger;
  config: Pick<Config, 'limits'>;
  gate?: Pick<AccountGate, 'isAway'>;
};

export class Audit {
  readonly #ctx: AuditServices;
  readonly #seen = boundedCache<string, number>(samplesRemembered);
  readonly #strangers = boundedCache<string, StrangersShare>(accountsRemembered);
  readonly #waiting = new Gathered<AuditEntry>({
    ...{ interval: 0, atOnce: rowsAtOnce },
    write: (entries) => this.#write(entries.map(({ value }) => value)),
  });
  /** Each note has a key of its own: none takes the place of another. */
  #notes = 0;
  /** Of accounts that are on their way to another server. */
  #held: AuditEntry[] = [];

  constructor(ctx: AuditServices) {
    this.#ctx = ctx;
  }

  /** Adds an entry; in the transaction of what it reports, or with the outer handle where there is none. */
  async record(db: Db, entry: AuditEntry): Promise<void> {
    await db.insertInto('auditRecords').values(this.#rowOf(entry)).execute();
    await keepNewest(db, this.#ctx.config.limits, 'auditRecords', entry.accountId);
  }

  /** Adds an entry for what happens all the time: one per actor, target and event in a quarter of an hour. */
  sample(entry: AuditEntry, about = ''): void {
    const { event, accountId, actor, address, target } = entry;
    const key = [event, accountId, actor?.id, address ?? actor?.address, target?.id, about].join('\0');
    const now = this.#ctx.clock.now();
    const last = this.#seen.get(key);
    if (last !== undefined && now - last < sampleEvery) return;
    this.#seen.set(key, now);
    if (this.#waiting.size < maxWaiting) this.addSoon(entry);
  }

  /** A token has been used, for what `details` say: sampled, but of a station, whose every use is on record. */
  recordUse(actor: Caller, details: Record<string, string>, about = ''): void {
    const entry: AuditEntry = { event: 'tokenUsed', outcome: 'success', accountId: actor.accountId, actor, details };
    if (actor.kind === 'station') this.addSoon(entry);
    else this.sample(entry, about);
  }

  /**
   * Adds an entry soon, where nothing is written that it could go with. Of the failures of strangers only as many as their
   * share: anyone can cause them, and each removes the oldest record of an account at its limit.
   */
  addSoon(entry: AuditEntry): void {
    const isOfStranger = entry.outcome === 'failure' && entry.actor === undefined;
    const admitted = isOfStranger ? this.#shared(entry) : entry;
    if (!admitted) return;
    if (this.#ctx.gate?.isAway(admitted.accountId)) {
      if (this.#held.length < maxWaiting) this.#held.push(admitted);
      return;
    }
    this.#add(admitted);
  }

  #add(entry: AuditEntry): void {
    this.#notes += 1;
    this.#waiting.putValue(entry.accountId, String(this.#notes), entry);
  }

  /** The entry, with the number of those omitted before it; undefined if the share of strangers is used up. */
  #shared(entry: AuditEntry): AuditEntry | undefined {
    const { clock, config, log } = this.#ctx;
    const { accountId } = entry;
    const limit = config.limits.auditRecords;
    if (limit === 0) return entry;
    const now = clock.now();
    let share = this.#strangers.get(accountId);
    if (!share || now - share.since >= strangersTime) {
      share = { since: now, taken: 0, omitted: share?.omitted ?? 0 };
      this.#strangers.set(accountId, share);
    }
    if (share.taken >= Math.ceil(limit * strangersPart) || this.#waiting.size >= maxWaiting) {
      if (share.omitted === 0) log.warn({ accountId }, 'failures of strangers are not in the audit record for now');
      share.omitted += 1;
      return undefined;
    }
    share.taken += 1;
    if (share.omitted === 0) return entry;
    const details = { ...entry.details, omitted: share.omitted };
    share.omitted = 0;
    return { ...entry, details };
  }

  async #write(entries: readonly AuditEntry[]): Promise<void> {
    try {
      const rows = entries.map((entry) => this.#rowOf(entry));
      await this.#ctx.registry.query.insertInto('auditRecords').values(rows).execute();
      await this.#removeOldest(rows);
    } catch (error) {
      this.#ctx.log.error({ err: error }, 'audit records could not be written');
    }
  }

  async #removeOldest(rows: ReadonlyArray<{ accountId: string }>): Promise<void> {
    const { registry, config } = this.#ctx;
    const added = new Map<string, number>();
    for (const { accountId } of rows) added.set(accountId, (added.get(accountId) ?? 0) + 1);
    for (const [accountId, count] of added)
      await keepNewest(registry.query, config.limits, 'auditRecords', accountId, count);
  }

  #rowOf({ event, outcome, accountId, actor, target, address, details }: AuditEntry) {
    return {
      id: newId(accountId),
      accountId,
      time: timestamp(this.#ctx.clock),
      event,
      outcome,
      actorKind: actor?.kind ?? null,
      actorId: actor?.id ?? null,
      targetKind: target?.kind ?? null,
      targetId: target?.id ?? null,
      address: address ?? actor?.address ?? null,
      details: JSON.stringify(details ?? {}),
    };
  }

  /** Writes everything that was noted, of accounts that are away too; on disk when it resolves. */
  async flush(): Promise<void> {
    for (const entry of this.#held.splice(0)) this.#add(entry);
    await this.#waiting.flush();
  }

  /** Forgets what has been noted since: another server handles these accounts. */
  forgetAccounts(accounts: readonly string[]): void {
    this.#held = this.#held.filter(({ accountId }) => !accounts.includes(accountId));
  }

  /** Waits for what has not been written yet. */
  close(): Promise<void> {
    return this.#waiting.flush();
  }
}

const query = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  event: Type.Optional(oneOf(auditEvents)),
  outcome: Type.Optional(oneOf(['success', 'failure'])),
  actorId: Type.Optional(Type.String({ description: 'Who did it.' })),
  targetId: Type.Optional(Type.String({ description: 'The entity that was changed.' })),
  address: Type.Optional(Type.String({ description: 'From where.' })),
  from: Type.Optional(Type.String({ description: 'ISO 8601, inclusive.' })),
  to: Type.Optional(Type.String({ description: 'ISO 8601, exclusive.' })),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'desc' })),
});
const text = Nullable(Type.String());
const shape = Type.Object({
  id: Id,
  accountId: Id,
  time: DateText,
  event: oneOf(auditEvents),
  outcome: oneOf(['success', 'failure']),
  actorKind: text,
  actorId: text,
  targetKind: text,
  targetId: text,
  address: text,
  details: Type.Record(Type.String(), Type.Unknown()),
});
const answer = Type.Object(
  { auditRecords: Type.Object({ results: Type.Array(shape), meta: metaShape }) },
  { description: 'One page of records, by default newest first.' },
);

type AuditReads = SliceServices & { registry: Registry; readers: Readers };

/** GET /audit: for admins of the account. */
export function auditRoutes(app: App, ctx: AuditReads): void {
  app.get(
    '/audit',
    {
      config: {
        right: ['read', 'auditRecord'],
        errors: ['notFound', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Audit'],
        operationId: 'listAuditRecords',
        summary: 'List security events',
        description: 'Returns one page. Filters are combined: a record must match all of them.',
        querystring: query,
        response: { 200: streamed(answer) },
      },
    },
    async (request, reply) => {
      ctx.access.demandAccount(request.caller, request.query.accountId);
      const ignored = nameIgnored(request, reply, query);
      const { rows, meta } = await readAudit(ctx, request.caller, request.query);
      const results = showSlices(rows, () => show);
      return sendList(reply, 'auditRecords', { results, meta: metaWith(meta, ignored) });
    },
  );
}

async function readAudit(ctx: AuditReads, caller: Caller, asked: Static<typeof query>) {
  const { query: db } = ctx.registry;
  const [from, to] = [readDate('from', asked.from), readDate('to', asked.to)];
  let matching = db.selectFrom('auditRecords').where('accountId', '=', asked.accountId);
  for (const column of ['event', 'outcome', 'actorId', 'targetId', 'address'] as const) {
    const value = asked[column];
    if (value !== undefined) matching = matching.where(column, '=', value);
  }
  if (from !== undefined) matching = matching.where('time', '>=', new Date(from).toISOString());
  if (to !== undefined) matching = matching.where('time', '<', new Date(to).toISOString());
  return pageOfTable(ctx, caller, asked, {
    matching,
    key: 'sequence',
    order: ['time', 'sequence'],
    long: ['details'],
    read: (_, some: number[]) => db.selectFrom('auditRecords').selectAll().where('sequence', 'in', some).execute(),
    idOf: ({ sequence }) => sequence,
  });
}

function show({ sequence: _, details, event, outcome, ...row }: Selectable<Row<'auditRecords'>>): Static<typeof shape> {
  return {
    ...row,
    event: event as AuditEvent,
    outcome: outcome as 'success' | 'failure',
    details: JSON.parse(details) as Record<string, unknown>,
  };
}
