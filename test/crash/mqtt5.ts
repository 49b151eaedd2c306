/** What MQTT 5 promises across `kill -9`: properties in queues, shared groups, and three times that go on while nothing runs. */
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type IClientOptions, type MqttClient } from 'mqtt';
import { type Launched, launch } from '../support/process.ts';
import { Api } from './api.ts';

/** Seconds that a session, a message and a will have, and the seconds by which they may be wrong. */
const lifetime = 15;
const tolerance = 1;
/** Milliseconds in which a client gets everything. */
const patience = 60_000;
/** Seconds of a session that is to stay. */
const forEver = 1_000_000;

export interface Settings {
  directory: string;
  accountId: string;
  admin: { email: string; password: string };
  rounds: number;
  /** Milliseconds of load before a kill, at most. */
  loadTime: number;
  dice: () => number;
  say(line: string): void;
}

export interface Mqtt5Proof {
  losses: string[];
  acknowledged: number;
  kills: number;
  /** Times that could not be looked at because the service came back too late. */
  missed: number;
}

/** A message as a client has heard it. */
interface Heard {
  topic: string;
  text: string;
  number: string | string[] | undefined;
  at: number;
}

export async function proveMqtt5(settings: Settings): Promise<Mqtt5Proof> {
  const proof = new Proof(settings);
  try {
    await proof.setUp();
    for (let round = 1; round <= settings.rounds; round += 1) await proof.round(round);
    await proof.stop();
  } finally {
    proof.abandon();
  }
  return proof;
}

class Proof implements Mqtt5Proof {
  readonly losses: string[] = [];
  acknowledged = 0;
  kills = 0;
  missed = 0;
  readonly #settings: Settings;
  readonly #api: Api;
  #launched: Launched | undefined;
  #port = 0;
  #marks = 0;
  #device = { id: '', secret: '' };

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#api = new Api(settings.accountId, settings.admin);
  }

  async setUp(): Promise<void> {
    await this.#start();
    await this.#api.login();
    const api = this.#api;
    const { deviceTemplate } = await api.ok('POST', '/api/v1/devices/templates', { name: 'MQTT 5' });
    for (const name of ['queued', 'shared', 'brief', 'will'])
      await api.ok('POST', '/api/v1/channels/templates', {
        ...{ entityId: deviceTemplate.id, entityType: 'deviceTemplate', name, persistenceType: 'simple' },
      });
    const { device } = await api.ok('POST', '/api/v1/devices', {
      ...{ deviceTemplateId: deviceTemplate.id, serialNumber: 'mqtt5' },
    });
    const { mqttCredential } = await api.ok('POST', '/api/v1/access/mqtt-credentials', {
      ...{ entityId: device.id, entityType: 'device' },
    });
    this.#device = { id: device.id, secret: mqttCredential.secret as string };
    for (const [clientId, filter] of [
      ['keeper', this.#topic('queued')],
      ['member 1', `$share/group/${this.#topic('shared')}`],
      ['member 2', `$share/group/${this.#topic('shared')}`],
      ['brief 1', this.#topic('brief')],
      ['brief 2', this.#topic('brief')],
      ['listener', this.#topic('will')],
    ] as const) {
      const client = await this.#connect(clientId, { clean: true, expiry: forEver });
      await client.subscribeAsync(filter, { qos: 1 });
      await client.endAsync();
    }
  }

  async round(round: number): Promise<void> {
    const { loadTime, dice, say } = this.#settings;
    const before = this.losses.length;
    for (const clientId of ['early', 'late'])
      await (await this.#connect(clientId, { clean: true, expiry: lifetime })).endAsync();
    const mortal = await this.#connect('mortal', { clean: true, expiry: forEver, will: `${round}` });
    const publisher = await this.#connect('publisher', { clean: true, expiry: 0 });
    await publisher.publishAsync(this.#topic('brief'), `${round}`, {
      ...{ qos: 1, properties: { messageExpiryInterval: lifetime } },
    });
    const began = performance.now();
    mortal.stream.destroy();
    const acknowledged = { queued: new Set<string>(), shared: new Set<string>() };
    const load = this.#publish(publisher, round, acknowledged);
    // The time is what is tested: a kill at any moment.
    await sleep((0.3 + 0.7 * dice()) * loadTime);
    await this.#kill();
    await load;
    await this.#start();
    await this.#checkQueues(acknowledged);
    await this.#checkTimes(round, began);
    const count = acknowledged.queued.size + acknowledged.shared.size;
    this.acknowledged += count;
    say(`${`${round}`.padStart(5)}  ${`${count}`.padStart(12)}  ${this.losses.length - before} lost`);
  }

  async stop(): Promise<void> {
    this.#launched?.child.kill('SIGTERM');
    await this.#launched?.ended;
  }

  abandon(): void {
    this.#launched?.child.kill('SIGKILL');
  }

  /** One after another, until the process dies; what it has not acknowledged then was not promised. */
  async #publish(
    client: MqttClient,
    round: number,
    acknowledged: Record<'queued' | 'shared', Set<string>>,
  ): Promise<void> {
    const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
    const publishing = async () => {
      for (let n = 0; client.connected; n += 1)
        for (const channel of ['queued', 'shared'] as const) {
          const text = `${round}.${n}`;
          const properties = { contentType: 'text/plain', userProperties: { number: text } };
          await client.publishAsync(this.#topic(channel), text, { qos: 1, properties });
          acknowledged[channel].add(text);
        }
    };
    await Promise.race([closed, publishing().catch(() => {})]);
    client.end(true);
  }

  async #checkQueues({ queued, shared }: Record<'queued' | 'shared', Set<string>>): Promise<void> {
    const keeper = await this.#takeAll('keeper', 'queued');
    for (const text of queued) {
      const heard = keeper.filter((one) => one.text === text);
      if (heard.length === 0) this.losses.push(`queued ${text} was not delivered`);
      if (heard.some(({ number }) => number !== text)) this.losses.push(`queued ${text} has lost its properties`);
    }
    const members = [...(await this.#takeAll('member 1', 'shared')), ...(await this.#takeAll('member 2', 'shared'))];
    const texts = new Set(members.map(({ text }) => text));
    for (const text of shared) if (!texts.has(text)) this.losses.push(`shared ${text} was delivered to nobody`);
  }

  /** What ends `lifetime` seconds after `began` is there a second before, and not there a second later. */
  async #checkTimes(round: number, began: number): Promise<void> {
    const heard: Heard[] = [];
    const listener = await this.#connect('listener', { expiry: forEver }, heard);
    const since = (performance.now() - began) / 1000;
    const isNew = ({ text }: Heard) => text === `${round}`;
    const last = began + (lifetime - tolerance) * 1000;
    if (performance.now() > last) this.missed += 1;
    else {
      await sleepUntil(last - 1000);
      if (!(await this.#isPresent('early')))
        this.losses.push(`a session ended ${this.#after(began)} s after its client left`);
      if (!(await this.#takeAll('brief 1', 'brief')).some(isNew)) this.losses.push('a message expired too early');
    }
    await sleepUntil(began + (lifetime + tolerance) * 1000);
    if (await this.#isPresent('late'))
      this.losses.push(`a session was there ${this.#after(began)} s after its client left`);
    if ((await this.#takeAll('brief 2', 'brief')).some(isNew)) this.losses.push('a message expired too late');
    // A listener that could not be there in time gets it at once.
    const due = Math.max(lifetime, since);
    await sleepUntil(began + (due + tolerance + 1) * 1000);
    const will = heard.find(isNew);
    const after = will && (will.at - began) / 1000;
    if (after === undefined) this.losses.push('a will was not sent');
    else if (Math.abs(after - due) > tolerance + 0.5)
      this.losses.push(`a will came after ${after.toFixed(1)} s instead of ${due.toFixed(1)} s`);
    await listener.endAsync();
  }

  #after(began: number): string {
    return ((performance.now() - began) / 1000).toFixed(1);
  }

  /** Whether a session was still there; it ends with that. */
  async #isPresent(clientId: string): Promise<boolean> {
    let isPresent = false;
    const client = await this.#connect(clientId, { expiry: 0 }, [], (found) => {
      isPresent = found;
    });
    await client.endAsync();
    return isPresent;
  }

  /** All that a stored session has kept: what it then publishes on the channel itself comes after that. */
  async #takeAll(clientId: string, channel: string): Promise<Heard[]> {
    const heard: Heard[] = [];
    const client = await this.#connect(clientId, { expiry: forEver }, heard);
    this.#marks += 1;
    const mark = `mark ${this.#marks}`;
    const timer = setTimeout(() => client.end(true), patience);
    const arrived = new Promise<void>((resolve) => {
      const look = () => heard.some(({ text }) => text === mark) && resolve();
      client.on('message', look);
      client.once('close', () => resolve());
    });
    await client.publishAsync(this.#topic(channel), mark, { qos: 1 }).catch(() => {});
    await arrived;
    clearTimeout(timer);
    await client.endAsync();
    return heard;
  }

  async #connect(
    clientId: string,
    { clean = false, expiry, will }: { clean?: boolean; expiry: number; will?: string },
    heard: Heard[] = [],
    found: (isSessionPresent: boolean) => void = () => {},
  ): Promise<MqttClient> {
    const options: IClientOptions = {
      ...{ port: this.#port, host: '127.0.0.1', protocolVersion: 5, reconnectPeriod: 0 },
      ...{ clientId, username: this.#device.id, password: this.#device.secret, clean },
      properties: { sessionExpiryInterval: expiry },
      ...(will !== undefined && {
        will: {
          ...{ topic: this.#topic('will'), payload: Buffer.from(will), qos: 1 as const, retain: false },
          properties: { willDelayInterval: lifetime },
        },
      }),
    };
    const client = mqtt.connect(options);
    client.on('error', () => {});
    client.on('message', (topic, payload, { properties }) => {
      const { number } = properties?.userProperties ?? {};
      heard.push({ topic, text: payload.toString(), number, at: performance.now() });
    });
    return await new Promise((resolve, reject) => {
      client.once('connect', ({ sessionPresent }) => {
        found(sessionPresent);
        resolve(client);
      });
      client.once('close', () => reject(new Error(`${clientId} could not connect`)));
    });
  }

  #topic(channel: string): string {
    return `slipway/v1/${this.#settings.accountId}/d/${this.#device.id}/${channel}`;
  }

  async #start(): Promise<void> {
    // Queues have no bound here: an absent subscriber is promised everything.
    this.#launched = launch(this.#settings.directory, { SLIPWAY_MQTT_MAX_QUEUE: '0' });
    const { url, mqttPort } = await this.#launched.listening;
    this.#api.url = url;
    this.#port = mqttPort;
  }

  async #kill(): Promise<void> {
    this.#launched?.child.kill('SIGKILL');
    await this.#launched?.ended;
    this.kills += 1;
  }
}

/** Until a moment of `performance`. */
function sleepUntil(moment: number): Promise<void> {
  return sleep(Math.max(0, moment - performance.now()));
}
