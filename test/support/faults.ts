/** Faults and moments that no client can bring about; each names the request or what else it waits for, and never "the next". This is the only place, but for the start of a service, that reaches into it. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { Worker } from 'node:worker_threads';
import type { Test } from 'tap';
import { Backlog } from '../../broker/connections/backlog.ts';
import { FilterTree } from '../../broker/sessions/filter-tree.ts';
import type { OutboxChange, OutboxMessage } from '../../db/messages/outbox/rows.ts';
import type { MqttRows } from '../../db/messages/sessions/rows.ts';
import type { Point } from '../../db/messages/types.ts';
import { rowsOf } from '../../db/registry/statement.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { StatementCache } from '../../db/sqlite/statements.ts';
import { AskedThread } from '../../db/threads/asked-thread.ts';
import { PlatformError } from '../../src/core/errors.ts';
import { causeNow, laneNow } from '../../src/core/log.ts';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import type { ReadQuestion } from '../../src/core/threads/readers.ts';
import { pendingRows } from '../../src/factory/jobs/shares.ts';
import { clearRows } from '../../src/factory/results/expiry.ts';
import { Progress } from '../../src/firmware/rollouts/progress.ts';
import type { Service } from './service.ts';
import { storedRows } from './stored.ts';
import { soon, until } from './until.ts';

/** Puts a function in the place of a method, which it is given; the answer puts the method back. */
function replace<O extends object, N extends keyof O>(of: O, name: N, by: (method: O[N]) => O[N]): () => void {
  const isOwn = Object.hasOwn(of, name);
  const method = of[name];
  of[name] = by((method as (...asked: unknown[]) => unknown).bind(of) as O[N]);
  return () => {
    if (isOwn) of[name] = method;
    else Reflect.deleteProperty(of, name);
  };
}

/** The request that is worked on, as `POST /api/v1/devices`. */
const requests = new AsyncLocalStorage<string>();
const named = new WeakSet<object>();

/** From now on it is known which request is worked on. */
function nameRequests({ app: { server: http } }: Service['server']): void {
  if (!named.has(http))
    http.prependListener('request', ({ method, url = '' }: IncomingMessage) =>
      requests.enterWith(`${method} ${url.split('?')[0]}`),
    );
  named.add(http);
}

/** Puts `work` in front of a method when a request calls it first; nothing that others do meanwhile is touched. */
function beforeCall<N extends string, O extends Record<N, (...asked: never[]) => Promise<unknown>>>(
  t: Test,
  { server }: Service,
  request: string,
  of: O,
  name: N,
  work: () => Promise<unknown>,
): void {
  nameRequests(server);
  const before =
    (method: O[N]) =>
    async (...asked: never[]) => {
      if (requests.getStore() === request) {
        restore();
        await work();
      }
      return method(...asked);
    };
  const restore = replace(of, name, before as (method: O[N]) => O[N]);
  t.teardown(restore);
}

/** Runs when a request, as `POST /api/v1/devices`, is about to begin its first transaction, in the middle of the code that asked for it. */
export function beforeTransaction(t: Test, service: Service, request: string, work: () => Promise<unknown>): void {
  beforeCall(t, service, request, service.server.ctx.registry, 'transaction', work);
}

/**
 * A statement of the main thread. `work` is what it takes of the processor in milliseconds, without the collection of garbage that
 * falls into it, `rows` what it reads or writes, triggers included.
 */
export interface Executed {
  request: string | undefined;
  sql: string;
  rows: number;
  work: number;
}

/** The statements that the main thread executes, with the request that they are for; it grows while the service runs. */
export function watchStatements(t: Test, { server }: Service): Executed[] {
  nameRequests(server);
  const collected = watchCollections(t);
  const executed: Executed[] = [];
  const { run } = StatementCache.prototype;
  StatementCache.prototype.run = function note<R>(this: StatementCache, query: Parameters<typeof run>[0]) {
    const changes = () => this.file.prepare('SELECT total_changes()').pluck().get() as number;
    const [before, from, began] = [changes(), performance.now(), process.threadCpuUsage()];
    const result = run.call(this, query) as ReturnType<typeof run<R>>;
    const { user, system } = process.threadCpuUsage(began);
    const to = performance.now();
    const rows = Math.max(result.rows.length, changes() - before);
    executed.push({
      ...{ request: requests.getStore(), sql: query.sql, rows },
      get work() {
        return (user + system) / 1000 - collected(from, to);
      },
    });
    return result;
  };
  t.teardown(() => {
    StatementCache.prototype.run = run;
  });
  return executed;
}

/** Milliseconds of a span in which this thread has collected garbage. They are known some turns of the event loop later. */
function watchCollections(t: Test): (from: number, to: number) => number {
  const collections: PerformanceEntry[] = [];
  const observer = new PerformanceObserver((list) => collections.push(...list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  t.teardown(() => observer.disconnect());
  return (from, to) =>
    collections.reduce((sum, { startTime, duration }) => {
      const inSpan = Math.min(to, startTime + duration) - Math.max(from, startTime);
      return sum + Math.max(inSpan, 0);
    }, 0);
}

/** The statements that reader threads execute from now on; what the answer calls ends that, and says how SQLite executes each. */
export function watchReads(t: Test, { directory }: Service): () => { source: string; plan: string[] }[] {
  const statements = new Map<string, readonly unknown[]>();
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (this: Worker, message: { question?: Partial<ReadQuestion> }, ...more: []) {
    const { sql, parameters = [] } = message.question ?? {};
    if (sql !== undefined) statements.set(sql, parameters);
    postMessage.call(this, message, ...more);
  };
  t.teardown(() => Object.assign(Worker.prototype, { postMessage }));
  return () => {
    Object.assign(Worker.prototype, { postMessage });
    const file = openSqlite(join(directory, 'registry.db'), { readonly: true });
    const plans = [...statements].map(([source, bound]) => {
      const plan = file.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${source}`).all(...bound);
      return { source, plan: plan.map(({ detail }) => detail) };
    });
    file.close();
    return plans;
  };
}

/** How often a request has looked up what a group has made for a serial number, since. */
export function countEnrollmentLookups(t: Test, { server }: Service, request: string): () => number {
  nameRequests(server);
  let count = 0;
  const put = replace(server.ctx.registry, 'enrollment', (look) => (...asked) => {
    if (requests.getStore() === request) count += 1;
    return look(...asked);
  });
  t.teardown(put);
  return () => count;
}

/** Holds the transactions that no request asks for, as those of presence, until the answer is called. */
export function holdUnasked(t: Test, { server }: Service): () => void {
  nameRequests(server);
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const { registry } = server.ctx;
  const held = (method: typeof registry.transaction) =>
    (async (work) => {
      if (requests.getStore() === undefined) await gate;
      return method(work);
    }) as typeof registry.transaction;
  const restore = replace(registry, 'transaction', held);
  const release = () => {
    restore();
    open();
  };
  t.teardown(release);
  return release;
}

/** Holds the jobs of an account, of a hundred rows and more, after their first share until the answer is called. */
export function holdJobs(t: Test, { server, accountId }: Service): () => void {
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const begun = new Set<string>();
  const { registry } = server.ctx;
  const held = (method: typeof registry.longTransaction) =>
    (async (work) => {
      const cause = causeNow();
      if (cause && 'jobId' in cause && laneNow()?.accountId === accountId) {
        if (begun.has(cause.jobId)) await gate;
        begun.add(cause.jobId);
      }
      return method(work);
    }) as typeof registry.longTransaction;
  const restore = replace(registry, 'longTransaction', held);
  const release = () => {
    restore();
    open();
  };
  t.teardown(release);
  return release;
}

/** Changes rows of `registry.db`, or of another database, as a program beside the service would. */
export async function changeStored(
  { directory }: { directory: string },
  statement: string,
  values: unknown[] = [],
  database = 'registry.db',
): Promise<void> {
  const file = openSqlite(join(directory, database));
  file.pragma('busy_timeout = 0');
  const change = file.prepare(statement);
  // A transaction of the service ends only when this thread goes on.
  await until(() => {
    try {
      change.run(...values);
      return true;
    } catch (error) {
      if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
      return false;
    }
  }).finally(() => file.close());
}

/** Stores rows like the one with an id, as many as a client would need minutes for; each says what it has of its own. */
export async function storeMore(
  at: { directory: string },
  table: string,
  id: string,
  rows: object[],
  key = 'id',
): Promise<void> {
  const [like = {}] = storedRows(at, `SELECT * FROM "${table}" WHERE "${key}" = ?`, [id]);
  const names = Object.keys(like).filter((name) => !numbered.has(name));
  const columns = names.map((name) =>
    rows[0] && name in rows[0] ? `"one"."value" ->> '$.${name}'` : `"${table}"."${name}"`,
  );
  const statement = `INSERT INTO "${table}" (${names.map((name) => `"${name}"`)})
    SELECT ${columns} FROM json_each(?) AS "one", "${table}" WHERE "${table}"."${key}" = ?`;
  await changeStored(at, statement, [JSON.stringify(rows), id]);
}

/** Columns that SQLite counts. */
const numbered = new Set(['row', 'sequence']);

/** Stores what a connection of a device reports, as the broker does. */
export function notePresence(at: { directory: string }, deviceId: string, presence: object): Promise<void> {
  const names = Object.keys(presence).map((name) => `"${name}"`);
  const statement = `INSERT INTO "devicePresence" ("row", "account", ${names})
    SELECT "row", CASE WHEN "deleted" IS NULL THEN substr("accountId", 27) END, ${names.map(() => '?')}
    FROM "devices" WHERE "id" = ?
    ON CONFLICT ("row") DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`)}`;
  return changeStored(at, statement, [...Object.values(presence), deviceId]);
}

/** What `work` gives while a method of the registry fails. */
export async function whileRegistryFails<R>(
  { server }: Service,
  method: 'session' | 'transaction' | 'hasCertificates',
  error: Error,
  work: () => Promise<R>,
): Promise<R> {
  const { registry } = server.ctx;
  registry[method] = () => {
    throw error;
  };
  return work().finally(() => {
    delete (registry as Partial<typeof registry>)[method];
  });
}

/** What `work` gives while answers are not kept, as if the process ended after the commit. */
export async function losingAnswers<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const { query } = server.ctx.registry;
  const { updateTable } = query;
  query.updateTable = ((table: string) => {
    if (table === 'idempotentAnswers') throw new Error('crash');
    return Reflect.apply(updateTable, query, [table]);
  }) as unknown as typeof updateTable;
  return work().finally(() => {
    query.updateTable = updateTable;
  });
}

/** What `work` gives while an audit record of this event, or of any, cannot be written. */
export async function whileRecordFails<R>({ server }: Service, work: () => Promise<R>, event?: string): Promise<R> {
  const { audit } = server.ctx;
  const { record } = audit;
  audit.record = async (db, entry) => {
    if (event === undefined || entry.event === event) throw new Error('no record today');
    await record.call(audit, db, entry);
  };
  return work().finally(() => {
    audit.record = record;
  });
}

/** Notes an entry of the audit record while a transaction is under way, and lets its write begin before that ends. */
export async function noteWithin({ server, accountId }: Service, details: Record<string, string>): Promise<void> {
  const { registry, audit } = server.ctx;
  await registry.transaction(async (tx) => {
    audit.addSoon({ event: 'login', outcome: 'failure', accountId, details });
    await tx.selectFrom('accounts').select('id').execute();
  });
}

/** Ends what waits for events of devices, again and again while `work` lasts, as the end of the service does. */
export async function whileWatchesEnd<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const ending = setInterval(() => server.ctx.streams.endWatches(), 10);
  return work().finally(() => clearInterval(ending));
}

/** Takes all places of long answers: how many others wait for one, and the end of it. */
export async function takeLongAnswers({ server, accountId }: Service) {
  const { longAnswers, config } = server.ctx;
  const lane = { accountId, callerId: 'deaf readers' };
  const places = Array.from({ length: config.limits.longAnswers }, () => longAnswers.enter(lane, 1));
  const leaves = await Promise.all(places);
  return {
    waiting: () => longAnswers.waiting,
    leave: () => {
      for (const leave of leaves) leave();
    },
  };
}

/** Long reads of the registry that wait for a thread. */
export const readsWaiting = ({ server }: Service): number => server.ctx.readers.waiting;

/** Holds what the threads of long reads do for an account until the answer is called. */
export function holdReads(t: Test, { server, accountId }: Service): () => void {
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const { readers } = server.ctx;
  const ofAccount = new WeakSet<readonly unknown[]>();
  const noting =
    (readAll: typeof readers.readAll): typeof readAll =>
    (lane, queries) => {
      if (lane.accountId === accountId) for (const { parameters } of queries) ofAccount.add(parameters);
      return readAll(lane, queries);
    };
  const { ask } = AskedThread.prototype;
  const restores = [
    replace(readers, 'readAll', noting),
    () => {
      AskedThread.prototype.ask = ask;
    },
  ];
  AskedThread.prototype.ask = async function waited(this: typeof AskedThread.prototype, question) {
    if (ofAccount.has(question.parameters)) await gate;
    return ask.call(this, question);
  };
  const release = () => {
    for (const restore of restores) restore();
    open();
  };
  t.teardown(release);
  return release;
}

/** How many rows the threads of long reads have given to the event loop until now. */
export function countReadRows(t: Test, { server }: Service): () => number {
  let rows = 0;
  const counting = (readAll: typeof server.ctx.readers.readAll) =>
    (async (...asked) => {
      const found = await readAll(...asked);
      rows += found.reduce((sum, one) => sum + one.length, 0);
      return found;
    }) as typeof readAll;
  t.teardown(replace(server.ctx.readers, 'readAll', counting));
  return () => rows;
}

/** Hashes of passwords that wait for their turn. */
export const hashesWaiting = ({ server }: Service): number => server.ctx.passwords.waiting;

/** Makes the last commit of the registry a long time ago; whether there has been one since. */
export function forgetLastCommit({ server }: Service): () => boolean {
  const { commits } = server.ctx.registry.writer;
  commits.succeededAt = Number.NEGATIVE_INFINITY;
  return () => commits.succeededAt > Number.NEGATIVE_INFINITY;
}

/** Stores points as they are: more than a payload holds, and those that no form of a payload can say. */
export function storePoints(
  { server, accountId }: Service,
  of: { deviceId: string; channelTemplateId: string },
  points: Point[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    server.ctx.messages.append({ accountId, ...of }, points, (error) => (error ? reject(error) : resolve()));
  });
}

/** Makes a message that a bridge could not deliver. */
export async function leaveDeadLetter(
  { server, accountId }: Service,
  bridgeId: string,
  text: string,
  more: Partial<OutboxMessage> = {},
): Promise<void> {
  const { messages } = server.ctx;
  const write = (change: OutboxChange) =>
    new Promise<void>((resolve, reject) => {
      messages.recordOutbox([change], (error) => (error ? reject(error) : resolve()));
    });
  const ids = { id: randomUUID(), deviceId: randomUUID(), deviceTemplateId: randomUUID(), organizationId: null };
  const message = {
    ...ids,
    channel: text,
    qos: 1,
    time: 0,
    payload: Buffer.from(text),
    properties: null,
    expires: null,
    ...more,
  };
  await write({ kind: 'add', accountId, bridgeIds: [bridgeId], message });
  const sequences = messages.outbox.places(bridgeId, 'pending', 0, 1).map(({ sequence }) => sequence);
  await write({ kind: 'move', from: 'pending', to: 'dead', sequences, time: Date.now(), reason: text });
}

/** What `work` gives while nothing that devices have said can be deleted. */
export async function whileDevicesStay<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const { messages } = server.ctx;
  const original = messages.deleteDevice;
  messages.deleteDevice = () => Promise.reject(new Error('of the test'));
  return work().finally(() => {
    messages.deleteDevice = original;
  });
}

/** What `work` gives while the disk is full for what `isFull` says. A request gives its account, and the bytes that it brings if it says so. */
export async function whileDiskIsFull<R>(
  { server }: Service,
  isFull: (accountId: string, bytes?: number) => boolean,
  work: () => Promise<R>,
): Promise<R> {
  const { keeping } = server.ctx;
  const refusal = (accountId: string, bytes?: number) => (isFull(accountId, bytes) ? 'The disk is full.' : undefined);
  const faulty = Object.defineProperty(keeping, 'refusal', { configurable: true, value: refusal });
  return work().finally(() => Reflect.deleteProperty(faulty, 'refusal'));
}

/** How many sockets of MQTT are open in this very turn of the event loop, which /metrics tells only in a later one. */
export const socketsOf = ({ server }: Service): number => server.ctx.broker.gauges.sockets;

/** The stored forms that earlier versions gave to a code of an association. */
export async function formerHashes({ server, accountId }: Service, code: string): Promise<string[]> {
  const { secrets, sealing } = server.ctx;
  const keyed = sealing.digest('associationCode', `${accountId}/${code}`);
  const hashes: string[] = [];
  for await (const hash of secrets.hashCodeFormerly(accountId, keyed, code)) hashes.push(hash);
  return hashes;
}

/** What `work` gives while nobody can read whether a session is open. */
export async function whileSessionsFail<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const { sessions } = server.ctx;
  const isOpen = sessions.isOpen.bind(sessions);
  sessions.isOpen = () => {
    throw new Error('disk I/O error');
  };
  return work().finally(() => {
    sessions.isOpen = isOpen;
  });
}

/** Resolves when so many more requests have begun to wait for events of this device. */
export function watchesBegun({ server }: Service, deviceId: string, count: number): Promise<void> {
  let left = count;
  const begun = new Promise<void>((resolve) => {
    const restore = replace(server.ctx.streams, 'watchDevice', (watchDevice) => (caller, id, expires) => {
      if (id === deviceId) left -= 1;
      if (left === 0) {
        restore();
        resolve();
      }
      return watchDevice(caller, id, expires);
    });
  });
  return soon(`${count} requests that wait for events of ${deviceId}`, begun, () => `${left} are missing`);
}

/** What the service tells of a job while `work` is done: how much of it was done each time, also between two looks of a client. */
export async function progressOf({ server }: Service, work: () => Promise<{ id: string }>): Promise<number[]> {
  const { jobs } = server.ctx;
  const { changed } = jobs;
  const told: Array<{ id: string; done: number }> = [];
  jobs.changed = (job) => {
    told.push({ id: job.id, done: job.done });
    changed.call(jobs, job);
  };
  const { id } = await work().finally(() => {
    jobs.changed = changed;
  });
  return told.flatMap((one) => (one.id === id ? [one.done] : []));
}

/** Clears the rows of a job, as the sweep does that found it before it was retried. */
export const clearRowsOf = ({ server }: Service, jobId: string): Promise<unknown> =>
  clearRows(server.ctx, jobId, () => false);

/** Empties the write-ahead log of the registry, as after each confirmed job: whether nobody held it. */
export const emptyLog = ({ server }: Service): boolean => server.ctx.registry.emptyLog();

/** Makes the writers of the registry wait for no other program: in the thread of the service, and in the one for long transactions. */
export async function makeImpatient({ server }: Service, writer: 'transaction' | 'longTransaction'): Promise<void> {
  await server.ctx.registry[writer]((tx) => rowsOf(tx, 'PRAGMA busy_timeout = 0', []));
}

/** The rows of a job that are worked on together, after a row. */
export const nextShare = ({ server }: Service, jobId: string, after: number) =>
  pendingRows(server.ctx.registry.query, jobId, after, 500);

// In front of what the service does: until the test ends, or the answer is called.

/** Is given each message with points instead of the store: `store` stores them, or fails. */
export function interceptPoints(
  t: Test,
  { server }: Service,
  take: (store: (failure?: Error) => void, points: readonly Point[]) => void,
): () => void {
  const restore = replace(server.ctx.messages, 'append', (append) => (key, points, done) => {
    take((failure) => (failure ? setImmediate(done, failure) : append(key, points, done)), points);
  });
  t.teardown(restore);
  return restore;
}

/** The same of the steps in which what is kept beside the points of a long message is written. */
export function interceptSteps(
  t: Test,
  { server }: Service,
  take: (write: () => void, points: readonly Point[], accountId: string) => void,
): () => void {
  const restore = replace(server.ctx.messages, 'prepare', (prepare) => (key, points) => {
    return new Promise((resolve) => take(() => resolve(prepare(key, points)), points, key.accountId));
  });
  t.teardown(restore);
  return restore;
}

/** The same of log entries, but not of those that the service writes itself: they come at times of their own. */
export function interceptLogs(t: Test, { server }: Service, take: (store: () => void) => void): () => void {
  const restore = replace(
    server.ctx.messages,
    'appendLog',
    (append) => (entry, done) => (entry.byService ? append(entry, done) : take(() => append(entry, done))),
  );
  t.teardown(restore);
  return restore;
}

/** The same of changes of stored sessions and retained messages, by their kinds. */
export function interceptSessions(
  t: Test,
  { server }: Service,
  take: (write: (failure?: Error) => void, kinds: string[]) => void,
): () => void {
  const restore = replace(server.ctx.messages, 'record', (record) => (changes, done) => {
    const kinds = changes.map(({ kind }) => kind);
    take((failure) => (failure ? setImmediate(done, failure) : record(changes, done)), kinds);
  });
  t.teardown(restore);
  return restore;
}

/** Is given each check of the secret of an entity. */
export function interceptChecks(
  t: Test,
  { server }: Service,
  check: (verify: () => Promise<boolean>) => Promise<boolean>,
): () => void {
  const restore = replace(
    server.ctx.secrets,
    'verify',
    (verify) =>
      (...asked) =>
        check(() => verify(...asked)),
  );
  t.teardown(restore);
  return restore;
}

/** Is given each question for retained topics, and answers in the place of the store. */
export function interceptSearches(
  t: Test,
  { server }: Service,
  answer: (search: MqttRows['retainedTopics'], ...asked: Parameters<MqttRows['retainedTopics']>) => string[],
): void {
  const { mqtt } = server.ctx.messages;
  t.teardown(
    replace(
      mqtt,
      'retainedTopics',
      (search) =>
        (...asked) =>
          answer(search, ...asked),
    ),
  );
}

// How often the service does what no answer tells.

/** Payloads whose points began to be read since, and those of which it has ended. */
export function countPayloadReads(t: Test, { server }: Service): { begun(): number; ended(): number } {
  let [begun, ended] = [0, 0];
  const by =
    (read: typeof server.ctx.payloads.read): typeof read =>
    (...asked) => {
      begun += 1;
      const reading = read(...asked);
      const end = () => {
        ended += 1;
      };
      void Promise.resolve(reading).then(end, end);
      return reading;
    };
  t.teardown(replace(server.ctx.payloads, 'read', by));
  return { begun: () => begun, ended: () => ended };
}

/** Messages in queues of stored sessions whose topics have been looked at since. */
export function countQueueLooks(t: Test, { server }: Service): () => number {
  let count = 0;
  t.teardown(
    replace(server.ctx.messages.mqtt, 'topicOf', (topicOf) => (id) => {
      count += 1;
      return topicOf(id);
    }),
  );
  return () => count;
}

/** Pages of a series that have been read since. */
export function countPages(t: Test, { server }: Service): () => number {
  let count = 0;
  t.teardown(
    replace(server.ctx.messages.series, 'page', (page) => (...asked) => {
      count += 1;
      return page(...asked);
    }),
  );
  return () => count;
}

/** Runs when a request is about to read the second part of a page of the log. */
export function beforeLogPart(t: Test, service: Service, request: string, work: () => Promise<unknown>): void {
  beforeCall(t, service, request, service.server.ctx.messages.logs, 'more', work);
}

/** How many entries were in each part of a page of the log that has been read since. */
export function logParts(t: Test, { server }: Service): number[] {
  const lengths: number[] = [];
  t.teardown(
    replace(server.ctx.messages.logs, 'more', (more) => async (places) => {
      const part = await more(places);
      lengths.push(part.entries.length);
      return part;
    }),
  );
  return lengths;
}

/** How many dead letters each look into the outbox has read since. */
export function deadLetterLooks(t: Test, { server }: Service): number[] {
  const lengths: number[] = [];
  t.teardown(
    replace(server.ctx.messages.outbox, 'dead', (dead) => (...asked) => {
      const rows = dead(...asked);
      lengths.push(rows.length);
      return rows;
    }),
  );
  return lengths;
}

/** Whose transactions of the registry have begun or waited since. */
export function lanesOfWrites(t: Test, { server }: Service): Array<Lane | undefined> {
  const lanes: Array<Lane | undefined> = [];
  const writer = server.ctx.registry.writer as unknown as { laneNow(): Lane | undefined };
  t.teardown(
    replace(writer, 'laneNow', (laneNow) => () => {
      const lane = laneNow();
      lanes.push(lane);
      return lane;
    }),
  );
  return lanes;
}

/** Holds every write of the registry until the answer is called. */
export async function holdWrites({ server }: Service): Promise<() => void> {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await new Promise<void>((begun) => {
    void server.ctx.registry.transaction(async () => {
      begun();
      await released;
    });
  });
  return release;
}

/** What `work` gives while nobody can say whether a right is there, or where a device is. */
export function whileAccessFails<R>(
  { server }: Service,
  question: 'may' | 'mayPublish' | 'mayHear' | 'placement',
  work: () => Promise<R>,
): Promise<R> {
  const restore = replace(server.ctx.access, question, () => () => {
    throw new Error('a fault');
  });
  return work().finally(restore);
}

/** What `work` gives while a setting of the broker cannot be read, which is asked for at each CONNECT. */
export function whileSettingFails<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const { mqtt } = server.ctx.config;
  const { maxKeepaliveSeconds } = mqtt;
  const get = () => {
    throw new Error('a fault');
  };
  Object.defineProperty(mqtt, 'maxKeepaliveSeconds', { configurable: true, get });
  return work().finally(() => Object.defineProperty(mqtt, 'maxKeepaliveSeconds', { value: maxKeepaliveSeconds }));
}

/** What `work` gives while a secret has ended when it is looked at once more than so often after its proof; how often it was. */
export async function whileSecretEnds(
  { server }: Service,
  looksBefore: number,
  work: () => Promise<unknown>,
): Promise<number> {
  const { access, registry } = server.ctx;
  let looks = -1;
  const restores = [
    // Asked once the secret has been proven; from then on each look at the credential counts.
    replace(access, 'may', (may) => (...asked) => {
      if (asked[0].kind === 'device' && asked[1] === 'subscribe' && looks < 0) looks = 0;
      return may(...asked);
    }),
    replace(registry, 'credential', (credential) => (id) => {
      const row = credential(id);
      if (looks >= 0) looks += 1;
      return row && looks > looksBefore ? { ...row, generation: row.generation + 1 } : row;
    }),
  ];
  await work().finally(() => {
    for (const restore of restores) restore();
  });
  return looks;
}

/** What `work` gives while there is no room to hash a password. */
export function whileHashingIsFull<R>({ server }: Service, work: () => Promise<R>): Promise<R> {
  const restore = replace(server.ctx.passwords, 'verify', () => () => Promise.reject(new PlatformError('tooMany')));
  return work().finally(restore);
}

/** What `work` gives while the outbox of bridges cannot be read. It is told how often that was tried. */
export function whileOutboxFails<R>({ server }: Service, work: (failures: () => number) => Promise<R>): Promise<R> {
  let failures = 0;
  const restore = replace(server.ctx.messages.outbox, 'pending', () => () => {
    failures += 1;
    throw new Error('disk I/O error');
  });
  return work(() => failures).finally(restore);
}

/** The same while the wills that wait cannot be read. */
export function whileWillsFail<R>({ server }: Service, work: (failures: () => number) => Promise<R>): Promise<R> {
  let failures = 0;
  const restore = replace(server.ctx.messages.mqtt, 'will', () => () => {
    failures += 1;
    throw new Error('disk I/O error');
  });
  return work(() => failures).finally(restore);
}

/** What `work` gives while the account is on its way to another cell. */
export async function whileOnItsWay<R>({ server, accountId }: Service, work: () => Promise<R>): Promise<R> {
  const { gate } = server.ctx;
  gate.holdAccounts([accountId]);
  return work().finally(() => gate.releaseAccounts([accountId]));
}

/** Whether accounts are on their way to or from this cell, so that it removes nothing old. */
export const isMoveUnderWay = ({ server }: Service): boolean => server.ctx.gate.isUnderWay;

/** Ends what makes room by itself: what is read then is what its last step has left. */
export const stopEviction = ({ server }: Service): Promise<void> => server.ctx.keeping.stop();

/** Writes how far downloads of the first offers of rollouts have come, as once a second: the rollouts that were written. */
export async function writeProgress(
  { server, accountId }: Service,
  rolloutId: string,
  bytesOf: Record<string, number>,
): Promise<string[]> {
  const written: string[] = [];
  const progress = new Progress(server.ctx, (ids) => written.push(...ids));
  for (const [deviceId, bytes] of Object.entries(bytesOf))
    progress.received({ accountId, deviceId, rolloutId, offer: 1 }, bytes);
  await progress.close();
  return written;
}

/** Looks at what the accounts take on the disk, as once a second: which threads have summed it. */
export async function weighAccounts({ server }: Service): Promise<string[]> {
  const { keeping, readers, messages } = server.ctx;
  // The service looks by itself meanwhile.
  const threads = new Set<string>();
  const restore = replace(readers, 'read', (read) => (...asked) => {
    threads.add('registry');
    return read(...asked);
  });
  await messages.proveWritable();
  const looking = keeping.share.measureAccounts(null);
  if (messages.reading > 0) threads.add('messages');
  await looking.finally(restore);
  return [...threads].sort();
}

/** How many levels and holders the trees of topic filters have been looked at for such topics since the last question. */
export function countLooks(t: Test, isCounted: (topic: string) => boolean): () => number {
  const { match } = FilterTree.prototype;
  const { get } = Map.prototype;
  let looks = 0;
  FilterTree.prototype.match = function counted<H>(this: FilterTree<H>, topic: string) {
    if (!isCounted(topic)) return (match as FilterTree<H>['match']).call(this, topic);
    Map.prototype.get = function look(this: Map<unknown, unknown>, key: unknown) {
      looks += 1;
      return get.call(this, key);
    };
    try {
      const found = (match as FilterTree<H>['match']).call(this, topic);
      looks += found.size;
      return found;
    } finally {
      Map.prototype.get = get;
    }
  };
  t.teardown(() => {
    FilterTree.prototype.match = match;
  });
  return () => {
    const seen = looks;
    looks = 0;
    return seen;
  };
}

/** How often each connection that others wait for no longer has been looked at since. */
export function countSlowLooks(t: Test): () => number[] {
  const looks = new Map<Backlog, number>();
  const { wait } = Backlog.prototype;
  Backlog.prototype.wait = function counted(this: Backlog, done) {
    // What went on after a look waits for the next one.
    if (this.isSlow) looks.set(this, (looks.get(this) ?? 0) + 1);
    wait.call(this, done);
  };
  t.teardown(() => {
    Backlog.prototype.wait = wait;
  });
  return () => [...looks.values()];
}
