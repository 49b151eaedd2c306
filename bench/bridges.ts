/** Bridges to NATS JetStream, a webhook and what answers as Kinesis: their rate, their CPU time, and what publishers pay, next to level 0. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import { logIn } from './api.ts';
import { at, median, type Row, shown } from './figures.ts';
import { flood } from './flood.ts';
import { startHook } from './hook.ts';
import { type Link, openLink, publishBytes } from './link.ts';
import { makeStream } from './nats.ts';
import type { ServingService } from './processes.ts';
import type { Bench } from './sizes.ts';

const devices = 100;
/** Messages of one device that are in flight at once. */
const window = 20;
/** Messages of one run, for each unit of `Size.units`. */
const perUnit = 0.4;
/** Messages a second of all devices together, for the time to an acknowledgement. */
const pace = 2000;
/** Shares of `Size.duration`: of warming up, and of measuring that time. */
const [warmUp, measured] = [0.1, 0.4];
/** Messages of the run with one device. */
const ofOneDevice = 3000;
/** Milliseconds between two looks at what no event reports, and the most that a target may need for one run. */
const [look, patience] = [20, 60_000];
const accountId = '00000000-0000-7000-8000-00000000b0b0';
const admin = { email: 'bench@bench.example', password: 'a password of the bench' };

/** What a bridge leads to. */
interface Target {
  name: string;
  bridge: { kind: string; url: string; settings?: object; credentials?: object };
  /** Messages that have arrived so far. */
  count(): number | Promise<number>;
}

interface Client {
  link: Link;
  root: string;
  /** When each message was due that is not acknowledged yet. */
  due: Map<number, number>;
  /** Hears how long a message took, with the time at which it was due. */
  took: (milliseconds: number, due: number) => void;
}

interface Stage {
  server: ServingService;
  target: Target;
  clients: Client[];
  /** Messages of level 2 on their way. */
  pending(): Promise<number>;
}

/** One run as fast as messages are acknowledged. */
interface Rate {
  acknowledged: number;
  /** Messages a second until the target has them all; at level 0 until they are acknowledged. */
  arrived: number;
  /** Microseconds of the service for each message. */
  cpu: number;
}

export async function measureBridges(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  const isAll = !bench.only.includes('device');
  const nats = await bench.serveNats();
  if (nats) {
    const stream = await makeStream(nats.natsPort);
    const bridge = { kind: 'nats', url: `nats://127.0.0.1:${nats.natsPort}` };
    try {
      const target = { name: 'NATS JetStream', bridge, count: stream.count };
      rows.push(...(await measureOneDevice(bench, target)));
      if (isAll) rows.push(...(await measureTarget(bench, target)));
    } finally {
      await stream.close();
      await nats.stop();
    }
  }
  const hook = await startHook();
  try {
    const target = { name: 'a webhook', bridge: { kind: 'webhook', url: hook.url }, count: hook.count };
    const kinesis = {
      kind: 'kinesis',
      url: hook.url,
      settings: { stream: 'messages', region: 'eu-west-1' },
      credentials: { accessKeyId: 'bench', secretAccessKey: 'bench' },
    };
    for (const one of [{ name: 'a stand-in of Kinesis', bridge: kinesis, count: hook.count }, target])
      rows.push(...(await measureOneDevice(bench, one)));
    if (!isAll) return rows;
    const measureAway = async (stage: Stage, messages: number, rounds: number) => {
      hook.setAway(true);
      return measureUnsent(stage, messages, rounds);
    };
    rows.push(...(await measureTarget(bench, target, measureAway)));
  } finally {
    await hook.close();
  }
  return rows;
}

/** A device whose messages all come at once: most kinds of targets get one of them at a time. */
async function measureOneDevice(bench: Bench, target: Target): Promise<Row[]> {
  const server = await startServer(bench);
  const stage = await setUp(server, target, 1);
  const { arrived, cpu } = await rateOf(stage, 2, ofOneDevice);
  for (const { link } of stage.clients) link.socket.destroy();
  await server.stop();
  const what = `Level 2 to ${target.name}, one device`;
  return [
    { what: `${what}, until the target has them`, ours: arrived, unit: 'msg/s' },
    { what: `${what}, CPU time of a message`, ours: cpu, unit: 'µs' },
  ];
}

async function startServer({ directory, serve }: Bench): Promise<ServingService> {
  return serve(await directory(0), {
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_ADMIN_EMAIL: admin.email,
    SLIPWAY_ADMIN_PASSWORD: admin.password,
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
    SLIPWAY_RATE_LIMIT_PER_MINUTE: '0',
    SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
  });
}

/** Level 2 next to level 0, in turns, on a service of its own; `more` measures on the same service afterwards. */
async function measureTarget(
  bench: Bench,
  target: Target,
  more?: (stage: Stage, messages: number, rounds: number) => Promise<Row[]>,
): Promise<Row[]> {
  const { size } = bench;
  const server = await startServer(bench);
  const stage = await setUp(server, target, devices);
  const levels = [0, 2] as const;
  const p50s: Record<0 | 2, number[]> = { 0: [], 2: [] };
  const p99s: Record<0 | 2, number[]> = { 0: [], 2: [] };
  console.log(`\n${target.name}: ${devices} devices, ${pace} msg/s together, from the time it was due to PUBACK\n`);
  for (let round = 0; round < size.rounds; round += 1)
    for (const level of inTurn(levels, round)) {
      const times = await paced(stage.clients, `level${level}`, size.duration);
      p50s[level].push(at(times, 0.5));
      p99s[level].push(at(times, 0.99));
      console.log(`  level ${level}  p50 ${shown(at(times, 0.5))} ms, p99 ${shown(at(times, 0.99))} ms`);
      while ((await stage.pending()) > 0) await sleep(look);
    }
  const messages = Math.round((size.units * perUnit) / devices) * devices;
  const rates: Record<0 | 2, Rate[]> = { 0: [], 2: [] };
  console.log(`\n${target.name}: ${messages} messages as fast as they are acknowledged\n`);
  for (let round = 0; round < size.rounds; round += 1)
    for (const level of inTurn(levels, round)) {
      const rate = await rateOf(stage, level, messages);
      rates[level].push(rate);
      const { acknowledged, arrived, cpu } = rate;
      const [first, second] = [acknowledged, arrived].map((one) => shown(Math.round(one)));
      console.log(
        `  level ${level}  ${first} acknowledged/s, ${second} arrived/s, ${cpu.toFixed(0)} µs of CPU time each`,
      );
    }
  const row = (what: string, unit: string, ours: number[], theirs: number[]): Row => ({
    what: `Level 2 to ${target.name}, ${what}`,
    ours: median(ours),
    unit,
    peer: { name: 'level 0', value: median(theirs) },
  });
  const rateRow = (what: string, unit: string, which: keyof Rate) =>
    row(
      what,
      unit,
      ...(levels.map((level) => rates[level].map((rate) => rate[which])).reverse() as [number[], number[]]),
    );
  const rows = [
    rateRow('until the target has them', 'msg/s', 'arrived'),
    rateRow('acknowledged', 'msg/s', 'acknowledged'),
    rateRow('CPU time of a message', 'µs', 'cpu'),
    row(`publish → PUBACK at ${shown(pace)} msg/s, p50`, 'ms', p50s[2], p50s[0]),
    row(`publish → PUBACK at ${shown(pace)} msg/s, p99`, 'ms', p99s[2], p99s[0]),
    ...((await more?.(stage, messages, size.rounds)) ?? []),
  ];
  for (const { link } of stage.clients) link.socket.destroy();
  await server.stop();
  return rows;
}

/** Forwards and backwards, so that none is always the one after the other. */
function inTurn<T>(all: readonly T[], round: number): readonly T[] {
  return round % 2 === 0 ? all : all.toReversed();
}

/** Acknowledged messages a second while nothing can be sent on, at levels 1 and 2. */
async function measureUnsent(stage: Stage, messages: number, rounds: number): Promise<Row[]> {
  const levels = [0, 1, 2] as const;
  const rates: Record<0 | 1 | 2, number[]> = { 0: [], 1: [], 2: [] };
  for (let round = 0; round < rounds; round += 1)
    for (const level of levels) rates[level].push(await acknowledge(stage, level, messages));
  const peer = { name: 'level 0', value: median(rates[0]) };
  return ([1, 2] as const).map((level) => ({
    what: `Level ${level} to ${stage.target.name} that is away, acknowledged`,
    ours: median(rates[level]),
    unit: 'msg/s',
    peer,
  }));
}

async function rateOf(stage: Stage, level: 0 | 2, messages: number): Promise<Rate> {
  const { server, target } = stage;
  const [expected, cpu, from] = [(await target.count()) + messages, server.cpu(), performance.now()];
  const acknowledged = await acknowledge(stage, level, messages);
  while (level === 2 && (await target.count()) < expected) {
    if (performance.now() - from > patience) throw new Error(`${target.name} has not got everything`);
    await sleep(look);
  }
  const arrived = level === 2 ? (messages / (performance.now() - from)) * 1000 : acknowledged;
  // The work is done when the outbox knows it, and nothing of it may burden the next run.
  while ((await stage.pending()) > 0) await sleep(look);
  return { acknowledged, arrived, cpu: ((server.cpu() - cpu) / messages) * 1e6 };
}

/** Publishes as fast as messages are acknowledged. @returns messages a second. */
async function acknowledge({ clients }: Stage, level: 0 | 1 | 2, messages: number): Promise<number> {
  const from = performance.now();
  const each = messages / clients.length;
  await Promise.all(clients.map(({ link, root }) => flood(link, `${root}/level${level}`, window, each).done));
  return (messages / (performance.now() - from)) * 1000;
}

/** Publishes at a fixed rate, whatever is acknowledged. @returns milliseconds from when each was due to its PUBACK. */
async function paced(clients: Client[], channel: string, duration: number): Promise<number[]> {
  const times: number[] = [];
  const [from, length] = [performance.now(), duration * (warmUp + measured)];
  for (const client of clients)
    client.took = (milliseconds, due) => due - from > duration * warmUp && times.push(milliseconds);
  const interval = 1000 / pace;
  for (let n = 0; n * interval < length; await sleep(1))
    for (; n * interval < Math.min(length, performance.now() - from); n += 1) {
      const { link, root, due } = clients[n % clients.length] as Client;
      const messageId = (Math.floor(n / clients.length) % 65_535) + 1;
      due.set(messageId, from + n * interval);
      link.send(publishBytes(`${root}/${channel}`, `,x,${n},`, { qos: 1, messageId }));
    }
  while (clients.some(({ due }) => due.size > 0)) await sleep(look);
  return times;
}

interface Answer {
  deviceTemplate: { id: string };
  device: { id: string };
  mqttCredential: { secret: string };
  bridge: { id: string; status: { pending: number } };
}

/** A bridge to the target, a stored channel for each level, and devices that are connected. */
async function setUp(server: ServingService, target: Target, devices: number): Promise<Stage> {
  const { call } = await logIn(server, accountId, admin);
  const post = (path: string, body: object) => call<Answer>('POST', path, { accountId, ...body });
  const { deviceTemplate } = await post('/devices/templates', { name: 'Bridged' });
  for (const streamBridgeDelivery of [0, 1, 2])
    await post('/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name: `level${streamBridgeDelivery}`,
      persistenceType: 'timeSeries',
      streamBridgeDelivery,
    });
  const { bridge } = await post('/bridges', { name: 'bench', ...target.bridge });
  const pending = async () => (await call<Answer>('GET', `/bridges/${bridge.id}`)).bridge.status.pending;
  const clients: Client[] = [];
  for (let n = 0; n < devices; n += 1) {
    const { device } = await post('/devices', { serialNumber: `${n}`, deviceTemplateId: deviceTemplate.id });
    const { mqttCredential } = await post('/access/mqtt-credentials', { entityId: device.id, entityType: 'device' });
    const login = { username: device.id, password: mqttCredential.secret, clientId: device.id };
    clients.push(await connect(server.mqttPort, login, `slipway/v1/${accountId}/d/${device.id}`));
  }
  return { server, target, clients, pending };
}

async function connect(port: number, login: Parameters<typeof openLink>[1], root: string): Promise<Client> {
  const due = new Map<number, number>();
  const hear = ({ cmd, messageId = 0 }: Packet) => {
    const when = due.get(messageId);
    if (cmd !== 'puback' || when === undefined) return;
    due.delete(messageId);
    client.took(performance.now() - when, when);
  };
  const client: Client = { link: await openLink({ port }, login, hear), root, due, took: () => {} };
  return client;
}
