import type { NewLogEntry } from '../db/messages/types.ts';
import { notePresence, type PresenceNote } from '../db/registry/presence.ts';
import type { DevicePresence } from '../db/registry/records.ts';
import { rowsOf } from '../db/registry/statement.ts';
import { newId } from '../src/core/ids.ts';
import { type Entry, Gathered } from '../src/core/limits/gathered.ts';
import type { BrokerServices, DeviceAddress } from '../src/ports/broker-ports.ts';
import type { LiveClient } from './client-types.ts';
import type { ReverseDns } from './reverse-dns.ts';
import type { ServiceChannels } from './service-channels.ts';
import { Signs } from './silence.ts';

/** Milliseconds between two writes. */
const writeInterval = 250;
/** Milliseconds until what could not be written is tried again. */
const retryDelay = 2000;
/** Devices in one transaction; a reconnect storm is spread over several, so that other writers get their turn. */
const devicesPerWrite = 500;

/** From where a connection comes, and what it calls itself. */
type From = Pick<LiveClient, 'address' | 'clientId' | 'connectionId'>;

/** Changes of a device since the last write. */
interface Change extends DeviceAddress {
  connected?: boolean;
  /** When its last connection ended. */
  ended?: string;
  silent?: boolean;
  /** Seconds between its messages. */
  usualInterval?: number;
  /** The last connection: ISO 8601, and the peer's address when it is known. */
  arrival?: { time: string; address: string | undefined };
  /** The names that addresses turned out to have: one that comes late is that of a former address. */
  names?: Record<string, string | null>;
}

/** The fields of a device that its connection reports, as they are stored. */
interface Seen {
  connected: number;
  externalIp: string | null;
  geoIpLatitude: string | null;
  geoIpLongitude: string | null;
  reverseDns: string | null;
}

/** Whether it said nothing for too long, and the usual time between its messages. */
interface Heard {
  silent: number;
  usualInterval: number | null;
}

const seenOfDevices = `SELECT "id", "connected", "externalIp", "geoIpLatitude", "geoIpLongitude", "reverseDns",
    "silent", "usualInterval", "possessionSince"
  FROM "wholeDevices" WHERE "id" IN (SELECT "value" FROM json_each(?))`;

type PresenceServices = Pick<BrokerServices, 'clock' | 'gate' | 'log' | 'messages' | 'positions' | 'registry'>;

/** Presence of devices: at once in memory, soon after in the registry, without a change of version or etag. */
export class Presence {
  readonly #services: PresenceServices;
  readonly #channels: ServiceChannels;
  readonly #names: ReverseDns;
  /** Each connected device. */
  readonly #connected = new Map<string, Signs>();
  readonly #changes = new Gathered<Change>({
    ...{ interval: writeInterval, atOnce: devicesPerWrite },
    merge: merged,
    write: (entries) => this.#write(entries),
  });
  /** Log entries that go with them. */
  readonly #entries: Array<{ connectionId: string | undefined; entry: NewLogEntry }> = [];
  #closing = false;

  constructor(services: PresenceServices, channels: ServiceChannels, names: ReverseDns) {
    this.#services = services;
    this.#channels = channels;
    this.#names = names;
  }

  /** Nothing is connected when the process starts, whatever a crash has left in the registry. */
  async reset(): Promise<void> {
    await this.#services.registry.query
      .updateTable('devicePresence')
      .set({ connected: 0, silent: 0, offlineSince: new Date(this.#services.clock.now()).toISOString() })
      .where('connected', '=', 1)
      .execute();
  }

  connected(device: DeviceAddress, from: From): void {
    const { address } = from;
    const now = this.#services.clock.now();
    const signs = this.#connected.get(device.deviceId) ?? new Signs(device.accountId);
    this.#connected.set(device.deviceId, signs);
    signs.connect(seconds(now));
    const time = new Date(now).toISOString();
    this.#change(device, { connected: true, arrival: { time, address } });
    // A name comes later, or never; nobody waits for it.
    if (address !== undefined)
      this.#names.find(address, device.deviceId, (name) => this.#change(device, { names: { [address]: name } }));
    if (signs.connections === 1) this.#writeLog(device, from, true);
  }

  /** `time`: when, in milliseconds since 1970, if it was not now. */
  disconnected(device: DeviceAddress, from: From, time = this.#services.clock.now()): void {
    const signs = this.#connected.get(device.deviceId);
    if (signs && signs.connections > 1) {
      signs.connections -= 1;
      return;
    }
    this.#connected.delete(device.deviceId);
    const { interval = -1 } = signs ?? {};
    this.#change(device, {
      connected: false,
      ended: new Date(time).toISOString(),
      ...(interval >= 0 && { usualInterval: interval }),
    });
    this.#writeLog(device, from, false, time);
  }

  /** A device has sent a message. */
  message(deviceId: string): void {
    this.#connected.get(deviceId)?.message(seconds(this.#services.clock.now()));
  }

  /** Notes which devices have fallen silent, and which are not silent any more. */
  lookForSilence(): void {
    const now = seconds(this.#services.clock.now());
    for (const [deviceId, signs] of this.#connected)
      if (signs.hasTurned(now)) this.#change({ accountId: signs.accountId, deviceId }, { silent: signs.isSilent });
  }

  /** A device is in another server from now on, which says what becomes of it. */
  forget({ accountId, deviceId }: DeviceAddress): void {
    this.#connected.delete(deviceId);
    this.#changes.forgetValue(accountId, deviceId);
  }

  /** Devices whose connections have ended in another server, which does not act for them any more; logged when it resolves. */
  async endedElsewhere(devices: readonly DeviceAddress[]): Promise<void> {
    const { clock, messages } = this.#services;
    const logged = devices.map(
      (device) =>
        new Promise<void>((resolve) =>
          // A store that is full has said so.
          messages.appendLog(this.#entryOf(device, { connected: false }, clock.now()), () => resolve()),
        ),
    );
    await Promise.all(logged);
  }

  /** Writes everything that is waiting now. */
  async flush(): Promise<void> {
    await this.#changes.flush();
    this.#storeEntries();
  }

  /** Writes everything that is waiting, for the last time: at the next start nothing is connected anyway. */
  async close(): Promise<void> {
    this.#closing = true;
    await this.flush();
  }

  #change(device: DeviceAddress, change: Omit<Change, keyof DeviceAddress>): void {
    // What is found out of a former address is found out again where the device connects.
    if (this.#services.gate.isAway(device.accountId)) return;
    const { accountId, deviceId } = device;
    this.#changes.putValue(accountId, deviceId, { accountId, deviceId, ...change });
  }

  async #write(entries: ReadonlyArray<Entry<Change>>): Promise<void> {
    this.#storeEntries();
    try {
      const changes = entries.map(({ value }) => value);
      for (const [device, fields] of await this.#store(changes)) this.#channels.deviceUpdated(device, fields);
    } catch (error) {
      this.#services.log.error({ err: error, devices: entries.length }, 'presence could not be written');
      // Nobody says it again: without it a device would be shown as it was until its next connection.
      if (!this.#closing) this.#changes.putBack(entries, retryDelay);
    }
  }

  /** Stores the changes in one transaction; the fields of each device that are different from before. */
  async #store(changes: Change[]): Promise<Array<[DeviceAddress, Record<string, unknown>]>> {
    const ids = changes.map(({ deviceId }) => deviceId);
    return this.#services.registry.transaction(async (tx) => {
      const rows = await rowsOf<Seen & Heard & { id: string; possessionSince: string | null }>(tx, seenOfDevices, [
        JSON.stringify(ids),
      ]);
      const before = new Map(rows.map(({ id, ...seen }) => [id, seen]));
      const notes: PresenceNote[] = [];
      const different: Array<[DeviceAddress, Record<string, unknown>]> = [];
      for (const change of changes) {
        const { deviceId } = change;
        const stored = before.get(deviceId);
        if (!stored) continue;
        const { silent, usualInterval, possessionSince, ...known } = stored;
        this.#connected.get(deviceId)?.recall(change.usualInterval ?? usualInterval);
        const seen = this.#seen(known, ofOwner(change, possessionSince));
        const names = (Object.keys(seen) as Array<keyof Seen>).filter((name) => seen[name] !== known[name]);
        const changed = Object.fromEntries(names.map((name) => [name, seen[name]]));
        notes.push({ id: deviceId, presence: { ...changed, ...heard({ silent, usualInterval }, change) } });
        if (names.length === 0) continue;
        const shown = { ...seen, connected: seen.connected === 1 };
        different.push([change, Object.fromEntries(names.map((name) => [name, shown[name]]))]);
      }
      await notePresence(tx, notes);
      return different;
    });
  }

  /** The state after a change; facts of a former address are dropped. */
  #seen(stored: Seen, { connected, arrival, names }: Change): Seen {
    const seen = { ...stored };
    if (connected !== undefined) seen.connected = connected ? 1 : 0;
    if (arrival?.address !== undefined) {
      const position = this.#services.positions.of(arrival.address);
      seen.geoIpLatitude = position?.latitude ?? null;
      seen.geoIpLongitude = position?.longitude ?? null;
      if (arrival.address !== stored.externalIp) seen.reverseDns = null;
      seen.externalIp = arrival.address;
    }
    const name = names?.[seen.externalIp ?? ''];
    if (name !== undefined) seen.reverseDns = name;
    return seen;
  }

  #writeLog(device: DeviceAddress, from: From, connected: boolean, time = this.#services.clock.now()): void {
    const { address, clientId, connectionId } = from;
    const custom = { connected, clientId, ...(address !== undefined && { address }) };
    this.#entries.push({ connectionId, entry: this.#entryOf(device, custom, time) });
  }

  #entryOf({ accountId, deviceId }: DeviceAddress, custom: { connected: boolean }, time: number): NewLogEntry {
    const severity = 'lifecycle';
    const entry = { id: newId(accountId), accountId, deviceId, time, received: this.#services.clock.now(), severity };
    const message = custom.connected ? 'connected' : 'disconnected';
    return { ...entry, message, code: null, details: null, tags: [], custom, byService: true } as NewLogEntry;
  }

  /** Together: each by itself would be a commit of its own while a fleet connects. */
  #storeEntries(): void {
    const { messages, log } = this.#services;
    for (const { connectionId, entry } of this.#entries.splice(0))
      messages.appendLog(entry, (error) => {
        if (!error) return;
        // A full store has said so once.
        log[messages.isNoRoom(error) ? 'debug' : 'error'](
          { err: error, deviceId: entry.deviceId, connectionId },
          'a lifecycle entry could not be stored',
        );
      });
  }
}

/** A new connection makes the names of former addresses useless. */
function merged(before: Change, later: Change): Change {
  return { ...before, ...later, names: { ...(!later.arrival && before.names), ...later.names } };
}

/** Without the address of a connection that a former owner has made: the next one does not learn from where. */
function ofOwner(change: Change, possessionSince: string | null): Change {
  const { arrival, ...rest } = change;
  return arrival && possessionSince !== null && arrival.time <= possessionSince ? rest : change;
}

/** What a change says of the connection, besides its address. */
function heard(stored: Heard, { arrival, connected, ended, silent, usualInterval }: Change): Partial<DevicePresence> {
  const isSilent = connected === undefined ? silent : false;
  return {
    ...(arrival && { lastConnected: arrival.time, offlineSince: null }),
    ...(connected === false && ended !== undefined && { offlineSince: ended }),
    ...(isSilent !== undefined && isSilent !== (stored.silent === 1) && { silent: isSilent ? 1 : 0 }),
    ...(usualInterval !== undefined && usualInterval !== stored.usualInterval && { usualInterval }),
  };
}

function seconds(milliseconds: number): number {
  return Math.floor(milliseconds / 1000);
}
