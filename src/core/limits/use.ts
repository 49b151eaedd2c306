/** How much of each limit an account uses: for GET /usage, and the highest of all accounts for /metrics. */
import { type SqlBool, sql } from 'kysely';
import type { MessageStore } from '../../../db/messages/store.ts';
import type { Db, Registry } from '../../../db/registry/index.ts';
import { type Read, readOn } from '../../../db/registry/statement.ts';
import type { BrokerState } from '../../ports/broker-state.ts';
import { LongWork } from '../scheduler/long-work.ts';
import { type Kept, keptAmount } from './kept.ts';
import { type CountedLimit, type LimitName, type Limits, limits } from './table.ts';

/** The current use of one account, in the unit of the limit. `read` reads what it takes. */
type Use = (accountId: string, read: Read) => number | Promise<number>;

/** One function for each limit whose use is counted: a new row of the table without one does not compile. */
export type LimitUse = Readonly<Record<CountedLimit, Use>>;

/** A limit as the account sees it. `used` is null for limits of a single request, entity or connection. */
export interface LimitState {
  name: LimitName;
  variable: string;
  /** 0 is no limit. */
  limit: number;
  used: number | null;
  unit: string;
  per: string;
}

type Services = {
  registry: Pick<Registry, 'query'>;
  messages: Pick<MessageStore, 'usage'>;
  broker: Pick<BrokerState, 'kept'>;
};

export function limitUse({ registry, messages, broker }: Services): LimitUse {
  const db = registry.query;
  const amountOf =
    (what: Kept): Use =>
    async (accountId, read) =>
      (await read(keptAmount(db, accountId, what)))[0]?.amount ?? 0;
  return {
    accountMessagesBytes: (accountId) => messages.usage(accountId).bytes,
    /** Of the device template that has most. */
    async channelTemplates(accountId, read) {
      const rows = db
        .selectFrom('channelTemplates')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .where('accountId', '=', accountId)
        .where('deleted', 'is', null)
        .where(sql<SqlBool>`substr("name", 1, 1) <> '_'`);
      return first(await read(rows.groupBy('entityId').orderBy('count', 'desc').limit(1)));
    },
    /** Of the caller that has most. */
    async idempotencyKeys(accountId, read) {
      const kept = db
        .selectFrom('idempotentAnswers')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .where('callerId', 'in', callersOf(db, accountId));
      return first(await read(kept.groupBy('callerId').orderBy('count', 'desc').limit(1)));
    },
    /** Of the template that has most. */
    async customFields(accountId, read) {
      const rows = db
        .selectFrom('customFields')
        .select((eb) => eb.fn.countAll<number>().as('count'))
        .where('accountId', '=', accountId)
        .where('deleted', 'is', null);
      return first(await read(rows.groupBy('templateId').orderBy('count', 'desc').limit(1)));
    },
    async accessTokens(accountId, read) {
      const rows = db.selectFrom('accessTokens').select((eb) => eb.fn.countAll<number>().as('count'));
      const byOwner = rows.where('accountId', '=', accountId).groupBy('ownerId');
      return first(await read(byOwner.orderBy('count', 'desc').limit(1)));
    },
    async roles(accountId, read) {
      const rows = db.selectFrom('roles').select((eb) => eb.fn.countAll<number>().as('count'));
      return first(await read(rows.where('accountId', '=', accountId).where('deleted', 'is', null)));
    },
    firmwareBytes: (accountId, read) => firmwareBytes(db, accountId, undefined, read),
    async firmwareRollouts(accountId, read) {
      return first(await read(openRollouts(db, accountId)));
    },
    commands: (accountId, read) => openCommands(db, accountId, read),
    commandBytes: amountOf('commandBytes'),
    jobs: amountOf('jobs'),
    jobRows: amountOf('jobRows'),
    jobRowBytes: amountOf('jobRowBytes'),
    auditRecords: amountOf('auditRecords'),
    verifications: amountOf('verifications'),
    refusals: amountOf('refusals'),
    idempotentBytes: amountOf('idempotentBytes'),
    mqttStoredSessions: (accountId) => broker.kept(accountId).storedSessions,
    mqttFilterBytes: (accountId) => broker.kept(accountId).filterBytes,
    mqttWillBytes: (accountId) => broker.kept(accountId).willBytes,
    mqttQueueBytes: (accountId) => broker.kept(accountId).queueBytes,
    mqttRetained: (accountId) => broker.kept(accountId).retained,
    mqttRetainedBytes: (accountId) => broker.kept(accountId).retainedBytes,
    mqttUnreleased: (accountId) => broker.kept(accountId).unreleased,
  };
}

/** Bytes of the firmware of an account: each content once, and what its uploads will become except the partial file `except`. */
export async function firmwareBytes(
  db: Db,
  accountId: string,
  except?: string,
  read: Read = readOn(db),
): Promise<number> {
  const uploads = db.selectFrom('firmwareUploads').select(['partial', 'total', 'received']);
  const [files, open] = await Promise.all([
    read<{ bytes: number | null }>(sql`
    select sum("size") as "bytes"
    from (select distinct "sha256", "size" from "firmwareFiles" where "accountId" = ${accountId})`),
    read(uploads.where('accountId', '=', accountId)),
  ]);
  const coming = open.filter(({ partial }) => partial !== except);
  return coming.reduce((sum, { total, received }) => sum + (total ?? received), files[0]?.bytes ?? 0);
}

function openRollouts(db: Db, accountId: string) {
  return db
    .selectFrom('firmwareRollouts')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('accountId', '=', accountId)
    .where('finished', 'is', null);
}

/** Commands of an account that have not ended. */
export async function openCommands(db: Db, accountId: string, read: Read = readOn(db)): Promise<number> {
  const counts = db.selectFrom('commandCounts').select((eb) => eb.fn.sum<number | null>('count').as('count'));
  const open = counts.where('accountId', '=', accountId).where('state', 'in', ['queued', 'sent', 'accepted']);
  return Number((await read(open))[0]?.count ?? 0);
}

/** Every limit that concerns an account, with the account's own use of it. `read` is asked for all of it at once. */
export async function limitStates(
  use: LimitUse,
  configured: Limits,
  accountId: string,
  read: Read,
): Promise<LimitState[]> {
  const ofAccount = limits.filter(({ per }) => per !== 'service');
  return Promise.all(
    ofAccount.map(async ({ name, variable, unit, per, counted }) => {
      const used = counted ? await use[name](accountId, read) : null;
      return { name, variable, limit: configured[name], used, unit, per };
    }),
  );
}

/** The highest use of each counted limit by any account; over some turns of the event loop. */
export async function highestUse(
  { registry }: Pick<Services, 'registry'>,
  use: LimitUse,
): Promise<Map<CountedLimit, number>> {
  const longWork = new LongWork();
  const read = readOn(registry.query);
  const highest = new Map<CountedLimit, number>();
  for (const { id } of await registry.query.selectFrom('accounts').select('id').execute())
    for (const name of Object.keys(use) as CountedLimit[]) {
      highest.set(name, Math.max(highest.get(name) ?? 0, await use[name](id, read)));
      await longWork.giveWay();
    }
  return highest;
}

function first(rows: ReadonlyArray<{ count: number }>): number {
  return Number(rows[0]?.count ?? 0);
}

/** Everybody in an account who can call: identities and applications. */
function callersOf(db: Db, accountId: string) {
  const identities = db.selectFrom('identities').select('id').where('accountId', '=', accountId);
  return identities.unionAll(db.selectFrom('applications').select('id').where('accountId', '=', accountId));
}
