/** Conversations over MQTT: right packets in any order, and bytes that were changed, over TCP and WebSocket. */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import fc, { type Arbitrary } from 'fast-check';
import mqttPacket from 'mqtt-packet';
import { createWebSocketStream, WebSocket } from 'ws';
import {
  answerBytes,
  connectBytes,
  packetBytes,
  publishBytes,
  subscribeBytes,
  unsubscribeBytes,
} from '../broker/bytes.ts';
import type { Known } from './cast.ts';
import { fill } from './cast.ts';
import { hostileText, type Spoil, spoil, spoils } from './hostile.ts';

/** Milliseconds for the answer to what was sent; who is owed none is not waited for longer. */
const patience = 120;

/** One packet: how it is made of what is known, and what becomes of its bytes. */
interface Step {
  packet: Packet;
  spoils: Spoil[];
}

type Packet =
  | {
      is: 'connect';
      who: 'device' | 'user' | 'stranger' | 'nobody';
      flags: number;
      clientId: string;
      will: boolean;
      level: number;
    }
  | { is: 'publish'; topic: string; payload: string; flags: number; id: number }
  | { is: 'subscribe'; filters: string[]; qos: number; id: number }
  | { is: 'unsubscribe'; filters: string[]; qos: number; id: number }
  | { is: 'answer'; first: number; id: number }
  | { is: 'bare'; first: number; length: number };

export interface Conversation extends Manner {
  steps: Step[];
}

const id = fc.constantFrom(1, 1, 2, 3, 0, 65_535);
const topic = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('«temperature»', '«chat»', '«log»', '«fields»') },
  fc.constantFrom('#', '+/+', '', '$SYS/a', '«temperature»/x', '/'.repeat(300), '«temperature»\0'),
  hostileText,
);
const payload = fc.oneof(
  fc.constantFrom(
    '21.5',
    ',a,1,',
    '{"a":1}',
    '{"state":{"name":"x"}}',
    '{"message":"x"}',
    '',
    '[{"n":"a","v":1}]',
    'x'.repeat(140_000),
  ),
  hostileText,
);
const connectPacket = fc.record({
  is: fc.constant('connect' as const),
  who: fc.constantFrom('device', 'device', 'device', 'user', 'stranger', 'nobody'),
  flags: fc.oneof({ weight: 5, arbitrary: fc.constantFrom(0, 2) }, fc.nat(255)),
  clientId: fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom('fuzz', 'fuzz 2', '') },
    hostileText.map((text) => text.slice(0, 30_000)),
  ),
  will: fc.constantFrom(false, false, true),
  level: fc.constantFrom(4, 4, 4, 4, 3, 5, 0, 132),
});
const packet: Arbitrary<Packet> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      is: fc.constant('publish' as const),
      topic,
      payload,
      flags: fc.constantFrom(0, 1, 2, 3, 4, 5, 10, 12, 6),
      id,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      is: fc.constantFrom('subscribe' as const, 'unsubscribe' as const),
      filters: fc.array(topic, { maxLength: 4 }),
      qos: fc.constantFrom(0, 1, 2, 2, 3, 128),
      id,
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      is: fc.constant('answer' as const),
      first: fc.constantFrom(0x40, 0x50, 0x62, 0x62, 0x70, 0x60),
      id,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant('bare' as const),
      first: fc.constantFrom(0xc0, 0xe0, 0xd0, 0x20, 0x90, 0xf0, 0x00),
      length: fc.constantFrom(0, 0, 2, 100),
    }),
  },
  { weight: 1, arbitrary: connectPacket as Arbitrary<Packet> },
) as Arbitrary<Packet>;
const step = (one: Arbitrary<Packet>, oneIn: number): Arbitrary<Step> =>
  fc.record({
    packet: one,
    spoils: fc.oneof({ weight: oneIn - 1, arbitrary: fc.constant<Spoil[]>([]) }, { weight: 1, arbitrary: spoils }),
  });

/** Most begin with a CONNECT that is as it should be. */
export function conversations(over: Conversation['over']): Arbitrary<Conversation> {
  const good = connectPacket.map(
    (one): Packet => ({ ...one, who: 'device', level: 4, flags: one.flags & 2, clientId: 'fuzz' }),
  );
  const first = fc.oneof(
    { weight: 6, arbitrary: step(good, 30) },
    { weight: 3, arbitrary: step(connectPacket as Arbitrary<Packet>, 3) },
    { weight: 1, arbitrary: step(packet, 2) },
  );
  return fc
    .tuple(first, fc.array(step(packet, 6), { maxLength: 8 }), fc.constantFrom(0, 0, 0, 1, 7))
    .map(([head, rest, chunk]) => ({ steps: [head, ...rest], chunk, over }));
}

export function bytesOfAll({ steps }: Conversation, known: Known): Buffer {
  return Buffer.concat(steps.map(({ packet, spoils }) => spoil(bytesOf(packet, known), spoils)));
}

/** How bytes travel: in chunks of so many, 0 for all at once. */
export interface Manner {
  chunk: number;
  over: 'tcp' | 'websocket';
}

/** Takes what comes back, and says whether the last word has come; throws at what no broker says. */
export type Hearing = (data: Buffer) => { count: number; isOver: boolean };

/**
 * Sends the bytes, and waits for the end or for the answer to a last PINGREQ. Resolves to the packets that came back.
 * @throws Error when what comes back is no MQTT, or something else comes before CONNACK.
 */
export async function exchange(
  bytes: Buffer,
  { chunk, over }: Manner,
  url: string,
  mqttPort: number,
  hear: Hearing,
): Promise<number> {
  const stream =
    over === 'tcp'
      ? connect(mqttPort, '127.0.0.1')
      : createWebSocketStream(new WebSocket(`${url.replace('http', 'ws')}/mqtt`, 'mqtt'));
  let wrong: Error | undefined;
  let count = 0;
  const done = new Promise<void>((resolve) => {
    stream.on('data', (data: Buffer) => {
      try {
        const heard = hear(data);
        count = heard.count;
        if (heard.isOver) resolve();
      } catch (error) {
        wrong ??= error as Error;
        resolve();
      }
    });
    stream.on('error', () => {});
    stream.on('close', resolve);
  });
  const size = chunk === 0 ? bytes.length : Math.max(chunk, Math.ceil(bytes.length / 50));
  for (let at = 0; at < bytes.length; at += size) stream.write(bytes.subarray(at, at + size));
  stream.write(Buffer.from([0xc0, 0]));
  await Promise.race([done, sleep(patience)]);
  stream.destroy();
  if (wrong) throw wrong;
  return count;
}

/** Hears level 4. */
export function hearing(): Hearing {
  const parser = mqttPacket.parser();
  const heard = { count: 0, isOver: false };
  let wrong: Error | undefined;
  parser.on('packet', ({ cmd }) => {
    heard.count += 1;
    if (heard.count === 1 && cmd !== 'connack') wrong = new Error(`${cmd} came before CONNACK`);
    if (cmd === 'pingresp') heard.isOver = true;
  });
  parser.on('error', (error) => {
    wrong = new Error(`what came back is no MQTT: ${error.message}`);
  });
  return (data) => {
    parser.parse(data);
    if (wrong) throw wrong;
    return heard;
  };
}

function bytesOf(packet: Packet, known: Known): Buffer {
  const named = (text: string) => fill(text, known);
  const field = (text: string) => cut(named(text));
  switch (packet.is) {
    case 'publish':
      return publishBytes(field(packet.topic), packet.payload, packet.flags, packet.id);
    case 'subscribe':
      return subscribeBytes(packet.id, packet.filters.map(field), packet.qos);
    case 'unsubscribe':
      return unsubscribeBytes(packet.id, packet.filters.map(field));
    case 'answer':
      return answerBytes(packet.first, packet.id);
    case 'bare':
      return packetBytes(packet.first, Buffer.alloc(packet.length));
    case 'connect': {
      const logins = {
        device: { username: named('«device»'), password: named('«secret»') },
        user: { username: 'Auth:JWT', password: named('«jwt»') },
        stranger: { username: named('«otherDevice»'), password: 'wrong' },
        nobody: {},
      };
      const will = packet.will ? { will: { topic: named('«chat»'), payload: 'gone' } } : {};
      const { clientId, flags, level, who } = packet;
      return connectBytes({ clientId, flags, level, ...will, ...logins[who] });
    }
  }
}

/** A text of MQTT has 65,535 bytes at most. */
export function cut(text: string): Buffer {
  return Buffer.from(text).subarray(0, 65_535);
}
