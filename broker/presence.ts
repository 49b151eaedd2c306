import type { BrokerServices } from '../src/context.js';
import type { DeviceAddress } from './authorize.js';
import type { ServiceChannels } from './service-channels.js';

/** Milliseconds between two writes. */
const writeInterval = 250;
/** Devices in one transaction; a reconnect storm is spread over several, so that other writers get their turn. */
const devicesPerWrite = 500;

interface Change extends DeviceAddress {
  connected: boolean;
  /** ISO 8601 and the peer's address of the last connection; undefined when there was none since the last write. */
  lastConnected: string | undefined;
  externalIp: string | undefined;
}

/** Which devices are connected: at once in memory, soon after in the registry, without touching version or etag. */
export class Presence {
  readonly #services: BrokerServices;
  readonly #channels: ServiceChannels;
  /** Live connections of each connected device. */
  readonly #connections = new Map<string, number>();
  readonly #changes = new Map<string, Change>();
  #timer: NodeJS.Timeout | undefined;
  #lastWrite = 0;
  #writing: Promise<void> | undefined;

  constructor(services: BrokerServices, channels: ServiceChannels) {
    this.#services = services;
    this.#channels = channels;
  }

  /** Nothing is connected when the process starts, whatever a crash has left in the registry. */
  async reset(): Promise<void> {
    await this.#services.registry.query
      .updateTable('devices')
      .set({ connected: 0 })
      .where('connected', '=', 1)
      .execute();
  }

  connected(device: DeviceAddress, address: string | undefined): void {
    const count = this.#connections.get(device.deviceId) ?? 0;
    this.#connections.set(device.deviceId, count + 1);
    const lastConnected = new Date(this.#services.clock.now()).toISOString();
    this.#change({ ...device, connected: true, lastConnected, externalIp: address });
    if (count === 0) this.#writeLog(device, true);
  }

  disconnected(device: DeviceAddress): void {
    const count = this.#connections.get(device.deviceId) ?? 0;
    if (count > 1) {
      this.#connections.set(device.deviceId, count - 1);
      return;
    }
    this.#connections.delete(device.deviceId);
    const { lastConnected, externalIp } = this.#changes.get(device.deviceId) ?? {};
    this.#change({ ...device, connected: false, lastConnected, externalIp });
    this.#writeLog(device, false);
  }

  /** Writes everything that is waiting. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    while (this.#changes.size > 0) await this.#write();
  }

  #change(change: Change): void {
    this.#changes.delete(change.deviceId);
    this.#changes.set(change.deviceId, change);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#timer || this.#writing) return;
    const wait = Math.max(0, this.#lastWrite + writeInterval - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined;
        if (this.#changes.size > 0) this.#schedule();
      });
    }, wait);
    this.#timer.unref();
  }

  async #write(): Promise<void> {
    this.#lastWrite = performance.now();
    const changes = [...this.#changes.values()].slice(0, devicesPerWrite);
    for (const { deviceId } of changes) this.#changes.delete(deviceId);
    try {
      for (const [device, fields] of await this.#store(changes)) this.#channels.deviceUpdated(device, fields);
    } catch (error) {
      this.#services.log.error({ err: error, devices: changes.length }, 'presence could not be written');
    }
  }

  /** Stores the changes in one transaction; the fields of each device that are different from before. */
  async #store(changes: Change[]): Promise<Array<[DeviceAddress, Record<string, unknown>]>> {
    const ids = changes.map(({ deviceId }) => deviceId);
    return this.#services.registry.transaction(async (tx) => {
      const rows = await tx
        .selectFrom('devices')
        .select(['id', 'connected', 'externalIp'])
        .where('id', 'in', ids)
        .execute();
      const before = new Map(rows.map((row) => [row.id, row]));
      const different: Array<[DeviceAddress, Record<string, unknown>]> = [];
      for (const change of changes) {
        const { deviceId, connected, lastConnected, externalIp } = change;
        const row = before.get(deviceId);
        if (!row) continue;
        const seen = lastConnected === undefined ? {} : { lastConnected, externalIp: externalIp ?? row.externalIp };
        await tx
          .updateTable('devices')
          .set({ connected: connected ? 1 : 0, ...seen })
          .where('id', '=', deviceId)
          .execute();
        const fields: Record<string, unknown> = {};
        if (connected !== (row.connected === 1)) fields.connected = connected;
        if (externalIp !== undefined && externalIp !== row.externalIp) fields.externalIp = externalIp;
        different.push([change, fields]);
      }
      return different;
    });
  }

  #writeLog({ accountId, deviceId }: DeviceAddress, connected: boolean): void {
    const now = this.#services.clock.now();
    const entry = { accountId, deviceId, time: now, received: now, severity: 'lifecycle' as const };
    const message = connected ? 'connected' : 'disconnected';
    this.#services.messages.appendLog(
      { ...entry, message, code: null, details: null, tags: [], custom: { connected } },
      (error) => {
        if (error) this.#services.log.error({ err: error, deviceId }, 'a lifecycle entry could not be stored');
      },
    );
  }
}
