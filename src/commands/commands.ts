/**
 * Commands on their way: each is on disk before anything happens, goes to its device in order, again at each connection
 * until it is answered, and ends by its own time if by nothing else.
 */
import type { Logger } from 'pino';
import type { Registry, Tx } from '../../db/registry/index.ts';
import { parseDate } from '../../db/sqlite/dates.ts';
import type { AccountGate } from '../core/account-gate.ts';
import type { Caller } from '../core/caller.ts';
import { type Clock, timestamp } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { newId } from '../core/ids.ts';
import { laneOf } from '../core/limits/lanes.ts';
import { openCommands } from '../core/limits/use.ts';
import { onBehalfOf } from '../core/log.ts';
import { queueRun } from '../core/scheduler/runs.ts';
import { Watchers } from '../core/watchers.ts';
import type { Schemas } from '../entity/schemas/schemas.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { DeviceAddress, Downlink } from '../ports/downlink.ts';
import { type Command, type CommandBody, isOpen, isOpenCommand, maxBytes } from './command.ts';
import type { Reply } from './replies.ts';
import { bytesOf, demandFewer, makeRoom, removeOldest } from './room.ts';

const day = 24 * 60 * 60_000;
const maxWait = 30 * day;
/** Commands that end in one transaction. */
const atOnce = 100;
/** Milliseconds between two looks for what is due. */
const lookEvery = 1000;

type Services = {
  registry: Registry;
  clock: Clock;
  /** By which a command is late. */
  ages: Clock;
  log: Logger;
  config: Config;
  audit: Audit;
  schemas: Schemas;
  gate: AccountGate;
};

/** Something may be sent; the device hears `_commands`; its last connection has ended. */
interface News {
  send?: true;
  listens?: true;
  gone?: true;
}

/** The row of a job that sends a command. */
export interface RowOfJob {
  jobId: string;
  row: number;
}

export class Commands {
  readonly watchers = new Watchers();
  /** Tells, by the id of a job, that a command of it has ended. */
  readonly endsOfJobs = new Watchers();
  readonly #services: Services;
  readonly #downlink: Pick<Downlink, 'send' | 'listens'>;
  /** Work on the commands of a device, one piece after the other. */
  readonly #turns = new Map<string, Promise<void>>();
  /** What the next piece of work on the commands of a device is about. */
  readonly #waiting = new Map<string, News>();
  #timer: NodeJS.Timeout | undefined;
  #looking = Promise.resolve();
  #stopped = false;

  constructor(services: Services, downlink: Pick<Downlink, 'send' | 'listens'>) {
    this.#services = services;
    this.#downlink = downlink;
  }

  /** Commands sent before the process ended are queued again. Call it before there are connections. */
  async requeueSent(): Promise<void> {
    const { away } = this.#services.gate;
    await this.#requeueAll((sent) => sent.where('accountId', 'not in', away));
    this.#timer = setInterval(() => {
      this.#looking = this.#looking.then(() => this.#services.gate.work((away) => this.#endDue(away)));
    }, lookEvery);
    this.#timer.unref();
  }

  /** The same for accounts that are handled here from now on. */
  actFor(accounts: readonly string[]): Promise<void> {
    return this.#requeueAll((sent) => sent.where('accountId', 'in', accounts));
  }

  async #requeueAll(chosen: Chosen): Promise<void> {
    for (;;) {
      const batch = await this.#services.registry.transaction((tx) => requeue(tx, chosen));
      if (batch.length < atOnce) return;
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#looking;
    await Promise.all(this.#turns.values());
  }

  /**
   * A command is as the product of its device declares it; one that it does not declare is anything. Call it before the transaction.
   * @throws PlatformError 400/106 with the path of what does not fit.
   */
  async demandDeclared(caller: Caller, deviceTemplateId: string, { name, payload = null }: CommandBody): Promise<void> {
    const { registry, schemas } = this.#services;
    const { commandsOnly, declared, parameters } = registry.declaredCommand(deviceTemplateId, name) ?? {};
    if (commandsOnly === 1 && !declared) throw invalid('name', 'is not a command that the device template declares');
    if (!parameters) return;
    const value = JSON.stringify(payload);
    demandShort(value);
    await schemas.demand(laneOf(caller), { schema: parameters, value, place: 'payload' });
  }

  /** Whether a command could be sent to any device now. @throws PlatformError 400/106 with the path of what is wrong, after `at`. */
  demandSendable({ payload = null, expiresAt }: CommandBody, at = ''): void {
    demandShort(JSON.stringify(payload), at);
    readExpiry(expiresAt, this.#services.ages.now(), at);
  }

  /**
   * Stores a command, one of a row's, in a transaction of the caller's; `added` is to follow.
   * @throws PlatformError 400/106, 429/-199.
   */
  async add(
    tx: Tx,
    caller: Caller,
    { deviceId, accountId }: DeviceAddress,
    body: CommandBody,
    of?: RowOfJob,
  ): Promise<Command> {
    const { ages, clock, config, audit } = this.#services;
    const payload = body.payload === undefined ? null : JSON.stringify(body.payload);
    if (payload !== null) demandShort(payload);
    const expires = readExpiry(body.expiresAt, ages.now());
    const open = tx.selectFrom('commands').select((eb) => eb.fn.countAll<number>().as('count'));
    const { count } = await open.where('deviceId', '=', deviceId).where(isOpenCommand).executeTakeFirstOrThrow();
    demandFewer('SLIPWAY_COMMANDS_PER_DEVICE', config.limits.deviceCommands, Number(count));
    demandFewer('SLIPWAY_COMMANDS_PER_ACCOUNT', config.limits.commands, await openCommands(tx, accountId));
    await makeRoom(tx, config.limits, accountId, bytesOf(body.name, payload));
    const row = {
      id: newId(accountId),
      accountId,
      deviceId,
      created: timestamp(clock),
      createdById: caller.id,
      createdByKind: caller.kind,
      name: body.name,
      payload,
      parallel: body.parallel ? 1 : 0,
      timeoutSeconds: body.timeoutSeconds ?? 30,
      expiresAt: new Date(expires).toISOString(),
      state: 'queued',
      attempt: 0,
      due: expires,
      sent: null,
      accepted: null,
      finished: null,
      result: null,
      lateReply: null,
      jobId: of?.jobId ?? null,
      jobRow: of?.row ?? null,
    };
    const made = await tx.insertInto('commands').values(row).returningAll().executeTakeFirstOrThrow();
    await audit.record(tx, {
      event: 'commandCreated',
      outcome: 'success',
      accountId,
      actor: caller,
      target: { kind: 'device', id: deviceId },
      details: { commandId: row.id, deviceId, name: body.name, ...(of && { jobId: of.jobId }) },
    });
    return made;
  }

  /** Whether a command would go to the device at once. */
  isHeardBy(device: DeviceAddress): boolean {
    return this.#downlink.listens(device, '_commands');
  }

  /** To be told after the commit. */
  added(device: DeviceAddress): void {
    this.#goOn(device, { send: true });
  }

  /** The device hears `_commands`: what it has not answered goes again, with the next attempt. */
  listening(device: DeviceAddress): void {
    this.#goOn(device, { listens: true, send: true });
  }

  /** Unanswered commands wait for the next connection of the device. */
  disconnected(device: DeviceAddress): void {
    if (!this.#stopped) this.#goOn(device, { gone: true });
  }

  /** Works on the commands of a device. What waits already takes up what comes: a device may subscribe again and again. */
  #goOn(device: DeviceAddress, news: News): void {
    const { deviceId } = device;
    const waiting = this.#waiting.get(deviceId);
    if (waiting) {
      Object.assign(waiting, news);
      return;
    }
    this.#waiting.set(deviceId, news);
    this.#inTurn(device, async () => {
      this.#waiting.delete(deviceId);
      if (news.listens || (news.gone && (await this.#hasLeftSome(device)))) await this.#requeue(device);
      if (news.send) await this.#sendNext(device);
    });
  }

  /** Whether the device has gone and left commands unanswered. */
  async #hasLeftSome(device: DeviceAddress): Promise<boolean> {
    const { query } = this.#services.registry;
    const open = query.selectFrom('commands').select('id').where('deviceId', '=', device.deviceId);
    if (!(await open.where('state', '=', 'sent').where(isOpenCommand).limit(1).executeTakeFirst())) return false;
    return !this.isHeardBy(device);
  }

  async #requeue({ deviceId }: DeviceAddress): Promise<void> {
    const sent = await this.#services.registry.transaction((tx) =>
      requeue(tx, (sent) => sent.where('deviceId', '=', deviceId)),
    );
    this.watchers.tellWatchers(sent);
  }

  #inTurn({ accountId, deviceId }: DeviceAddress, work: () => Promise<void>): void {
    const { log, gate } = this.#services;
    onBehalfOf({ lane: { accountId, callerId: deviceId } }, () =>
      queueRun(this.#turns, deviceId, () => gate.workFor(accountId, work)),
    ).catch((error) => log.error({ err: error, deviceId }, 'commands could not go on'));
  }

  /** Sends what may go now: the oldest, when none is under way, and those that need not wait. */
  async #sendNext(device: DeviceAddress): Promise<void> {
    const { registry, ages, clock } = this.#services;
    if (this.#stopped || !this.isHeardBy(device)) return;
    const sent = await registry.transaction(async (tx) => {
      const rows = await openWithoutTexts(tx, device.deviceId);
      const isBusy = rows.some(({ state, parallel }) => state !== 'queued' && parallel === 0);
      const waiting = rows.filter(({ state, due }) => state === 'queued' && due > ages.now());
      const [next] = waiting.filter(({ parallel }) => parallel === 0);
      const chosen = waiting.filter((one) => one.parallel === 1 || (!isBusy && one === next));
      for (const { sequence, timeoutSeconds, attempt } of chosen) {
        const due = ages.now() + timeoutSeconds * 1000;
        const marked = { state: 'sent', attempt: attempt + 1, sent: timestamp(clock), due };
        await tx.updateTable('commands').set(marked).where('sequence', '=', sequence).execute();
      }
      return chosen;
    });
    // One after the other: together they may have 6 MiB.
    for (const { sequence, id } of sent) {
      const message = await this.#messageOf(sequence);
      if (message) await this.#downlink.send(device, '_commands', message.payload, message.expires);
      this.watchers.tellWatchers([id]);
    }
  }

  /** What the device gets; undefined for a command that has ended since. The payload goes as it is stored. */
  async #messageOf(sequence: number): Promise<{ payload: Buffer; expires: number } | undefined> {
    const command = await this.#services.registry.query
      .selectFrom('commands')
      .select(['id', 'name', 'payload', 'expiresAt', 'attempt'])
      .where('sequence', '=', sequence)
      .where('state', '=', 'sent')
      .executeTakeFirst();
    if (!command) return undefined;
    const { id, name, payload, expiresAt, attempt } = command;
    const [head, tail] = [JSON.stringify({ id, name }), JSON.stringify({ expiresAt, attempt })];
    const text = `${head.slice(0, -1)},"payload":${payload ?? 'null'},${tail.slice(1)}`;
    return { payload: Buffer.from(text), expires: Date.parse(expiresAt) };
  }

  /**
   * Takes what a device answers. A late answer is noted, and the state stays. @throws PlatformError 404/100 for a command that
   * is not the device's, 429/-199 for a result for which there is no room.
   */
  async reply(device: DeviceAddress, { id, status, result }: Reply): Promise<void> {
    const { registry, ages, clock, config } = this.#services;
    const ended = await registry.transaction(async (tx) => {
      const rows = tx
        .selectFrom('commands')
        .select(['state', 'result', 'timeoutSeconds', 'jobId'])
        .where('id', '=', id);
      const command = await rows.where('deviceId', '=', device.deviceId).executeTakeFirst();
      if (!command) throw new PlatformError('notFound', { message: 'The device has no such command.' });
      const change = tx.updateTable('commands').where('id', '=', id);
      const said = result === undefined ? null : JSON.stringify(result);
      const now = timestamp(clock);
      const isSame = command.state === status && command.result === said;
      if (!isOpen(command)) {
        if (isSame) return undefined;
        await change.set({ lateReply: JSON.stringify({ status, result: result ?? null, time: now }) }).execute();
        await removeOldest(tx, config.limits.commandBytes, device.accountId, { but: id });
        return undefined;
      }
      if (status === 'accepted') {
        if (command.state === 'accepted') return undefined;
        const due = ages.now() + command.timeoutSeconds * 1000;
        await makeRoom(tx, config.limits, device.accountId, Buffer.byteLength(said ?? ''));
        await change.set({ state: 'accepted', accepted: now, result: said, due }).execute();
        return undefined;
      }
      await change.set({ state: status, finished: now, result: said }).execute();
      await removeOldest(tx, config.limits.commandBytes, device.accountId, { but: id });
      return command;
    });
    if (ended) this.announceEnds([{ ...device, id, jobId: ended.jobId }]);
    else this.watchers.tellWatchers([id]);
  }

  /** Ends commands that have not ended; on disk when it resolves. */
  async cancel(commands: ReadonlyArray<Pick<Command, 'id'>>): Promise<void> {
    for (let from = 0; from < commands.length; from += atOnce) {
      const ids = commands.slice(from, from + atOnce).map(({ id }) => id);
      this.announceEnds(await this.#services.registry.transaction((tx) => this.cancelIn(tx, ids)));
    }
  }

  /** The same in a transaction of the caller's; `announceEnds` is to follow. */
  cancelIn(tx: Tx, ids: readonly string[]): Promise<EndedCommand[]> {
    return endCommands(tx, ids, 'cancelled', timestamp(this.#services.clock));
  }

  /** Ends what is due. Never rejects. */
  async #endDue(away: readonly string[]): Promise<void> {
    const { registry, ages, clock, log } = this.#services;
    try {
      // Read first: a transaction would ask for the lock of the file once a second, for nothing.
      const due = registry.query
        .selectFrom('commands')
        .select('id')
        .where('due', '<=', ages.now())
        .where('accountId', 'not in', away);
      if (!(await due.where(isOpenCommand).limit(1).executeTakeFirst())) return;
      for (let more = true; more && !this.#stopped; ) {
        const ended = await registry.transaction(async (tx) => {
          const late = await tx
            .selectFrom('commands')
            .select(['id', 'state'])
            .where('due', '<=', ages.now())
            .where('accountId', 'not in', away)
            .where(isOpenCommand)
            .orderBy('due')
            .limit(atOnce)
            .execute();
          more = late.length === atOnce;
          const of = (isQueued: boolean) =>
            late.flatMap(({ id, state }) => ((state === 'queued') === isQueued ? [id] : []));
          const now = timestamp(clock);
          return [
            ...(await endCommands(tx, of(true), 'expired', now)),
            ...(await endCommands(tx, of(false), 'timedOut', now)),
          ];
        });
        this.announceEnds(ended);
      }
    } catch (error) {
      log.error({ err: error }, 'commands that are due could not be ended');
    }
  }

  /** To be told after the commit that has ended them. */
  announceEnds(commands: readonly EndedCommand[]): void {
    this.watchers.tellWatchers(commands.map(({ id }) => id));
    this.endsOfJobs.tellWatchers(new Set(commands.flatMap(({ jobId }) => jobId ?? [])));
    for (const { accountId, deviceId } of commands) this.added({ accountId, deviceId });
  }
}

export type EndedCommand = Pick<Command, 'id' | 'accountId' | 'deviceId' | 'jobId'>;

/** The open commands of a device in their order, without their texts: 100 payloads may have 6 MiB. */
function openWithoutTexts(tx: Tx, deviceId: string) {
  return tx
    .selectFrom('commands')
    .select(['sequence', 'id', 'state', 'parallel', 'due', 'timeoutSeconds', 'attempt'])
    .where('deviceId', '=', deviceId)
    .where(isOpenCommand)
    .orderBy('sequence')
    .execute();
}

/** Commands that were sent and not answered. */
function sentIn(tx: Tx) {
  return tx.selectFrom('commands').select(['id', 'expiresAt']).where('state', '=', 'sent').where(isOpenCommand);
}

type Chosen = (sent: ReturnType<typeof sentIn>) => ReturnType<typeof sentIn>;

/** Queues some of the chosen ones again. */
async function requeue(tx: Tx, chosen: Chosen): Promise<string[]> {
  const rows = await chosen(sentIn(tx)).limit(atOnce).execute();
  for (const { id, expiresAt } of rows)
    await tx
      .updateTable('commands')
      .set({ state: 'queued', due: Date.parse(expiresAt) })
      .where('id', '=', id)
      .execute();
  return rows.map(({ id }) => id);
}

async function endCommands(tx: Tx, ids: readonly string[], state: string, finished: string): Promise<EndedCommand[]> {
  if (ids.length === 0) return [];
  const open = tx.updateTable('commands').set({ state, finished }).where('id', 'in', ids).where(isOpenCommand);
  return open.returning(['id', 'accountId', 'deviceId', 'jobId']).execute();
}

/** @throws PlatformError 400/106 for a payload that is too long. */
function demandShort(payload: string, at = ''): void {
  if (Buffer.byteLength(payload) > maxBytes) throw invalid(`${at}payload`, `has more than ${maxBytes} bytes of JSON`);
}

/** Milliseconds. @throws PlatformError 400/106. */
function readExpiry(given: string | undefined, now: number, at = ''): number {
  if (given === undefined) return now + day;
  const expires = parseDate(given);
  if (expires === undefined) throw invalid(`${at}expiresAt`, 'must be an ISO 8601 date');
  if (expires <= now || expires > now + maxWait) throw invalid(`${at}expiresAt`, 'must be within the next 30 days');
  return expires;
}
