/**
 * Many publishers and one who hears them all, and one publisher whom many hear, next to bare Aedes, at QoS 0; and a group of a
 * shared subscription that hears them next to one subscriber, at QoS 1. As fast as it arrives.
 */
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
/** Room for so many more is waited for: with less, the system calls of many small parts would be the limit. */
const room = 100;
const payload = 'x'.repeat(64);
const figure = 0.95;
const groupSize = 10;
/** What a group takes of what one subscriber takes. */
const groupFigure = 0.9;

interface Side {
  serving: Serving;
  /** With what those who hear the devices log in. */
  listener: { username: string; password: string };
}

/** Who speaks to whom; each message arrives `copies` times. */
interface Fan {
  qos: 0 | 1;
  publishers: number;
  subscribers: number;
  copies: number;
  filter: string;
}

interface Rate {
  perSecond: number;
  /** Microseconds of the server for a delivery. */
  cpu: number;
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
  const listener = { username: 'Auth:JWT', password: token };
  const ours: Side = { serving: service, listener };
  const bare: Side = {
    serving: await serveBareAedes(),
    listener: { username: 'anybody', password: '' },
  };
  const topics = devices.map(({ topic }) => topic('chat'));
  const everything = `slipway/v1/${accountId}/d/+/chat`;
  const fanIn: Fan = { qos: 0, publishers: many, subscribers: 1, copies: 1, filter: everything };
  const fanOut: Fan = { qos: 0, publishers: 1, subscribers: many, copies: many, filter: topics[0] ?? '' };
  const one: Fan = { ...fanIn, qos: 1 };
  const group: Fan = { ...one, subscribers: groupSize, filter: `$share/group/${everything}` };

  const rateOf = async ({ serving, listener }: Side, fan: Fan): Promise<Rate> => {
    const { mqttPort: port } = serving;
    const speaking = await Promise.all(
      devices
        .slice(0, fan.publishers)
        .map(({ id, secret }) => openLink({ port }, { username: id, password: secret, clientId: id })),
    );
    const login = (n: number) => ({ ...listener, clientId: `listener-${n}` });
    const hearing = await Promise.all(Array.from({ length: fan.subscribers }, (_, n) => hear(port, login(n), fan)));
    const before = serving.cpu();
    const { perSecond, delivered } = await speak(speaking, topics, hearing, fan, size.roundTime);
    const cpu = ((serving.cpu() - before) / delivered) * 1e6;
    for (const { socket } of [...speaking, ...hearing]) socket.destroy();
    return { perSecond, cpu };
  };
  /** One fan next to the same of another side, or another fan of ours, in turns. */
  const compare = async (what: string, fan: Fan, peer: { name: string; side: Side; fan: Fan }, figure: number) => {
    const [mine, others]: [Rate[], Rate[]] = [[], []];
    for (let round = 0; round < size.rounds; round += 1) {
      mine.push(await rateOf(ours, fan));
      others.push(await rateOf(peer.side, peer.fan));
      const said = [mine.at(-1), others.at(-1)].map(
        (rate) => `${Math.round(rate?.perSecond ?? 0)} deliveries/s (${rate?.cpu.toFixed(1)} µs of CPU time each)`,
      );
      console.log(`  ${what}: ${said[0]}, ${peer.name} ${said[1]}`);
    }
    return rowsOf(what, mine, { name: peer.name, rates: others }, figure);
  };
  const next = (fan: Fan) => ({ name: 'bare Aedes', side: bare, fan });
  const single = { name: 'one subscriber', side: ours, fan: one };
  const rows = [
    ...(await compare(`Fan-in, ${many} publishers and one subscriber`, fanIn, next(fanIn), figure)),
    ...(await compare(`Fan-out, one publisher and ${many} subscribers`, fanOut, next(fanOut), figure)),
    ...(await compare(
      `QoS 1, ${many} publishers and a shared subscription of ${groupSize} members`,
      group,
      single,
      groupFigure,
    )),
  ];
  await service.stop();
  await bare.serving.stop();
  return rows;
}

function rowsOf(what: string, mine: Rate[], peer: { name: string; rates: Rate[] }, figure: number): Row[] {
  const middle = (rates: Rate[], name: keyof Rate) => median(rates.map((one) => one[name]));
  const value = (name: keyof Rate) => ({ name: peer.name, value: middle(peer.rates, name) });
  return [
    {
      what,
      ours: middle(mine, 'perSecond'),
      unit: 'deliveries/s',
      peer: value('perSecond'),
      figure: { ofPeer: figure },
    },
    {
      what: `CPU time of the server for a delivery, ${what.toLowerCase()}`,
      ours: middle(mine, 'cpu'),
      unit: 'µs',
      peer: value('cpu'),
    },
  ];
}

/** Connects and subscribes. @throws Error when it is refused. */
async function hear(
  port: number,
  login: { username: string; password: string; clientId: string },
  { filter, qos }: Fan,
) {
  let granted: (code: unknown) => void = () => {};
  const subscribed = new Promise((resolve) => {
    granted = resolve;
  });
  const link = await openLink({ port }, login, (packet) => packet.cmd === 'suback' && granted(packet.granted[0]));
  if (link.returnCode !== 0) throw new Error(`refused with ${link.returnCode}`);
  link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: filter, qos }] } as Packet);
  if ((await subscribed) !== qos) throw new Error(`${filter} was refused`);
  return link;
}

/** Publishers take turns; what has arrived makes room for more. All packets have one length. */
async function speak(
  publishers: readonly Link[],
  topics: readonly string[],
  subscribers: readonly Link[],
  { qos, copies }: Fan,
  duration: number,
): Promise<{ perSecond: number; delivered: number }> {
  const packets = topics.map((topic) => publishBytes(topic, payload, qos === 1 ? { qos, messageId: 1 } : {}));
  const length = packets[0]?.length ?? Number.NaN;
  const idAt = length - payload.length - 2;
  let [sent, bytes, turn, isOver, id] = [0, 0, 0, false, 0];
  const nextId = () => {
    id = (id % 65_535) + 1;
    return id;
  };
  const send = () => {
    const free = Math.floor((window - (sent - bytes / length)) / copies);
    const each = Math.floor(free / 4);
    if (isOver || each === 0 || free < room / copies) return;
    for (let n = 0; n < 4; n += 1) {
      turn = (turn + 1) % publishers.length;
      const burst = Buffer.concat(Array.from({ length: each }, () => packets[turn] as Buffer));
      if (qos === 1) for (let at = 0; at < burst.length; at += length) burst.writeUInt16BE(nextId(), at + idAt);
      publishers[turn]?.socket.write(burst);
      sent += each * copies;
    }
  };
  // Acknowledgements only have to be read.
  for (const { socket } of publishers) socket.removeAllListeners('data').resume();
  for (const { socket } of subscribers) {
    let rest: Buffer = Buffer.alloc(0);
    socket.removeAllListeners('data');
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (qos === 1) {
        const all = Buffer.concat([rest, chunk]);
        const whole = all.length - (all.length % length);
        const acknowledgements: Buffer[] = [];
        for (let at = idAt; at < whole; at += length)
          acknowledgements.push(Buffer.from([0x40, 2, all[at] as number, all[at + 1] as number]));
        rest = all.subarray(whole);
        if (acknowledgements.length > 0) socket.write(Buffer.concat(acknowledgements));
      }
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
