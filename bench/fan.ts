/** Many publishers and one who hears them all, and one publisher whom many hear, next to bare Aedes. QoS 0, as fast as it arrives. */
import type { Packet } from 'mqtt-packet';
import { logIn } from './api.ts';
import { equip } from './equip.ts';
import { median, type Row } from './figures.ts';
import { type Link, openLink, publishBytes } from './link.ts';
import type { Serving } from './processes.ts';
import type { Bench } from './sizes.ts';

const many = 100;
/** Deliveries on their way at once. */
const window = 2000;
const payload = 'x'.repeat(64);
const figure = 0.95;

interface Side {
  serving: Serving;
  /** With what those who hear the devices log in. */
  listener: { username: string; password: string };
}

export async function measureFan({ size, directory, serve, serveBareAedes }: Bench): Promise<Row[]> {
  const seeded = await directory(1000);
  const devices = await equip(seeded, many);
  const accountId = devices[0]?.accountId ?? '';
  const service = await serve(seeded, {
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
    SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL: '0',
  });
  const { token } = await logIn(service, accountId);
  const ours: Side = { serving: service, listener: { username: 'Auth:JWT', password: token } };
  const bare: Side = { serving: await serveBareAedes(), listener: { username: 'anybody', password: '' } };
  const topics = devices.map(({ topic }) => topic('chat'));
  const everything = `slipway/v1/${accountId}/d/+/chat`;
  const rows: Row[] = [];
  for (const { what, publishers, subscribers, filter } of [
    { what: `Fan-in, ${many} publishers and one subscriber`, publishers: many, subscribers: 1, filter: everything },
    {
      what: `Fan-out, one publisher and ${many} subscribers`,
      publishers: 1,
      subscribers: many,
      filter: topics[0] ?? '',
    },
  ]) {
    const rates: Record<'ours' | 'theirs', number[]> = { ours: [], theirs: [] };
    const cpus: Record<'ours' | 'theirs', number[]> = { ours: [], theirs: [] };
    const run = async ({ serving, listener }: Side) => {
      const { mqttPort: port } = serving;
      const speaking = await Promise.all(
        devices
          .slice(0, publishers)
          .map(({ id, secret }) => openLink({ port }, { username: id, password: secret, clientId: id })),
      );
      const hearing = await Promise.all(
        Array.from({ length: subscribers }, (_, n) => hear(port, { ...listener, clientId: `listener-${n}` }, filter)),
      );
      const before = serving.cpu();
      const { perSecond, delivered } = await speak(speaking, topics, hearing, size.roundTime);
      const cpu = ((serving.cpu() - before) / delivered) * 1e6;
      for (const { socket } of [...speaking, ...hearing]) socket.destroy();
      return { perSecond, cpu };
    };
    for (let round = 0; round < size.rounds; round += 1) {
      const [mine, other] = [await run(ours), await run(bare)];
      rates.ours.push(mine.perSecond);
      rates.theirs.push(other.perSecond);
      cpus.ours.push(mine.cpu);
      cpus.theirs.push(other.cpu);
      console.log(
        `  ${what}: ${Math.round(mine.perSecond)} deliveries/s (${mine.cpu.toFixed(1)} µs of CPU time each), bare Aedes ${Math.round(other.perSecond)} (${other.cpu.toFixed(1)} µs)`,
      );
    }
    rows.push({
      what,
      ours: median(rates.ours),
      unit: 'deliveries/s',
      peer: { name: 'bare Aedes', value: median(rates.theirs) },
      figure: { ofPeer: figure },
    });
    rows.push({
      what: `CPU time of the server for a delivery, ${what.toLowerCase()}`,
      ours: median(cpus.ours),
      unit: 'µs',
      peer: { name: 'bare Aedes', value: median(cpus.theirs) },
    });
  }
  await service.stop();
  await bare.serving.stop();
  return rows;
}

/** Connects and subscribes. @throws Error when it is refused. */
async function hear(port: number, login: { username: string; password: string; clientId: string }, topic: string) {
  let granted: (code: unknown) => void = () => {};
  const subscribed = new Promise((resolve) => {
    granted = resolve;
  });
  const link = await openLink({ port }, login, (packet) => packet.cmd === 'suback' && granted(packet.granted[0]));
  if (link.returnCode !== 0) throw new Error(`refused with ${link.returnCode}`);
  link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] } as Packet);
  if ((await subscribed) !== 0) throw new Error(`${topic} was refused`);
  return link;
}

/** Publishers take turns; what has arrived makes room for more. */
async function speak(
  publishers: readonly Link[],
  topics: readonly string[],
  subscribers: readonly Link[],
  duration: number,
): Promise<{ perSecond: number; delivered: number }> {
  const packets = topics.map((topic) => publishBytes(topic, payload));
  const length = packets[0]?.length ?? Number.NaN;
  let [sent, bytes, turn, isOver] = [0, 0, 0, false];
  const send = () => {
    const free = Math.floor((window - (sent - bytes / length)) / subscribers.length);
    // Not one by one: so many systems calls would be the limit.
    const each = Math.floor(free / 4);
    if (isOver || each === 0) return;
    for (let n = 0; n < 4; n += 1) {
      turn = (turn + 1) % publishers.length;
      publishers[turn]?.socket.write(Buffer.concat(Array.from({ length: each }, () => packets[turn] as Buffer)));
      sent += each * subscribers.length;
    }
  };
  for (const { socket } of subscribers) {
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      send();
    });
  }
  send();
  const passed = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  await passed(duration / 5);
  const [before, from] = [bytes, performance.now()];
  await passed(duration);
  const delivered = (bytes - before) / length;
  const perSecond = (delivered / (performance.now() - from)) * 1000;
  isOver = true;
  if (delivered === 0) throw new Error('nothing arrives any more');
  return { perSecond, delivered: bytes / length };
}
