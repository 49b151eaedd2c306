/** Commands and firmware while the service is killed: what was answered and acknowledged, and where each stands after the restart. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import { type Link, openLink, publishBytes } from '../../bench/link.ts';
import type { Api } from './api.ts';
import { untilGone, type Writer } from './writers.ts';

/** Milliseconds between two looks for an offer. */
const lookEvery = 20;
/** Commands that have not succeeded: they go one after the other, so a slow machine ends a few of them in a round. */
const maxOpen = 10;
/** Rounds after which a command that has not come to its device is lost. */
const maxChecks = 20;

/** A device of the proof: it speaks over MQTT, and over HTTP with its secret. */
class Speaker {
  #secret = '';
  #link: Link | undefined;
  #sent = 0;
  readonly #acknowledge = new Map<number, () => void>();
  id = '';

  readonly api: Api;
  readonly deviceTemplateId: string;
  readonly serialNumber: string;

  constructor(api: Api, deviceTemplateId: string, serialNumber: string) {
    this.api = api;
    this.deviceTemplateId = deviceTemplateId;
    this.serialNumber = serialNumber;
  }

  /** Makes the device when it is not there yet, and connects it. `hear` gets what comes on `channel`. */
  async connect(channel: string, hear: (text: string) => void): Promise<void> {
    const { api, serialNumber, deviceTemplateId } = this;
    this.id ||= (await api.ok('POST', '/api/v1/devices', { serialNumber, deviceTemplateId })).device.id;
    const credential = { entityId: this.id, entityType: 'device' };
    this.#secret ||= (await api.ok('POST', '/api/v1/access/mqtt-credentials', credential)).mqttCredential.secret;
    this.#acknowledge.clear();
    const login = { username: this.id, password: this.#secret, clientId: 'speaker' };
    const link = await openLink({ port: api.mqttPort }, login, ({ cmd, ...packet }: Packet, own) => {
      const { messageId = 0, payload } = packet as { messageId?: number; payload?: Buffer };
      if (cmd === 'puback') this.#acknowledge.get(messageId)?.();
      if (cmd !== 'publish') return;
      own.send({ cmd: 'puback', messageId });
      hear(String(payload));
    }).catch(() => undefined);
    if (!link) throw new TypeError('the service is gone');
    if (link.returnCode !== 0) throw new Error(`a device was refused with ${link.returnCode}`);
    this.#link = link;
    link.send({
      cmd: 'subscribe',
      messageId: 65_535,
      subscriptions: [{ topic: this.#topic(channel), qos: 1 }],
    } as Packet);
  }

  /** Resolves when the message is acknowledged. @throws TypeError when the connection ends before. */
  async publish(channel: string, said: object): Promise<void> {
    const link = this.#link;
    this.#sent += 1;
    const messageId = (this.#sent % 60_000) + 1;
    const acknowledged = new Promise<true>((resolve) => this.#acknowledge.set(messageId, () => resolve(true)));
    link?.send(publishBytes(this.#topic(channel), JSON.stringify(said), { qos: 1, messageId }));
    const isAcknowledged = await Promise.race([acknowledged, this.ended()]);
    if (isAcknowledged !== true) throw new TypeError('the service is gone');
    this.#acknowledge.delete(messageId);
  }

  /** Resolves when the connection is over. */
  async ended(): Promise<void> {
    await this.#link?.closed;
  }

  /** Asks as the device. @throws Error for any answer but 200. */
  async ask(method: string, path: string, body?: object): Promise<{ firmwareVersion?: string }> {
    const authorization = `Basic ${Buffer.from(`${this.id}:${this.#secret}`).toString('base64')}`;
    const headers = { authorization, ...(body && { 'content-type': 'application/json' }) };
    const response = await fetch(`${this.api.url}/api/v1${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
    return JSON.parse(text) as { firmwareVersion?: string };
  }

  #topic(channel: string): string {
    return `slipway/v1/${this.api.accountId}/d/${this.id}/${channel}`;
  }
}

/** What is known of a command: how often its device got it, and the replies that were acknowledged. */
interface Known {
  attempt: number;
  accepted: boolean;
  succeeded: boolean;
  /** How often it has been looked at after a restart. */
  checks: number;
}

/** Sends commands to a device, which accepts each and then says that it has succeeded. */
export class Commander implements Writer {
  readonly #device: Speaker;
  /** Commands that were answered with 200 and had not succeeded at the last check. */
  readonly #known = new Map<string, Known>();
  #faults: string[] = [];

  readonly api: Api;

  constructor(api: Api, deviceTemplateId: string) {
    this.api = api;

    this.#device = new Speaker(api, deviceTemplateId, 'commanded');
  }

  run(isOver: () => boolean): Promise<number> {
    const { api } = this;
    const device = this.#device;
    let isConnected = false;
    let replying: Promise<void> = Promise.resolve();
    return untilGone(isOver, async () => {
      if (!isConnected) {
        await device.connect('_commands', (text) => {
          const { id, attempt } = JSON.parse(text) as { id: string; attempt: number };
          this.#hear(id, attempt);
          replying = replying.then(() => this.#reply(id)).catch(() => {});
        });
        isConnected = true;
        // What it has got and not finished it says again: what it has accepted does not come again.
        for (const [id, { attempt, succeeded }] of this.#known)
          if (attempt > 0 && !succeeded) replying = replying.then(() => this.#reply(id)).catch(() => {});
      }
      // Below the limit of open ones, however slow the machine is.
      const open = [...this.#known.values()].filter(({ succeeded }) => !succeeded);
      if (open.length < maxOpen) {
        const body = { accountId: undefined, name: 'work', timeoutSeconds: 86_400 };
        const { command } = await api.ok('POST', `/api/v1/devices/${device.id}/commands`, body);
        this.#of(command.id);
      } else await api.ok('GET', `/api/v1/devices/${device.id}`);
      await Promise.race([sleep(10), device.ended()]);
    });
  }

  #of(id: string): Known {
    const known = this.#known.get(id) ?? { attempt: 0, accepted: false, succeeded: false, checks: 0 };
    this.#known.set(id, known);
    return known;
  }

  #hear(id: string, attempt: number): void {
    const known = this.#of(id);
    if (attempt <= known.attempt) this.#faults.push(`a command came again as attempt ${attempt}`);
    known.attempt = attempt;
  }

  async #reply(id: string): Promise<void> {
    const known = this.#of(id);
    for (const status of ['accepted', 'succeeded'] as const) {
      await this.#device.publish('_commands/replies', { id, status, result: id });
      known[status] = true;
    }
  }

  async check(): Promise<string[]> {
    await this.#device.ended();
    const losses = this.#faults.splice(0);
    for (const [id, known] of this.#known) {
      const { status, body } = await this.api.ask('GET', `/api/v1/devices/${this.#device.id}/commands/${id}`);
      if (status !== 200) {
        losses.push(`a command that was made answers ${status}`);
        continue;
      }
      const { state, attempt, accepted, result } = body.command;
      if (attempt < known.attempt) losses.push(`a command was sent ${known.attempt} times, and says ${attempt}`);
      if (known.accepted && accepted === null) losses.push(`a command that was accepted is ${state}`);
      if (known.succeeded && (state !== 'succeeded' || result !== id))
        losses.push(`a command that has succeeded is ${state}`);
      known.checks += 1;
      if (attempt === 0 && known.checks === maxChecks)
        losses.push(`a command has not come to its device in ${maxChecks} rounds`);
      if (state === 'succeeded') this.#known.delete(id);
    }
    return losses;
  }
}

/** The states of an update, in their order. */
const states = ['pending', 'offered', 'downloading', 'downloaded', 'installing', 'succeeded'];

/** Devices of a rollout, which report at the same time. */
const updating = 8;

/** A device and its update: the last state that was acknowledged, and the bytes of the last report of a download. */
class Updated {
  state = 'pending';
  bytes = 0;
  /** The version that it reported as installed; `open` while that has no answer, so that it may be on disk or not. */
  installed: string | undefined;
  open: string | undefined;
  isConnected = false;

  readonly speaker: Speaker;

  constructor(speaker: Speaker) {
    this.speaker = speaker;
  }

  /** Reports the whole update, over MQTT and HTTP in turns. */
  async update(firmwareVersion: string): Promise<void> {
    const { speaker } = this;
    while ((await speaker.ask('GET', '/firmware/offer')).firmwareVersion !== firmwareVersion) await sleep(lookEvery);
    this.state = 'offered';
    for (const bytes of [1, 2, 3, 4]) {
      await this.#report(bytes, { state: 'downloading', bytes });
      Object.assign(this, { state: 'downloading', bytes });
    }
    for (const [n, state] of ['downloaded', 'installing'].entries()) {
      await this.#report(n, { state });
      this.state = state;
    }
    this.open = firmwareVersion;
    await this.#report(Number.parseInt(firmwareVersion, 10), { state: 'succeeded', firmwareVersion });
    this.open = undefined;
    this.state = 'succeeded';
    this.installed = firmwareVersion;
  }

  async #report(n: number, report: object): Promise<void> {
    if (n % 2 === 0) await this.speaker.publish('_firmware/status', report);
    else await this.speaker.ask('POST', '/firmware/status', report);
  }
}

/** Rolls new versions out to some devices. */
export class Updater implements Writer {
  readonly #devices: Updated[];
  #made = 0;
  /** The rollout under way; the earlier ones have ended, or were superseded. */
  #rolloutId: string | undefined;

  readonly api: Api;
  readonly deviceTemplateId: string;

  constructor(api: Api, deviceTemplateId: string) {
    this.api = api;
    this.deviceTemplateId = deviceTemplateId;

    this.#devices = Array.from(
      { length: updating },
      (_, n) => new Updated(new Speaker(api, deviceTemplateId, `updated ${n}`)),
    );
  }

  run(isOver: () => boolean): Promise<number> {
    this.#rolloutId = undefined;
    for (const device of this.#devices) device.isConnected = false;
    return untilGone(isOver, async () => {
      await this.#each(async (device) => {
        if (!device.isConnected) await device.speaker.connect('_firmware', () => {});
        Object.assign(device, { isConnected: true, open: undefined });
      });
      const firmwareVersion = await this.#rollOut();
      await this.#each((device) => device.update(firmwareVersion));
    });
  }

  /** Waits for all of them, so that nothing of them is under way afterwards. @throws the first error. */
  async #each(work: (device: Updated) => Promise<void>): Promise<void> {
    const results = await Promise.allSettled(this.#devices.map(work));
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Rolls the next version out, which it returns. */
  async #rollOut(): Promise<string> {
    const { api, deviceTemplateId } = this;
    this.#made += 1;
    const firmwareVersion = `${this.#made}.0`;
    const body = { deviceTemplateId, name: `Crash ${this.#made}`, firmwareVersion };
    const { id } = (await api.ok('POST', '/api/v1/firmware/packages', body)).firmwarePackage;
    const path = `/api/v1/firmware/packages/${id}` as const;
    const response = await fetch(`${api.url}${path}/files/app.bin`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${api.token}`, 'content-type': 'application/octet-stream' },
      body: new Uint8Array(1000),
    });
    if (response.status !== 200) throw new Error(`an upload answered ${response.status}: ${await response.text()}`);
    const { firmwarePackage } = (await response.json()) as { firmwarePackage: { version: string } };
    await api.ok('POST', `${path}/publish`, { accountId: undefined }, firmwarePackage.version);
    const target = { deviceIds: this.#devices.map(({ speaker }) => speaker.id) };
    const rollout = { firmwarePackageId: id, target };
    // Of the rollout before nothing is looked at any more: this one supersedes it.
    for (const device of this.#devices) Object.assign(device, { state: 'pending', bytes: 0 });
    this.#rolloutId = undefined;
    this.#rolloutId = (await api.ok('POST', '/api/v1/firmware/rollouts', rollout)).firmwareRollout.id;
    return firmwareVersion;
  }

  async check(): Promise<string[]> {
    await Promise.all(this.#devices.map(({ speaker }) => speaker.ended()));
    const losses: string[] = [];
    const found = new Map<string, { state: string; bytes: number | null }>();
    if (this.#rolloutId !== undefined) {
      const { devices } = await this.api.ok('GET', `/api/v1/firmware/rollouts/${this.#rolloutId}/devices?pageSize=100`);
      for (const { deviceId, state, bytes } of devices.results) found.set(deviceId, { state, bytes });
    }
    for (const device of this.#devices) losses.push(...(await this.#check(device, found.get(device.speaker.id))));
    return losses;
  }

  async #check(device: Updated, found: { state: string; bytes: number | null } | undefined): Promise<string[]> {
    const { speaker, state, bytes, installed, open } = device;
    const losses: string[] = [];
    if (this.#rolloutId !== undefined) {
      // The rollout may still look for its devices.
      const now = found?.state ?? 'pending';
      if (states.indexOf(now) < states.indexOf(state)) losses.push(`an update was ${state} and is ${now}`);
      if ((found?.bytes ?? 0) < bytes) losses.push(`an update had ${bytes} bytes and has ${found?.bytes}`);
    }
    if (speaker.id === '') return losses;
    const { firmwareVersion } = (await this.api.ok('GET', `/api/v1/devices/${speaker.id}`)).device;
    if (open !== undefined && firmwareVersion === open) device.installed = open;
    else if (installed !== undefined && firmwareVersion !== installed)
      losses.push(`a device runs ${firmwareVersion}, not ${installed}`);
    device.open = undefined;
    return losses;
  }
}
