/** A fleet that publishes through HAProxy, and an admin who writes: both keep what was acknowledged. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import type { Equipped } from '../../bench/equip.ts';
import { type Link, openLink, publishBytes } from '../../bench/link.ts';
import type { Api } from '../crash/api.ts';

/** Points have times of their own, a second each. */
const epoch = Date.parse('2026-01-01T00:00:00Z');
/** Milliseconds between two messages of one device, and until it comes back after its connection has ended. */
const every = 10_000;
const comeBack = 100;

/** When acknowledgements have come, in milliseconds of `performance`. */
export class Acknowledgements {
  #last = performance.now();
  #longest = 0;
  count = 0;

  came(): void {
    const now = performance.now();
    this.#longest = Math.max(this.#longest, now - this.#last);
    this.#last = now;
    this.count += 1;
  }

  /** The longest time without any since the last call. */
  takeLongest(): number {
    const longest = Math.max(this.#longest, performance.now() - this.#last);
    this.#longest = 0;
    return Math.round(longest);
  }
}

/** One device: a message with QoS 1 now and then, sent again until it is acknowledged. */
export class Unit {
  readonly acknowledged: number[] = [];
  readonly device: Equipped;
  readonly #port: number;
  readonly #acknowledgements: Acknowledgements;
  #next = 0;
  /** When the next message is sent, in milliseconds of `performance`. */
  #due = 0;
  #stopped = false;
  #link: Link | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(device: Equipped, port: number, acknowledgements: Acknowledgements) {
    this.device = device;
    this.#port = port;
    this.#acknowledgements = acknowledgements;
  }

  /** Connects, again and again until `stop`. @throws Error when it is refused as somebody else. */
  async run(firstAfter: number): Promise<void> {
    const { id, secret } = this.device;
    this.#due = performance.now() + firstAfter;
    while (!this.#stopped) {
      try {
        const login = { username: id, password: secret, clientId: 'unit', clean: false };
        const link = await openLink({ port: this.#port }, login, (packet) => this.#hear(packet));
        if (link.returnCode === 0) {
          this.#link = link;
          // What was on its way goes again at once; the next message keeps its time.
          this.#timer = setTimeout(() => this.#send(), Math.max(0, this.#due - performance.now()));
          await link.closed;
          clearTimeout(this.#timer);
        } else link.socket.destroy();
      } catch {
        // The cell or HAProxy has ended the connection.
      }
      this.#link = undefined;
      await sleep(comeBack + Math.random() * comeBack);
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#link?.socket.destroy();
  }

  #send(): void {
    const n = this.#next;
    this.#link?.send(
      publishBytes(this.device.topic('temperature'), `${epoch + n * 1000},n,${n},`, { qos: 1, messageId: 1 }),
    );
  }

  #hear(packet: Packet): void {
    if (packet.cmd !== 'puback') return;
    this.acknowledged.push(this.#next);
    this.#next += 1;
    this.#acknowledgements.came();
    this.#due = Math.max(performance.now(), this.#due + every);
    this.#timer = setTimeout(() => this.#send(), Math.max(0, this.#due - performance.now()));
  }
}

/** Renames a device and makes others; what was answered with 200 has to be there. */
export class Writer {
  readonly made: string[] = [];
  name = '';
  #api: Api;
  #stopped = false;

  constructor(api: Api) {
    this.#api = api;
  }

  async run(deviceTemplateId: string, deviceId: string): Promise<void> {
    for (let n = 0; !this.#stopped; n += 1) {
      // The pace of the load.
      await sleep(20);
      try {
        const { status, body } = await this.#api.ask('POST', '/api/v1/devices', {
          serialNumber: `made-${n}`,
          deviceTemplateId,
        });
        if (status === 200) this.made.push(body.device.id);
        const found = await this.#api.ask('GET', `/api/v1/devices/${deviceId}`);
        if (found.status !== 200) continue;
        const { device } = found.body;
        const name = `name ${n}`;
        const path = `/api/v1/devices/${deviceId}`;
        const changed = await this.#api.ask('PUT', path, { ...device, name }, String(device.version));
        if (changed.status === 200) this.name = name;
      } catch {
        // No whole answer has come: it may have been done or not.
        this.name = '';
      }
    }
  }

  stop(): void {
    this.#stopped = true;
  }
}

/** Acknowledged messages that are not stored, in words. */
export async function lost(api: Api, units: readonly Unit[]): Promise<string[]> {
  const losses: string[] = [];
  const waiting = units.values();
  const checkSome = async () => {
    for (const unit of waiting) {
      const topic = unit.device.topic('temperature');
      const found = new Set<number>();
      for (let token: string | null = ''; token !== null; ) {
        const range = 'startDateTime=2025-12-31&endDateTime=2026-12-31&pageSize=1000';
        const after: string = token === '' ? '' : `&pagingToken=${encodeURIComponent(token)}`;
        const { result, meta } = await api.ok('GET', `/api/v4/data/${topic}?${range}${after}`);
        for (const { numericValue } of result) found.add(numericValue);
        token = meta.pagingToken;
      }
      for (const n of unit.acknowledged) if (!found.has(n)) losses.push(`${topic}: message ${n}`);
    }
  };
  await Promise.all(Array.from({ length: 4 }, checkSome));
  return losses;
}
