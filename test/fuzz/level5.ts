/** Conversations of MQTT 5: right packets with properties of all kinds, in any order, and bytes that were changed. */
import fc, { type Arbitrary } from 'fast-check';
import { packetBytes } from '../broker/bytes.ts';
import {
  answer,
  block,
  connect,
  disconnect,
  frameIn,
  type Name,
  type Pair,
  publish,
  read,
  subscribe,
  unsubscribe,
} from '../broker/level5/packets.ts';
import { fill, type Known } from './cast.ts';
import { hostileText, type Spoil, spoil, spoils } from './hostile.ts';
import { cut, type Hearing, type Manner } from './packets.ts';

type Said = Array<[Name, number | string | Pair]>;
interface Step {
  packet: Packet;
  spoils: Spoil[];
}
type Packet =
  | {
      is: 'connect';
      who: 'device' | 'user' | 'stranger' | 'nobody';
      clientId: string;
      clean: boolean;
      flags: number;
      keepAlive: number;
      level: number;
      properties: Said;
      will?: { topic: string; payload: string; qos: number; retain: boolean; properties: Said } | undefined;
    }
  | { is: 'publish'; topic: string; payload: string; flags: number; id: number; properties: Said }
  | { is: 'subscribe'; filters: Array<[filter: string, options: number]>; id: number; properties: Said }
  | { is: 'unsubscribe'; filters: string[]; id: number; properties: Said }
  | {
      is: 'answer';
      to: 'puback' | 'pubrec' | 'pubrel' | 'pubcomp';
      id: number;
      code?: number | undefined;
      properties: Said;
    }
  | { is: 'disconnect' | 'auth'; code?: number | undefined; properties: Said }
  | { is: 'bare'; first: number; length: number };

export interface Conversation5 extends Manner {
  steps: Step[];
}

// Properties

const numbers: Name[] = [
  ...(['payloadFormat', 'messageExpiry', 'subscriptionIdentifier', 'sessionExpiry', 'serverKeepAlive'] as const),
  ...(['requestProblemInformation', 'willDelay', 'requestResponseInformation', 'receiveMaximum'] as const),
  ...(['topicAliasMaximum', 'topicAlias', 'maximumQos', 'retainAvailable', 'maximumPacketSize'] as const),
  ...(['wildcardAvailable', 'identifiersAvailable', 'sharedAvailable'] as const),
];
const texts: Name[] = [
  ...(['contentType', 'responseTopic', 'correlationData', 'assignedClientId', 'authenticationMethod'] as const),
  ...(['authenticationData', 'responseInformation', 'serverReference', 'reasonString'] as const),
];
const number = fc.oneof(
  { weight: 20, arbitrary: fc.constant(1) },
  { weight: 4, arbitrary: fc.constantFrom(0, 2, 3, 32, 33) },
  fc.constantFrom(127, 128, 255, 256, 65_535, 2 ** 28 - 1, 2 ** 28, 2 ** 31, 2 ** 32 - 1),
);
const text = fc.oneof(
  { weight: 20, arbitrary: fc.constantFrom('«chat»', '«temperature»', 'text/csv', 'application/json', 'a') },
  hostileText,
);
const pair = fc.tuple(text, text);
const numeric = (names: readonly Name[]) => fc.tuple(fc.constantFrom(...names), number);
const textual = (names: readonly Name[]) => fc.tuple(fc.constantFrom(...names), text);
const user = fc.tuple(fc.constant('userProperties' as Name), pair);
const many = user.map((one): Said => Array.from({ length: 40 }, () => one));

/** What the packet may carry, mostly, and what it may not. */
function properties(some: readonly Name[], words: readonly Name[] = []): Arbitrary<Said> {
  const own = [
    ...(some.length > 0 ? [{ weight: 8, arbitrary: numeric(some) }] : []),
    ...(words.length > 0 ? [{ weight: 8, arbitrary: textual(words) }] : []),
    { weight: 4, arbitrary: user },
  ];
  const any = fc.oneof(...own, numeric(numbers), textual(texts)) as Arbitrary<Said[number]>;
  const once = fc.uniqueArray(fc.oneof(...own) as Arbitrary<Said[number]>, {
    maxLength: 4,
    selector: ([name]) => name,
  });
  return fc.oneof(
    { weight: 16, arbitrary: fc.constant<Said>([]) },
    { weight: 10, arbitrary: once },
    { weight: 1, arbitrary: fc.array(any, { maxLength: 6 }) },
    { weight: 1, arbitrary: many },
  );
}

const ofConnect = properties(
  [
    ...(['sessionExpiry', 'receiveMaximum', 'maximumPacketSize', 'topicAliasMaximum'] as const),
    ...(['requestProblemInformation', 'requestResponseInformation'] as const),
  ],
  ['authenticationMethod', 'authenticationData'],
);
const message = ['payloadFormat', 'messageExpiry'] as const;
const about = ['contentType', 'responseTopic', 'correlationData'] as const;
const ofWill = properties(['willDelay', ...message], about);
const ofAnswer = properties([], ['reasonString']);

// Packets

const id = fc.constantFrom(1, 1, 1, 1, 2, 2, 3, 4, 0, 65_535);
const channel = fc.constantFrom('«temperature»', '«chat»', '«log»', '«fields»');
const topic = fc.oneof(
  { weight: 16, arbitrary: channel },
  fc.constantFrom('', '#', '$SYS/a', '«temperature»/x', '/'.repeat(300), '«temperature»\0'),
  hostileText,
);
const filter = fc.oneof(
  { weight: 4, arbitrary: channel },
  {
    weight: 3,
    arbitrary: fc.constantFrom('a', 'b', '', '#', 'é').chain((name) => channel.map((of) => `$share/${name}/${of}`)),
  },
  fc.constantFrom(
    '#',
    '+/+',
    '',
    '$share',
    '$share/',
    '$share/a',
    '$share/a/',
    '$share//#',
    `$share/${'a'.repeat(101)}/#`,
  ),
  topic,
);
const payload = fc.oneof(
  fc.constantFrom('21.5', ',a,1,', '{"a":1}', '{"message":"x"}', '', '[{"n":"a","v":1}]', '\xff', 'x'.repeat(140_000)),
  hostileText,
);
const code = fc.option(fc.constantFrom(0, 0, 0x04, 0x10, 0x18, 0x19, 0x80, 0x87, 0x92, 0x97, 0x9f, 0xff), {
  nil: undefined,
});
const connecting = fc.record({
  is: fc.constant('connect' as const),
  who: fc.constantFrom('device', 'device', 'device', 'user', 'stranger', 'nobody'),
  clientId: fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom('fuzz', 'fuzz 2', '') },
    hostileText.map((one) => one.slice(0, 30_000)),
  ),
  clean: fc.boolean(),
  flags: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.nat(255)),
  keepAlive: fc.constantFrom(60, 60, 0, 1, 65_535),
  level: fc.constantFrom(5, 5, 5, 5, 5, 6, 4, 133),
  properties: ofConnect,
  will: fc.option(
    fc.record({
      topic,
      payload: payload.map((one) => one.slice(0, 60_000)),
      qos: fc.nat(3),
      retain: fc.boolean(),
      properties: ofWill,
    }),
    { nil: undefined, freq: 2 },
  ),
});
// QoS, No Local 4, Retain As Published 8, Retain Handling 16 and 32; the others are malformed.
const options = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom(0, 1, 2, 4, 9, 14, 0x12, 0x22) },
  fc.constantFrom(3, 0x30, 0x40, 128),
);
const packet = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      is: fc.constant('publish' as const),
      topic,
      payload,
      flags: fc.constantFrom(0, 1, 2, 3, 4, 5, 10, 12, 6),
      id,
      properties: properties(['topicAlias', 'topicAlias', 'subscriptionIdentifier', ...message], about),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      is: fc.constant('subscribe' as const),
      filters: fc.array(fc.tuple(filter, options), {
        maxLength: 4,
      }),
      id,
      properties: properties(['subscriptionIdentifier']),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant('unsubscribe' as const),
      filters: fc.array(filter, { minLength: 1, maxLength: 4 }),
      id,
      properties: properties([]),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      is: fc.constant('answer' as const),
      to: fc.constantFrom('puback', 'pubrec', 'pubrel', 'pubrel', 'pubcomp'),
      id,
      code,
      properties: ofAnswer,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      is: fc.constantFrom('disconnect' as const, 'auth' as const),
      code,
      properties: properties(['sessionExpiry'], ['reasonString', 'authenticationMethod', 'authenticationData']),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant('bare' as const),
      first: fc.constantFrom(0xc0, 0xc0, 0xc0, 0xc0, 0xe0, 0xd0, 0x20, 0x90, 0xf0, 0x00),
      length: fc.constantFrom(0, 0, 0, 0, 2, 100),
    }),
  },
  { weight: 1, arbitrary: connecting },
) as Arbitrary<Packet>;
const step = (one: Arbitrary<Packet>, oneIn: number): Arbitrary<Step> =>
  fc.record({
    packet: one,
    spoils: fc.oneof({ weight: oneIn - 1, arbitrary: fc.constant<Spoil[]>([]) }, { weight: 1, arbitrary: spoils }),
  });

/** Most begin with a CONNECT of level 5 that is as it should be; the others with a bad one. */
export function conversations5(over: Manner['over']): Arbitrary<Conversation5> {
  const good = fc.tuple(connecting, fc.nat(2 ** 32 - 1), fc.constantFrom(1, 2, 65_535)).map(
    ([one, sessionExpiry, receiveMaximum]): Packet => ({
      ...one,
      ...{ who: 'device', level: 5, flags: 0, clientId: 'fuzz', keepAlive: 60 },
      properties: [
        ['sessionExpiry', sessionExpiry % 4 === 0 ? 0 : sessionExpiry],
        ['receiveMaximum', receiveMaximum],
        ['topicAliasMaximum', sessionExpiry % 40],
        ['maximumPacketSize', sessionExpiry % 3 === 0 ? 200 : 200_000],
      ],
      will: one.will && {
        ...one.will,
        topic: '«chat»',
        qos: one.will.qos % 3,
        properties: [['willDelay', receiveMaximum]],
      },
    }),
  );
  const first = fc.oneof(
    { weight: 7, arbitrary: step(good, 30) },
    { weight: 3, arbitrary: step(connecting as Arbitrary<Packet>, 2) },
    { weight: 1, arbitrary: step(packet, 2) },
  );
  return fc
    .tuple(first, fc.array(step(packet, 15), { maxLength: 14 }), fc.constantFrom(0, 0, 0, 1, 7))
    .map(([head, rest, chunk]) => ({ steps: [head, ...rest], chunk, over }));
}

export function bytesOfAll5({ steps }: Conversation5, known: Known): Buffer {
  return Buffer.concat(steps.map(({ packet, spoils }) => spoil(bytesOf(packet, known), spoils)));
}

function bytesOf(packet: Packet, known: Known): Buffer {
  const named = (one: string) => cut(fill(one, known));
  const written = (said: Said) => said.map(([name, value]) => [name, filled(value, named)] as const);
  switch (packet.is) {
    case 'publish': {
      const { flags, id, payload, topic, properties } = packet;
      const bytes = publish(named(topic), payload, {
        qos: ((flags >> 1) & 3) as 3,
        id,
        properties: written(properties),
      });
      bytes[0] = 0x30 | flags;
      return bytes;
    }
    case 'subscribe': {
      const filters = packet.filters.map(([one, byte]): [Buffer, { byte: number }] => [named(one), { byte }]);
      return subscribe(packet.id, filters, written(packet.properties));
    }
    case 'unsubscribe':
      return unsubscribe(packet.id, packet.filters.map(named), written(packet.properties));
    case 'answer':
      return answer(
        packet.to,
        packet.id,
        packet.code,
        packet.properties.length === 0 ? undefined : written(packet.properties),
      );
    case 'disconnect':
      return disconnect(packet.code, packet.properties.length === 0 ? undefined : written(packet.properties));
    case 'auth':
      return packetBytes(0xf0, Buffer.from([packet.code ?? 0]), block(written(packet.properties)));
    case 'bare':
      return packetBytes(packet.first, Buffer.alloc(packet.length, 1));
    case 'connect': {
      const logins = {
        device: { username: known.device ?? '', password: known.secret ?? '' },
        user: { username: 'Auth:JWT', password: known.jwt ?? '' },
        stranger: { username: known.otherDevice ?? '', password: 'wrong' },
        nobody: {},
      };
      const { clientId, will, properties, who, clean, flags, keepAlive, level } = packet;
      const last = will && {
        ...will,
        topic: named(will.topic).toString(),
        qos: will.qos as 0,
        properties: written(will.properties),
      };
      return connect({
        ...{ clientId: cut(clientId), clean, flags, keepAlive, level, ...logins[who] },
        properties: written(properties),
        ...(last && { will: last }),
      });
    }
  }
}

/** Strings as bytes: those of a property have 65,535 at most. */
function filled(value: number | string | Pair, named: (one: string) => Buffer): number | Buffer | Pair {
  if (typeof value === 'number') return value;
  if (typeof value === 'string') return named(value);
  return value.map(named) as unknown as Pair;
}

/** Hears level 5 to the letter. Who was taken for a client of level 4 gets what level 4 says: that is not read. */
export function hearing5(): Hearing {
  const heard = { count: 0, isOver: false };
  let [bytes, last] = [Buffer.alloc(0), ''];
  return (data) => {
    bytes = Buffer.concat([bytes, data]);
    for (let frame = frameIn(bytes); frame && !heard.isOver; frame = frameIn(bytes)) {
      bytes = bytes.subarray(frame.size);
      heard.count += 1;
      if (heard.count === 1 && frame.first === 0x20 && frame.body.length === 2) heard.isOver = true;
      else last = follow(last, heard.count, frame);
      if (last === 'pingresp') heard.isOver = true;
    }
    return heard;
  };
}

/** @throws Error when the packet cannot follow what came before it. */
function follow(last: string, nth: number, { first, body, size }: NonNullable<ReturnType<typeof frameIn>>): string {
  const { cmd, code = 0 } = read(first, body, size);
  if ((nth === 1) !== (cmd === 'connack')) throw new Error(`${cmd} came as packet ${nth}`);
  if (last === 'disconnect' || last === 'refusal') throw new Error(`${cmd} came after ${last}`);
  return cmd === 'connack' && code >= 0x80 ? 'refusal' : cmd;
}
