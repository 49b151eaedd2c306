/** What honest clients feel of those who do harm: from publish to receive, and the memory of the service. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Packet } from 'mqtt-packet';
import { disturb, disturbances } from './disturber.js';
import { type Equipped, equip } from './equip.js';
import { at, described, type Row } from './figures.js';
import { type Link, openLink, publishBytes } from './link.js';
import type { ServingService } from './processes.js';
import type { Bench } from './sizes.js';

const pairs = 20;
/** Milliseconds between two messages of one publisher. */
const beat = 50;
/** Milliseconds for what a disturbance leaves behind. */
const afterwards = 2000;
/** Milliseconds, p99, while disturbed. */
const figure = 100;

export async function measureDisturbance({ size, directory, serve }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const [villain, ...honest] = await equip(seeded, pairs + 1);
  if (!villain) throw new Error('no device');
  const service = await serve(seeded);
  const { id, secret } = villain;
  const means = {
    port: service.mqttPort,
    id,
    secret,
    topic: villain.topic('chat'),
    stored: villain.topic('temperature'),
  };
  const talk = await startTalk(service, honest);
  await during(service, talk, size.duration);
  console.log(
    `${pairs} publishers and ${pairs} subscribers, QoS 1, ${Math.round((1000 / beat) * pairs)} msg/s together`,
  );
  console.log('publish → receive, and memory before, at most and after (it moves by some 30 MB with garbage)\n');
  let slowest = 0;
  for (const kind of ['alone', ...disturbances]) {
    const before = service.rss();
    const disturbing = kind === 'alone' ? undefined : disturb(kind, means);
    const { times, most } = await during(service, talk, size.duration);
    await disturbing?.stop();
    await sleep(afterwards);
    talk.take();
    if (disturbing) slowest = Math.max(slowest, at(times, 0.99));
    console.log(`  ${kind.padEnd(50)} ${described(times)}  ${before} → ${most} → ${service.rss()} MB`);
  }
  await talk.stop();
  await service.stop();
  return [
    {
      what: 'Publish → receive beside those who do harm, slowest p99',
      ours: slowest,
      unit: 'ms',
      figure: { below: figure },
    },
  ];
}

interface Talk {
  /** Milliseconds that each message took since the last call. */
  take(): number[];
  stop(): Promise<void>;
}

/** One device each for a publisher and its subscriber; each message says when it was sent. */
async function startTalk({ mqttPort: port }: ServingService, devices: Equipped[]): Promise<Talk> {
  let times: number[] = [];
  const hear = (packet: Packet, link: Link) => {
    if (packet.cmd !== 'publish') return;
    times.push(performance.now() - Number(packet.payload.toString()));
    link.send({ cmd: 'puback', messageId: packet.messageId ?? 0 });
  };
  const publishers: Link[] = [];
  const subscribers: Link[] = [];
  for (const { id, secret, topic } of devices) {
    const login = { username: id, password: secret };
    const subscriber = await openLink({ port }, { ...login, clientId: 'subscriber' }, hear);
    subscriber.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: topic('chat'), qos: 1 }] } as Packet);
    subscribers.push(subscriber);
    publishers.push(await openLink({ port }, { ...login, clientId: 'publisher' }));
  }
  let n = 0;
  // They take turns, so that no two speak in the same moment.
  const timer = setInterval(() => {
    n += 1;
    const which = n % devices.length;
    const topic = devices[which]?.topic('chat') ?? '';
    const messageId = (n % 65_535) + 1;
    publishers[which]?.send(publishBytes(topic, String(performance.now()), { qos: 1, messageId }));
  }, beat / devices.length);
  return {
    take: () => {
      const taken = times;
      times = [];
      return taken;
    },
    stop: async () => {
      clearInterval(timer);
      for (const { socket } of [...publishers, ...subscribers]) socket.destroy();
    },
  };
}

async function during(
  service: ServingService,
  talk: Talk,
  duration: number,
): Promise<{ times: number[]; most: number }> {
  talk.take();
  let most = 0;
  const until = performance.now() + duration;
  while (performance.now() < until) {
    most = Math.max(most, service.rss());
    await sleep(100);
  }
  return { times: talk.take(), most };
}
