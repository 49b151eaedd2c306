/** Counts messages and refusals of each account in memory, and writes a row for five minutes when they are over. */
import { sql } from 'kysely';
import type { Tx } from '../db/registry/index.ts';
import { type Entry, Gathered } from '../src/core/limits/gathered.ts';
import { type Activity as Counted, type RunningActivity, stepOf } from '../src/ports/activity.ts';
import type { BrokerBase } from '../src/ports/broker-ports.ts';

/** `messagesPerSecond` is the mean of so many parts, of so many seconds each, and of the running part: of a minute. */
const partsOfRate = 12;
const secondsOfPart = 5;
/** Accounts of one transaction, and milliseconds until what could not be written is tried again. */
const rowsPerWrite = 500;
const retryDelay = 2000;

/** The running five minutes of an account. */
interface Running {
  messages: number;
  refusals: number;
  causes: Map<string, number>;
  /** Messages of the running part of the last minute, and of the parts before it, oldest first. */
  recent: number;
  parts: number[];
}

/** Five minutes that are over. */
interface Ended extends Counted {
  time: number;
  connected: number;
}

type Services = Pick<BrokerBase, 'clock' | 'gate' | 'log' | 'registry'>;

export class Activity {
  readonly #services: Services;
  readonly #running = new Map<string, Running>();
  readonly #ended = new Gathered<Ended>({
    ...{ interval: 0, atOnce: rowsPerWrite },
    merge: (before, later) => ({ ...sum(before, later), time: later.time, connected: later.connected }),
    write: (entries) => this.#write(entries),
  });
  #time: number;
  #seconds = 0;
  #ending: Promise<void> = Promise.resolve();

  constructor(services: Services) {
    this.#services = services;
    this.#time = stepOf(services.clock.now());
  }

  /** A message was accepted. */
  message(accountId: string): void {
    const running = this.#of(accountId);
    running.messages += 1;
    running.recent += 1;
  }

  refusal(accountId: string, cause: string): void {
    const running = this.#of(accountId);
    running.refusals += 1;
    running.causes.set(cause, (running.causes.get(cause) ?? 0) + 1);
  }

  /** What an account has done that is not in the registry: what is being written there may count twice for a moment. */
  running(accountId: string): RunningActivity {
    const running = this.#running.get(accountId);
    const { messages = 0, refusals = 0, causes = [] } = running ?? {};
    // In the first minute of the process it is the mean of the time so far.
    const parts = Math.min(partsOfRate, Math.floor(this.#seconds / secondsOfPart));
    const seconds = Math.max(1, parts * secondsOfPart + (this.#seconds % secondsOfPart));
    const messagesPerSecond = running ? ofMinute(running) / seconds : 0;
    return { messages, refusals, causes: Object.fromEntries(causes), messagesPerSecond };
  }

  /** To be called every second. */
  tick(): void {
    this.#seconds += 1;
    if (this.#seconds % secondsOfPart === 0)
      for (const running of this.#running.values()) {
        running.parts.push(running.recent);
        if (running.parts.length > partsOfRate) running.parts.shift();
        running.recent = 0;
      }
    const time = stepOf(this.#services.clock.now());
    if (time === this.#time) return;
    this.#ending = this.#end(this.#time, (accountId) => !this.#services.gate.isAway(accountId));
    this.#time = time;
  }

  /** Writes everything that was counted, of accounts that are away too. */
  async flush(): Promise<void> {
    await this.#ending;
    await this.#end(this.#time, () => true);
    await this.#ended.flush();
  }

  /** Another server counts for these accounts. */
  forget(accountIds: ReadonlySet<string>): void {
    for (const accountId of accountIds) this.#running.delete(accountId);
  }

  #of(accountId: string): Running {
    const known = this.#running.get(accountId);
    if (known) return known;
    const running: Running = { messages: 0, refusals: 0, causes: new Map(), recent: 0, parts: [] };
    this.#running.set(accountId, running);
    return running;
  }

  /** Never rejects: without connected devices the other counts are worth a row, too. */
  async #end(time: number, isOurs: (accountId: string) => boolean): Promise<void> {
    const ended = new Map<string, Counted>();
    for (const [accountId, running] of this.#running)
      if (isOurs(accountId)) ended.set(accountId, this.#take(accountId, running));
    const connected = await this.#connected();
    for (const accountId of new Set([...ended.keys(), ...connected.keys()])) {
      if (!isOurs(accountId)) continue;
      const counted = ended.get(accountId) ?? none;
      const now = connected.get(accountId) ?? 0;
      if (now + counted.messages + counted.refusals > 0)
        this.#ended.putValue(accountId, String(time), { ...counted, time, connected: now });
    }
  }

  /** The counts of an account, which begin anew. */
  #take(accountId: string, running: Running): Counted {
    const { messages, refusals, causes } = running;
    if (messages + refusals === 0 && ofMinute(running) === 0) this.#running.delete(accountId);
    Object.assign(running, { messages: 0, refusals: 0, causes: new Map() });
    return { messages, refusals, causes: Object.fromEntries(causes) };
  }

  async #connected(): Promise<Map<string, number>> {
    const { log, registry } = this.#services;
    try {
      const rows = await registry.query
        .selectFrom('deviceCounts')
        .select((eb) => ['accountId', eb.fn.sum<number>('count').as('count')])
        .where('connected', '=', 1)
        .groupBy('accountId')
        .execute();
      return new Map(rows.map(({ accountId, count }) => [accountId, count]));
    } catch (error) {
      log.error({ err: error }, 'connected devices could not be counted');
      return new Map();
    }
  }

  async #write(entries: ReadonlyArray<Entry<Ended>>): Promise<void> {
    const { log, registry } = this.#services;
    try {
      await registry.transaction((tx) => store(tx, entries));
    } catch (error) {
      log.error({ err: error, accounts: entries.length }, 'the activity of accounts could not be written');
      this.#ended.putBack(entries, retryDelay);
    }
  }
}

/** Messages of the last minute. */
function ofMinute({ recent, parts }: Running): number {
  return parts.reduce((sum, messages) => sum + messages, recent);
}

const none: Counted = { messages: 0, refusals: 0, causes: {} };

/** Adds to a row that is there: the process has been started again within the five minutes. */
async function store(tx: Tx, entries: ReadonlyArray<Entry<Ended>>): Promise<void> {
  for (const { accountId, value } of entries) {
    const { time, connected } = value;
    const where = sql`"accountId" = ${accountId} and "time" = ${time}`;
    const { rows } = await sql<{ messages: number; refusals: number; causes: string }>`
      select "messages", "refusals", "causes" from "activity" where ${where}`.execute(tx);
    const [before] = rows;
    const { messages, refusals, causes } = before
      ? sum({ ...before, causes: JSON.parse(before.causes) as Counted['causes'] }, value)
      : value;
    const row = { connected, messages, refusals, causes: JSON.stringify(causes) };
    await tx
      .insertInto('activity')
      .values({ accountId, time, ...row })
      .onConflict((conflict) => conflict.doUpdateSet(row))
      .execute();
  }
}

function sum(one: Counted, other: Counted): Counted {
  const causes = { ...one.causes };
  for (const [cause, count] of Object.entries(other.causes)) causes[cause] = (causes[cause] ?? 0) + count;
  return { messages: one.messages + other.messages, refusals: one.refusals + other.refusals, causes };
}
