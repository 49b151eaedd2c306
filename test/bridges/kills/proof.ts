/** The proof that level 2 loses and repeats nothing: devices publish while the service and its target are killed. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Api } from '../../crash/api.ts';
import { Publisher } from '../../crash/publisher.ts';
import { makeStream, type NatsServer, natsServer, readStream } from '../../support/nats-server.ts';
import { type Launched, launch } from '../../support/process.ts';
import { adminEmail, adminPassword } from '../../support/service.ts';

const accountId = '00000000-0000-7000-8000-00000000b0b0';
const env = {
  SLIPWAY_ACCOUNT_ID: accountId,
  SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
  SLIPWAY_BRIDGE_TIMEOUT_SECONDS: '2',
  SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
  SLIPWAY_RATE_LIMIT_PER_MINUTE: '0',
};
/** Milliseconds between two looks at what no event reports. */
const look = 10;

export interface Settings {
  directory: string;
  devices: number;
  messages: number;
  targetKills: number;
  serviceKills: number;
  /** Seconds for which the target is away once. */
  awaySeconds: number;
  /** The same seed chooses the same moments. */
  seed: number;
  say(line: string): void;
}

export interface Proof {
  acknowledged: number;
  stored: number;
  /** What should not be: a sentence each. */
  faults: string[];
}

type Blow = 'target' | 'service' | 'away';

/** Runs it all. @throws Error when the service does not come back. */
export async function proveDelivery(settings: Settings): Promise<Proof> {
  const stage = new Stage(settings);
  try {
    await stage.setUp();
    const blows = blowsOf(settings);
    for (const [index, blow] of blows.entries()) await stage.phase(blow, (index + 1) / blows.length);
    return await stage.finish();
  } finally {
    await stage.abandon();
  }
}

/** Kills of the service fall between those of the target, and the first of them while the target is away. */
function blowsOf({ targetKills, serviceKills }: Settings): Blow[] {
  const blows: Blow[] = Array.from({ length: targetKills }, () => 'target');
  blows.splice(targetKills >> 1, 0, 'away');
  for (let more = 1; more < serviceKills; more += 1) blows.splice(1 + 2 * more, 0, 'service');
  return blows;
}

class Stage {
  readonly #settings: Settings;
  readonly #api = new Api(accountId, { email: adminEmail, password: adminPassword });
  readonly #publishers = new Map<string, Publisher>();
  readonly #acknowledged = new Map<string, Set<number>>();
  /** Numbers that were open when the service was killed: it may have taken them without a word, and gets them again. */
  readonly #open = new Map<string, Set<number>>();
  readonly #dice: () => number;
  readonly #data: string;
  #nats: NatsServer | undefined;
  #launched: Launched | undefined;
  #bridgeId = '';

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#dice = dice(settings.seed);
    this.#data = join(settings.directory, 'data');
  }

  async setUp(): Promise<void> {
    const { directory, devices } = this.#settings;
    mkdirSync(this.#data, { mode: 0o700 });
    this.#nats = await natsServer(join(directory, 'nats'));
    await this.#nats.start();
    // The window in which the stream remembers ids must be longer than any time the target is away.
    await makeStream(this.#nats.servers, { duplicate_window: 3600e9 });
    await this.#launch();
    await this.#api.login();
    const { deviceTemplate } = await this.#api.ok('POST', '/api/v1/devices/templates', { name: 'Bridged' });
    await this.#api.ok('POST', '/api/v1/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name: 'sure',
      streamBridgeDelivery: 2,
    });
    const { bridge } = await this.#api.ok('POST', '/api/v1/bridges', {
      name: 'NATS',
      kind: 'nats',
      url: this.#nats.url,
      form: 'raw',
    });
    this.#bridgeId = bridge.id;
    for (let n = 0; n < devices; n += 1) await this.#addDevice(String(n), deviceTemplate.id);
    await this.#connect();
  }

  async #addDevice(serialNumber: string, deviceTemplateId: string): Promise<void> {
    const { device } = await this.#api.ok('POST', '/api/v1/devices', { serialNumber, deviceTemplateId });
    const about = { entityId: device.id, entityType: 'device' };
    const { mqttCredential } = await this.#api.ok('POST', '/api/v1/access/mqtt-credentials', about);
    const login = { username: device.id, password: mqttCredential.secret, clientId: 'publisher' };
    const topic = `slipway/v1/${accountId}/d/${device.id}/sure`;
    this.#publishers.set(device.id, new Publisher({ login, topic, qos: 1, retain: false, payload: String }));
    this.#acknowledged.set(device.id, new Set());
    this.#open.set(device.id, new Set());
  }

  /** Devices publish up to a share of all messages; at a moment of that the blow falls. */
  async phase(blow: Blow, share: number): Promise<void> {
    const { messages, devices } = this.#settings;
    const limit = Math.round((messages / devices) * share);
    const before = this.#count();
    for (const publisher of this.#publishers.values()) publisher.limit = limit;
    this.#run();
    const fatal = before + (limit * devices - before) * (0.2 + 0.6 * this.#dice());
    // Each publisher counts by itself, and no event reports the sum.
    while (this.#count() < fatal) await sleep(look);
    const began = performance.now();
    if (blow !== 'service') await this.#nats?.stop();
    if (blow !== 'target') await this.#killService();
    if (blow === 'away') await sleep(this.#settings.awaySeconds * 1000);
    if (blow !== 'service') await this.#nats?.start();
    const lasted = Math.round(performance.now() - began);
    while (this.#count() < limit * devices) await sleep(look);
    this.#settings.say(
      `${blow.padEnd(7)} after ${String(Math.round(fatal)).padStart(6)} messages, ${lasted} ms; acknowledged ${this.#count()}`,
    );
  }

  /** Waits until nothing is pending, and compares what was acknowledged with what the stream has. */
  async finish(): Promise<Proof> {
    const from = performance.now();
    let status = await this.#status();
    for (; status.pending > 0; status = await this.#status()) await sleep(look * 10);
    this.#settings.say(`nothing is pending ${Math.round(performance.now() - from)} ms after the last message`);
    const found = await readStream(this.#nats?.servers ?? '');
    const faults: string[] = [];
    if (status.deadLetters > 0) faults.push(`${status.deadLetters} messages were given up`);
    const ids = new Set(found.map(({ id }) => id));
    if (ids.size !== found.length) faults.push(`${found.length - ids.size} ids are in the stream more than once`);
    const numbers = new Map<string, number[]>([...this.#publishers.keys()].map((id) => [id, []]));
    for (const { subject, data } of found) numbers.get(subject.split('.')[3] ?? '')?.push(Number(data));
    for (const [id, own] of numbers) faults.push(...this.#faultsOf(id, own));
    return { acknowledged: this.#count(), stored: found.length, faults };
  }

  /** What is wrong with the messages of one device, in the order of the stream. */
  #faultsOf(id: string, numbers: number[]): string[] {
    const faults: string[] = [];
    const stored = new Set(numbers);
    for (const n of this.#acknowledged.get(id) ?? [])
      if (!stored.has(n)) faults.push(`${id}: ${n} was acknowledged and is lost`);
    const open = this.#open.get(id);
    let newest = 0;
    const seen = new Set<number>();
    for (const n of numbers) {
      // What the device itself had to send again may be there as another message, after the first.
      if (seen.has(n) && !open?.has(n)) faults.push(`${id}: ${n} is stored twice`);
      if (!seen.has(n) && n < newest) faults.push(`${id}: ${n} comes after ${newest}`);
      seen.add(n);
      newest = Math.max(newest, n);
    }
    return faults;
  }

  #count(): number {
    let count = 0;
    for (const [id, publisher] of this.#publishers) {
      const mine = this.#acknowledged.get(id);
      for (const n of publisher.takeAcknowledged()) mine?.add(n);
      count += mine?.size ?? 0;
    }
    return count;
  }

  async #status(): Promise<{ pending: number; deadLetters: number }> {
    return (await this.#api.ok('GET', `/api/v1/bridges/${this.#bridgeId}`)).bridge.status;
  }

  async #launch(): Promise<void> {
    this.#launched = launch(this.#data, env);
    this.#api.url = (await this.#launched.listening).url;
  }

  async #killService(): Promise<void> {
    this.#launched?.child.kill('SIGKILL');
    await this.#launched?.ended;
    await Promise.all([...this.#publishers.values()].map((publisher) => publisher.ended()));
    for (const [id, publisher] of this.#publishers) for (const n of publisher.open()) this.#open.get(id)?.add(n);
    await this.#launch();
    await this.#connect();
    this.#run();
  }

  async #connect(): Promise<void> {
    const { mqttPort } = (await this.#launched?.listening) ?? { mqttPort: 0 };
    await Promise.all([...this.#publishers.values()].map((publisher) => publisher.connect(mqttPort)));
  }

  #run(): void {
    for (const publisher of this.#publishers.values()) publisher.run();
  }

  async abandon(): Promise<void> {
    this.#launched?.child.kill('SIGKILL');
    await this.#launched?.ended;
    await this.#nats?.stop();
  }
}

/** Numbers from 0 to 1, the same for the same seed. */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
