/** Random pipelines of valid packets, and what a client gets back for one. */
import { randomInt } from 'node:crypto';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import mqttPacket, { type Packet } from 'mqtt-packet';
import { createWebSocketStream, WebSocket } from 'ws';
import { soon } from '../support/until.ts';
import { frameIn, read } from './level5/packets.ts';
import { connectPacket, publishPacket, subscribePacket } from './raw.ts';

/** A generator of numbers that gives the same ones for the same seed. */
export type Random = (below: number) => number;

export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

export const anySeed = () => randomInt(2 ** 31);

export interface Topics {
  /** Channels that the client may use. */
  channels: string[];
  /** Filters that it is granted, and filters that are refused. */
  granted: string[];
  refused: string[];
  /** Topics on which it may not publish. */
  forbidden: string[];
}

/** Valid packets: filters granted and refused, messages of every QoS, retained ones among them. */
export function pipeline(random: Random, topics: Topics): Packet[] {
  const of = <T>(choices: readonly T[]): T => choices[random(choices.length)] as T;
  const packets: Packet[] = [];
  let id = 0;
  const filter = () => (random(3) === 0 ? of(topics.refused) : of(topics.granted));
  for (let count = 2 + random(9); count > 0; count -= 1) {
    id += 1;
    const kind = random(12);
    if (kind < 7) {
      const qos = random(3) as 0 | 1 | 2;
      const topic = random(8) === 0 ? of(topics.forbidden) : of(topics.channels);
      const payload = random(9) === 0 ? '' : `${id}`;
      packets.push(publishPacket(topic, payload, { qos, retain: random(4) === 0, ...(qos > 0 && { messageId: id }) }));
      if (qos === 2 && random(2) === 0) packets.push({ cmd: 'pubrel', messageId: id });
    } else if (kind < 10) {
      const wanted = Array.from({ length: 1 + random(3) }, (): [string, 0 | 1 | 2] => [
        filter(),
        random(3) as 0 | 1 | 2,
      ]);
      packets.push(subscribePacket(id, ...wanted));
    } else if (kind === 10) packets.push({ cmd: 'unsubscribe', messageId: id, unsubscriptions: [filter()] });
    else packets.push({ cmd: 'pingreq' });
  }
  return packets;
}

/** The same packets with what only MQTT 5 has: properties, aliases, options, identifiers and shared subscriptions. */
export function pipeline5(random: Random, topics: Topics): Packet[] {
  const sometimes = <T extends object>(one: T, oneIn = 3) => (random(oneIn) === 0 ? one : {});
  const aliased = new Map<number, string>();
  return pipeline(random, topics).map((packet): Packet => {
    if (packet.cmd === 'subscribe') {
      const subscriptions = packet.subscriptions.map(({ topic, qos }) => {
        const options = { qos, rap: random(2) === 0, rh: random(3) as 0 | 1 | 2 };
        return random(4) === 0
          ? { topic: `$share/g/${topic}`, ...options }
          : { topic, ...options, nl: random(4) === 0 };
      });
      const properties = sometimes({ subscriptionIdentifier: 1 + random(300) }, 2);
      return { ...packet, subscriptions, properties };
    }
    if (packet.cmd !== 'publish') return packet;
    const properties = {
      ...sometimes({ payloadFormatIndicator: true }),
      ...sometimes({ contentType: 'text/csv' }),
      ...sometimes({ responseTopic: topics.channels[0] as string }),
      ...sometimes({ correlationData: Buffer.from([random(256), 0]) }),
      ...sometimes({ userProperties: { a: ['1', '2'], b: '3' } }),
    };
    if (random(3) > 0) return { ...packet, properties };
    const topicAlias = 1 + random(3);
    const topic = aliased.get(topicAlias) === packet.topic ? '' : packet.topic;
    aliased.set(topicAlias, packet.topic);
    return { ...packet, topic, properties: { ...properties, topicAlias } };
  });
}

/** What came back: the answers in their order, and the messages in theirs. */
export interface Heard {
  answers: string[];
  messages: string[];
  /** Whether the connection ended before DISCONNECT was sent. */
  isCut: boolean;
}

export type Transport = (login: object) => Duplex;

export function transports({ port, securePort, url }: { port: number; securePort: number; url: string }) {
  return {
    tcp: () => connect({ port, host: '127.0.0.1', noDelay: true }),
    tls: () => connectTls({ port: securePort, host: '127.0.0.1', rejectUnauthorized: false }),
    webSocket: () => createWebSocketStream(new WebSocket(url, 'mqtt', { rejectUnauthorized: false })),
  } satisfies Record<string, () => Duplex>;
}

/** How a pipeline is sent: each packet after the answer to the one before, or all bytes cut at these places. */
export type Manner = 'one by one' | { cuts: number[] };

const owed: Record<string, string> = {
  subscribe: 'suback',
  unsubscribe: 'unsuback',
  pingreq: 'pingresp',
  pubrel: 'pubcomp',
};

/** Connects, sends the packets and a DISCONNECT, and resolves when the connection has ended. */
export async function converse(
  stream: Duplex,
  login: object,
  packets: Packet[],
  manner: Manner,
  level: 4 | 5 = 4,
): Promise<Heard> {
  const heard: Heard = { answers: [], messages: [], isCut: false };
  let onPacket: (cmd: string) => void = () => {};
  const hear = level === 5 ? hearing5(heard) : hearing4(heard);
  const closed = new Promise<void>((resolve) => {
    stream.once('close', () => resolve());
    // A WebSocket stays half open.
    stream.once('end', () => stream.destroy());
  });
  stream.on('data', (chunk: Buffer) => hear(chunk, (cmd) => onPacket(cmd)));
  stream.on('error', () => {});
  const answer = (cmd: string) =>
    soon(
      `a ${cmd}`,
      Promise.race([
        new Promise<void>((resolve) => {
          onPacket = (one) => one === cmd && resolve();
        }),
        closed.then(() => {
          heard.isCut = true;
        }),
      ]),
      () => heard.answers,
    );
  const bytesOf = (packet: Packet) => mqttPacket.generate(packet, { protocolVersion: level });
  const send = (packet: Packet) => stream.write(bytesOf(packet));
  const first = answer('connack');
  send(connectPacket({ protocolVersion: level, ...login }));
  await first;
  if (manner === 'one by one') {
    for (const packet of packets) {
      const cmd = packet.cmd === 'publish' ? ['', 'puback', 'pubrec'][packet.qos] : owed[packet.cmd];
      const answered = cmd ? answer(cmd) : undefined;
      send(packet);
      await answered;
      // Until what follows from it has come as well: the answer to a PINGREQ comes after.
      if (packet.cmd === 'pingreq' || heard.isCut) continue;
      const settled = answer('pingresp');
      send({ cmd: 'pingreq' });
      await settled;
      heard.answers.splice(heard.answers.lastIndexOf(pong), 1);
    }
    send({ cmd: 'disconnect' });
  } else {
    const bytes = Buffer.concat([...packets, { cmd: 'disconnect' } as Packet].map(bytesOf));
    let from = 0;
    for (const to of [...manner.cuts, bytes.length]) {
      stream.write(bytes.subarray(from, to));
      from = to;
      // A segment of its own.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  await closed;
  return heard;
}

const pong = 'pingresp  ';
/** Presence and offers of firmware come when the service likes. */
const ofService = /\/(_updates\/fields|_firmware|_commands)$/;
type Hear = (chunk: Buffer, then: (cmd: string) => void) => void;

function hearing4(heard: Heard): Hear {
  const parser = mqttPacket.parser();
  let onPacket: (cmd: string) => void = () => {};
  parser.on('packet', (packet: Packet) => {
    if (packet.cmd === 'publish') {
      const { topic, qos, retain, payload } = packet;
      if (!ofService.test(topic)) heard.messages.push(`${topic.slice(-12)} ${qos} ${retain} ${payload}`);
    } else if (packet.cmd !== 'connack')
      heard.answers.push(`${packet.cmd} ${packet.messageId ?? ''} ${packet.cmd === 'suback' ? packet.granted : ''}`);
    onPacket(packet.cmd);
  });
  return (chunk, then) => {
    onPacket = then;
    parser.parse(chunk);
  };
}

function hearing5(heard: Heard): Hear {
  let bytes = Buffer.alloc(0);
  const aliased = new Map<number, string>();
  const note = ({ cmd, topic, id, ...said }: Omit<ReturnType<typeof read>, 'size'>) => {
    const { code, codes, qos, retain, payload, properties } = said;
    if (cmd === 'publish') {
      // Which alias a topic has, messages of the service have a part in.
      const { topicAlias, ...others } = properties;
      const name = topic || (aliased.get(topicAlias ?? 0) ?? 'no topic');
      if (topicAlias) aliased.set(topicAlias, name);
      if (!ofService.test(name))
        heard.messages.push(`${name.slice(-12)} ${qos} ${retain} ${payload} ${JSON.stringify(others)}`);
    } else if (cmd === 'pingresp') heard.answers.push(pong);
    else if (cmd !== 'connack') heard.answers.push(`${cmd} ${id} ${codes ?? code} ${JSON.stringify(properties)}`);
  };
  return (chunk, then) => {
    bytes = Buffer.concat([bytes, chunk]);
    for (let frame = frameIn(bytes); frame; frame = frameIn(bytes)) {
      bytes = bytes.subarray(frame.size);
      const packet = read(frame.first, frame.body, frame.size);
      note(packet);
      then(packet.cmd);
    }
  };
}

/** Up to three places, in order. */
export function cutsOf(random: Random, packets: Packet[], level: 4 | 5 = 4): number[] {
  const sizeOf = (packet: Packet) => mqttPacket.generate(packet, { protocolVersion: level }).length;
  const length = packets.reduce((sum, packet) => sum + sizeOf(packet), 2);
  return Array.from({ length: random(4) }, () => random(length)).sort((one, other) => one - other);
}
