/**
 * Fleets that something living uses: who has come to match and who has ceased to, as soon as a commit or the time has changed that.
 * Nothing of it is stored: after a start each fleet is read anew, and compared with those whom its users know.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type RawBuilder, sql } from 'kysely';
import type { Logger } from 'pino';
import { accountChanges, changeBits, wholeDevice } from '../../../db/registry/device-changes.ts';
import type { Change, Registry } from '../../../db/registry/index.ts';
import { deviceColumns } from '../../../db/registry/records/devices.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { slotOf } from '../../core/ids.ts';
import { defaultRoles } from '../../core/rights.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { Timers, TimerWheel } from '../../core/timer-wheel.ts';
import type { Fields } from '../../entity/fields.ts';
import { earliest, type Predicate } from '../../entity/filters/predicate.ts';
import type { FilterServices } from '../filters.ts';
import { DeviceSet } from './device-set.ts';
import { compileKeptFilters } from './filter.ts';
import { compileFleet, type Fleet } from './fleet.ts';
import { selectedDevices } from './selection.ts';
import { DeviceSubject } from './subject.ts';

/** Devices that are read, and told, together; and milliseconds until a fleet is read again that could not be. */
const pageSize = 500;
const retryAfter = 1000;

type Services = FilterServices & { registry: Registry; fields: Fields; log: Logger; wheel: TimerWheel };

/** Who uses a fleet. Both are called after the commit; what they are told may be told twice, and they must not throw. */
export interface FleetUser {
  entered(deviceIds: readonly string[]): void;
  left(deviceIds: readonly string[]): void;
  /** The devices that count as members to the user now, page by page. */
  known(): AsyncIterable<readonly string[]>;
}

/** A device has begun or ceased to match a fleet. */
export interface Membership {
  fleet: Fleet;
  device: Row<'devices'>;
  entered: boolean;
}

export interface Attached {
  /** What of the filter is unknown: it counts as missing. */
  readonly problem: string | null;
  /** Whether a device matches, as far as its changes have been looked at. */
  has(deviceId: string): boolean;
  detach(): void;
}

type Stored = Row<'devices'> & { row: number };

/** One fleet, whoever uses it. */
class Entry {
  readonly members = new DeviceSet();
  readonly users = new Set<FleetUser>();
  readonly id: string;
  fleet: Fleet | undefined;
  predicate: Predicate | undefined;
  problem: string | null = null;
  /** The changes that concern it, and those of attributes with times relative to now. */
  bits = fleets;
  relativeBits = 0;
  /** Told when it has been read. */
  readonly waiting: Array<() => void> = [];
  isRead = false;
  isReading = false;
  /** It is to be read once more; also though its filter is the same. */
  again: 'changed' | 'all' | undefined;

  constructor(id: string) {
    this.id = id;
  }
}

export class AttachedFleets {
  readonly #services: Services;
  readonly #byAccount = new Map<string, Map<string, Entry>>();
  /** The changes that concern any fleet of an account, by the account's digits in all its ids. */
  readonly #wanted = new Map<string, number>();
  /** Devices that are to be looked at, and what has changed of them. */
  readonly #pending = new Map<string, number>();
  /** Who is to be told to the users of a fleet: devices, and whether they are in it now. */
  readonly #moves = new Map<Entry, Map<string, boolean>>();
  readonly #listeners = new Set<(membership: Membership) => void>();
  readonly #end: () => void;
  readonly #devices: Timers;
  readonly #retries: Timers;
  #looking: Promise<void> | undefined;
  #isStopped = false;

  constructor(services: Services) {
    this.#services = services;
    this.#end = services.registry.listenToChanges((changes) => this.#hear(changes));
    this.#devices = services.wheel.timersOf((id) => this.#look(id, relative));
    this.#retries = services.wheel.timersOf((id) => {
      for (const entries of this.#byAccount.values()) {
        const entry = entries.get(id);
        if (entry) this.#readSoon(entry, 'all');
      }
    });
  }

  /** Calls `listener` for each membership that changes, after a fleet has been read for the first time. */
  listen(listener: (membership: Membership) => void): void {
    this.#listeners.add(listener);
  }

  /** Begins to tell `user` who matches a fleet: first the difference to whom it knows. */
  attach({ id, accountId }: Pick<Fleet, 'id' | 'accountId'>, user: FleetUser): Attached {
    const entries = this.#byAccount.get(accountId) ?? new Map<string, Entry>();
    const entry = entries.get(id) ?? new Entry(id);
    this.#byAccount.set(accountId, entries.set(id, entry));
    this.#noteWanted();
    let isDetached = false;
    const begin = () =>
      void this.#begin(entry, user, () => isDetached).catch((error) => {
        if (this.#isStopped || isDetached) return;
        this.#services.log.error({ err: error, fleetId: id }, 'who is known of a fleet could not be read');
        entry.waiting.push(begin);
        this.#retries.set(id, this.#services.clock.now() + retryAfter);
      });
    if (entry.isRead) begin();
    else entry.waiting.push(begin);
    if (!entry.isRead) this.#readSoon(entry, 'all');
    return {
      get problem() {
        return entry.problem;
      },
      has: (deviceId) => {
        const device = this.#services.registry.entity('devices', deviceId) as Stored | undefined;
        return device !== undefined && entry.members.has(device.row);
      },
      detach: () => {
        isDetached = true;
        entry.users.delete(user);
        entry.waiting.splice(0, entry.waiting.length, ...entry.waiting.filter((one) => one !== begin));
        if (entry.users.size > 0 || entry.waiting.length > 0 || entries.get(id) !== entry) return;
        entries.delete(id);
        if (entries.size === 0) this.#byAccount.delete(accountId);
        this.#noteWanted();
      },
    };
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#end();
    this.#devices.end();
    this.#retries.end();
    this.#pending.clear();
    await this.#looking;
  }

  // What has changed

  /** In the turn of a commit: changes are only noted. */
  #hear(changes: readonly Change[]): void {
    if (this.#byAccount.size === 0) return;
    for (const { key, bits } of changes) {
      if (key === '') for (const entries of this.#byAccount.values()) this.#readAll(entries, bits);
      else if (((this.#wanted.get(slotOf(key)) ?? 0) & bits) === 0) continue;
      else if (bits === fleets) for (const entries of this.#byAccount.values()) this.#readOne(entries.get(key));
      else if ((bits & accountChanges) !== 0) this.#readAll(this.#byAccount.get(key) ?? new Map(), bits);
      else this.#look(key, bits);
    }
  }

  #noteWanted(): void {
    this.#wanted.clear();
    for (const [accountId, entries] of this.#byAccount) {
      let bits = this.#wanted.get(slotOf(accountId)) ?? 0;
      for (const entry of entries.values()) bits |= entry.bits;
      this.#wanted.set(slotOf(accountId), bits);
    }
  }

  #readOne(entry: Entry | undefined): void {
    if (entry) this.#readSoon(entry, 'changed');
  }

  /** Reads again the fleets that these changes concern. */
  #readAll(entries: ReadonlyMap<string, Entry>, bits: number): void {
    for (const entry of entries.values()) if ((entry.bits & bits) !== 0) this.#readSoon(entry, 'all');
  }

  #look(deviceId: string, bits: number): void {
    if (this.#isStopped) return;
    this.#pending.set(deviceId, (this.#pending.get(deviceId) ?? 0) | bits);
    this.#looking ??= nextTurn()
      .then(() => this.#lookAtPending())
      .catch((error) => this.#services.log.error({ err: error }, 'changes of devices could not be looked at'));
  }

  async #lookAtPending(): Promise<void> {
    const longWork = new LongWork();
    longWork.beginSlice();
    let looked = 0;
    try {
      for (const [id, bits] of this.#pending) {
        this.#pending.delete(id);
        this.#decide(id, bits);
        looked += 1;
        if (looked % pageSize === 0 || this.#pending.size === 0) this.#tell();
        await longWork.giveWay();
      }
    } finally {
      this.#looking = undefined;
    }
  }

  /** Whether a device is in the fleets that a change concerns, as it is now; or in one of them alone. */
  #decide(id: string, bits: number, only?: Entry): void {
    const { registry, clock } = this.#services;
    const device = registry.entity('devices', id) as Stored | undefined;
    const entries = device && this.#byAccount.get(device.accountId);
    if (!device || !entries) return;
    const isLive = device.deleted === null;
    const subject = new DeviceSubject(this.#services, device, clock.now());
    let isTimed = (bits & relative) !== 0;
    for (const entry of only ? [only] : entries.values()) {
      if ((entry.relativeBits & bits) !== 0) isTimed = true;
      if ((entry.bits & bits) === 0 || !entry.predicate) continue;
      const isIn = isLive && entry.predicate.holds(subject);
      if (isIn === entry.members.has(device.row)) continue;
      entry.members.set(device.row, isIn);
      if (entry.isRead) this.#note(entry, device, isIn);
    }
    if (!isTimed || only) return;
    const times = [...entries.values()].map(({ predicate }) => predicate?.nextChange(subject));
    const next = isLive ? earliest(times) : undefined;
    if (next === undefined) this.#devices.cancel(id);
    else this.#devices.set(id, next);
  }

  #note(entry: Entry, device: Row<'devices'>, entered: boolean): void {
    this.#moves.set(entry, (this.#moves.get(entry) ?? new Map<string, boolean>()).set(device.id, entered));
    const { fleet } = entry;
    if (fleet) for (const listener of this.#listeners) listener({ fleet, device, entered });
  }

  #tell(): void {
    const moves = [...this.#moves];
    this.#moves.clear();
    for (const [{ users }, devices] of moves)
      for (const isIn of [false, true]) {
        const ids = [...devices].flatMap(([id, entered]) => (entered === isIn ? [id] : []));
        if (ids.length > 0) for (const user of users) isIn ? user.entered(ids) : user.left(ids);
      }
  }

  // Whole fleets

  #readSoon(entry: Entry, why: 'changed' | 'all'): void {
    if (entry.again !== 'all') entry.again = why;
    if (entry.isReading || this.#isStopped) return;
    entry.isReading = true;
    void (async () => {
      try {
        await nextTurn();
        while (entry.again && !this.#isStopped) {
          const why = entry.again;
          entry.again = undefined;
          await this.#read(entry, why);
        }
      } catch (error) {
        if (this.#isStopped) return;
        this.#services.log.error({ err: error, fleetId: entry.id }, 'an attached fleet could not be read');
        this.#retries.set(entry.id, this.#services.clock.now() + retryAfter);
      } finally {
        entry.isReading = false;
      }
    })();
  }

  /** Compiles the filter, and finds by the indexes who matches: of those who are not where they should be, each is looked at. */
  async #read(entry: Entry, why: 'changed' | 'all'): Promise<void> {
    const fleet = this.#services.registry.entity('fleets', entry.id);
    if (!fleet || fleet.deleted !== null) return;
    const isSame = entry.fleet?.filter === fleet.filter && entry.isRead;
    entry.fleet = fleet;
    if (isSame && why === 'changed') return;
    const { filter, problem, predicate } = await compileFleet(this.#services, callerOf(fleet), fleet);
    entry.predicate = predicate();
    entry.problem = problem;
    entry.bits = bitsOf(entry.predicate.names) | (problem === null ? 0 : customFields) | fleets | wholeBit;
    if (entry.predicate.relative.length > 0) entry.bits |= relative;
    entry.relativeBits = bitsOf(entry.predicate.relative.map(({ name }) => name));
    this.#noteWanted();
    const longWork = new LongWork();
    const seen = new DeviceSet();
    for await (const devices of this.#pagesOf(fleet, filter)) {
      for (const { id, row } of devices) {
        seen.set(row, true);
        if (!entry.members.has(row)) this.#decide(id, wholeDevice, entry);
        await longWork.giveWay();
      }
      this.#tell();
    }
    for (const rows of entry.members.without(seen)) {
      for (const { id } of await this.#devicesWith(
        sql`"row" in (select value from json_each(${JSON.stringify(rows)}))`,
      )) {
        this.#decide(id, wholeDevice, entry);
        await longWork.giveWay();
      }
      this.#tell();
    }
    await this.#setTimers(fleet, entry.predicate);
    entry.isRead = true;
    for (const begin of entry.waiting.splice(0)) begin();
  }

  /** Those whose membership time alone will change: what they have is after the time that is now compared with. */
  async #setTimers(fleet: Fleet, { relative: terms }: Predicate): Promise<void> {
    const texts = terms.map(({ name, given }) => `${pathOf(name)} ge ${JSON.stringify(given)}`);
    const longWork = new LongWork();
    for (const { filter } of await compileKeptFilters(this.#services, callerOf(fleet), texts))
      for await (const devices of this.#pagesOf(fleet, filter))
        for (const { id } of devices) {
          this.#decide(id, relative);
          await longWork.giveWay();
        }
    this.#tell();
  }

  async *#pagesOf(fleet: Fleet, filter: Awaited<ReturnType<typeof compileFleet>>['filter']) {
    const longWork = new LongWork();
    const query = { accountId: fleet.accountId, filter };
    for (let after: string | undefined = ''; after !== undefined && !this.#isStopped; ) {
      const cut: { after: string; limit: number } = { after, limit: pageSize };
      const ids: string[] = await selectedDevices(this.#services, callerOf(fleet), query, cut);
      yield await this.#devicesWith(sql`"id" in (select value from json_each(${JSON.stringify(ids)}))`);
      after = ids.length < pageSize ? undefined : ids.at(-1);
      await longWork.giveWay();
    }
  }

  async #devicesWith(condition: RawBuilder<unknown>): Promise<Array<{ id: string; row: number }>> {
    const found = sql<{ id: string; row: number }>`select "id", "row" from "devices" where ${condition}`;
    return (await found.execute(this.#services.registry.query)).rows;
  }

  /** Tells a user the difference between those whom it knows and those who match, and from then on each change. */
  async #begin(entry: Entry, user: FleetUser, isDetached: () => boolean): Promise<void> {
    const known = new DeviceSet();
    for await (const ids of user.known())
      for (const { row } of await this.#devicesWith(sql`"id" in (select value from json_each(${JSON.stringify(ids)}))`))
        known.set(row, true);
    if (isDetached() || this.#isStopped) return;
    const [entered, left] = [[...entry.members.without(known)], [...known.without(entry.members)]];
    entry.users.add(user);
    for (const [rows, tell] of [
      ...entered.map((rows) => [rows, user.entered.bind(user)] as const),
      ...left.map((rows) => [rows, user.left.bind(user)] as const),
    ]) {
      const devices = await this.#devicesWith(sql`"row" in (select value from json_each(${JSON.stringify(rows)}))`);
      if (isDetached()) return;
      tell(devices.map(({ id }) => id));
      await nextTurn();
    }
  }
}

/** Fleets hold devices as the account sees them. */
function callerOf({ accountId }: Pick<Fleet, 'accountId'>): Caller {
  return { kind: 'admin', id: accountId, accountId, role: defaultRoles.account };
}

const bitOf = (kind: string) => changeBits.get(kind) ?? 0;
const [customFields, fleets] = [bitOf('customFields'), bitOf('fleets')];
/** The bit of a column that changes only with the whole device. */
const wholeBit = bitOf('deviceTemplateId');
/** Stands for the time alone: a bit that no change has. */
const relative = 1 << 30;

const columns = new Map(Object.keys(deviceColumns).map((name) => [name.toLowerCase(), name]));
const others: Record<string, string> = {
  lastmodified: 'lastModified',
  'certificate.expires': 'certificate',
  'firmware.state': 'delivery',
  enrollmentgroupid: 'enrollment',
};

/** The changes that may concern attributes. */
export function bitsOf(names: Iterable<string>): number {
  let bits = 0;
  for (const name of names) {
    const [first = '', rest] = name.split('.', 2);
    if (name === 'within') bits |= bitOf('organizationId') | bitOf('organizations');
    else if (bitOf(others[name] ?? columns.get(name) ?? '') !== 0)
      bits |= bitOf(others[name] ?? columns.get(name) ?? '');
    else if (name === 'id' || name === 'created') bits |= wholeBit;
    else bits |= bitOf('fields') | (rest === undefined ? 0 : customFields);
    if (first === 'organization') bits |= bitOf('organizationId') | bitOf('organizations');
    if (first === 'template') bits |= bitOf('deviceTemplates');
  }
  return bits;
}

/** A name as a filter has it: parts of custom fields may be any text. */
function pathOf(name: string): string {
  const dot = name.indexOf('.');
  return dot < 0 ? name : `${name.slice(0, dot)}.${JSON.stringify(name.slice(dot + 1))}`;
}
