/** From publish to receive on an idle broker, one message at a time. */
import type { Packet } from 'mqtt-packet';
import { type Equipped, equip } from './equip.ts';
import { at, described, median, type Row } from './figures.ts';
import { type Link, openLink, publishBytes } from './link.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';

const warmUp = 300;
/** For each of those that `Size.asks` counts. */
const messagesEach = 30;
/** Milliseconds, p99. */
const figure = 3;
const channels = ['chat', 'temperature'] as const;

export async function measureLatency({ size, directory, serve, serveBareAedes }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const [device] = await equip(seeded, 1);
  if (!device) throw new Error('no device');
  const messages = size.asks * messagesEach;
  const ours = await serve(seeded);
  const bare = await serveBareAedes();
  console.log(`publish → receive, ${messages} messages one after the other\n`);
  let [slowest, barely] = [0, 0];
  for (const sockets of [1, 2] as const)
    for (const qos of [0, 1] as const) {
      const way = `${sockets === 1 ? 'one socket ' : 'two sockets'}  QoS ${qos}`;
      const p99 = new Map<string, number[]>();
      const bounced = async (name: string, serving: Serving, channel: (typeof channels)[number]) => {
        const times = await bounce(serving, device, channel, sockets, qos, Math.ceil(messages / size.rounds));
        p99.set(name, [...(p99.get(name) ?? []), at(times, 0.99)]);
        console.log(`  ${way}  ${name.padEnd(11)}  ${described(times)}`);
      };
      // In turns, so that a busy moment of the machine is nobody's alone.
      for (let round = 0; round < size.rounds; round += 1) {
        for (const channel of channels) await bounced(channel, ours, channel);
        await bounced('bare Aedes', bare, 'chat');
      }
      for (const channel of channels) slowest = Math.max(slowest, median(p99.get(channel) ?? []));
      barely = Math.max(barely, median(p99.get('bare Aedes') ?? []));
    }
  await ours.stop();
  await bare.stop();
  return [
    {
      what: 'Publish → receive, idle, slowest p99 of 8 ways',
      ours: slowest,
      unit: 'ms',
      peer: { name: 'bare Aedes', value: barely },
      figure: { below: figure },
    },
  ];
}

async function bounce(
  { mqttPort: port }: Serving,
  device: Equipped,
  channel: (typeof channels)[number],
  sockets: 1 | 2,
  qos: 0 | 1,
  messages: number,
): Promise<number[]> {
  let heard: () => void = () => {};
  let acknowledged: () => void = () => {};
  const hear = (packet: Packet, link: Link) => {
    if (packet.cmd === 'puback') acknowledged();
    if (packet.cmd === 'suback') heard();
    if (packet.cmd !== 'publish') return;
    if (packet.qos === 1) link.send({ cmd: 'puback', messageId: packet.messageId ?? 0 });
    heard();
  };
  const login = (clientId: string) => ({ username: device.id, password: device.secret, clientId });
  const subscriber = await openLink({ port }, login('subscriber'), hear);
  const publisher = sockets === 1 ? subscriber : await openLink({ port }, login('publisher'), hear);
  const subscribed = new Promise<void>((resolve) => {
    heard = resolve;
  });
  const topic = device.topic(channel);
  subscriber.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos }] } as Packet);
  await subscribed;

  const times: number[] = [];
  for (let n = -warmUp; n < messages; n += 1) {
    const received = new Promise<void>((resolve) => {
      heard = resolve;
    });
    const over =
      qos === 0
        ? undefined
        : new Promise<void>((resolve) => {
            acknowledged = resolve;
          });
    const from = performance.now();
    publisher.send(publishBytes(topic, `,x,${n},`, { qos, messageId: 7 }));
    await received;
    if (n >= 0) times.push(performance.now() - from);
    await over;
  }
  for (const { socket } of [publisher, subscriber]) socket.destroy();
  return times;
}
