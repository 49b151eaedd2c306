/** Harm that is done over MQTT. */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import mqttPacket, { type Packet } from 'mqtt-packet';
import { type Attack, again, type Means } from './attack-tools.ts';
import { type Link, openLink, publishBytes } from './link.ts';

/** The defaults of SLIPWAY_MQTT_MAX_PAYLOAD_BYTES and SLIPWAY_MQTT_MAX_POINTS. */
const maxPayloadBytes = 131_072;
const maxPoints = 5000;
const announced = 10 * 1024 * 1024;
const wrongPerSecond = 100;
const farAway = Date.UTC(9999, 0, 1);

const rows = `${Array.from({ length: maxPoints }, (_, n) => `,,${n}`).join('\n')}\n`;
const datedRows = `${Array.from({ length: 3000 }, (_, n) => `${new Date(farAway + n).toISOString()},,${n}`).join('\n')}\n`;
const deep = `${'['.repeat(31)}${'{"a":{"b":[1,2,3]}},'.repeat(6000)}1${']'.repeat(31)}`.slice(0, maxPayloadBytes);

/** Each level but those of the account and the device as it is and as a wildcard, and each beginning with `#`. */
const levels = ['slipway', 'v1', '+', 'd', '+', 'temperature'];
const wildcards = levels.flatMap((_, length) =>
  spellings(levels.slice(0, length)).map((some) => [...some, '#'].join('/')),
);
wildcards.push(...spellings(levels).map((all) => all.join('/')));

function spellings(some: readonly string[]): string[][] {
  return some.reduce<string[][]>(
    (begun, level) =>
      begun.flatMap((one) =>
        level === '+'
          ? [[...one, '+']]
          : [
              [...one, level],
              [...one, '+'],
            ],
      ),
    [[]],
  );
}

export const mqttAttacks: Record<string, Attack> = {
  points: {
    shows: `payloads of ${maxPoints} rows from 50 devices, as fast as they are read`,
    run: (means, begun) => floodStored(means, 50, rows, begun),
  },
  'deep-json': {
    shows: 'payloads of 128 KiB of deep JSON from 50 devices, as fast as they are read',
    run: (means, begun) => floodStored(means, 50, deep, begun),
  },
  eviction: {
    shows: 'points stamped in the year 9999 from 20 devices while the cap on bytes makes room',
    env: { SLIPWAY_MESSAGES_MAX_BYTES: String(24 * 1024 * 1024) },
    run: (means, begun) => floodStored(means, 20, datedRows, begun),
  },
  qos0: {
    shows: 'floods of QoS 0 from 20 devices',
    run: async (means, begun) => {
      begun();
      await floodChat(means, 20);
    },
  },
  qos1: {
    shows: 'floods of QoS 1, stored, from 50 devices',
    run: (means, begun) => floodStored(means, 50, ',x,1,', begun),
  },
  'fan-out': {
    shows: '200 connections that hear everything of an account whose devices flood',
    run: async (means, begun) => {
      const topic = `slipway/v1/${means.accountId}/d/+/chat`;
      for (let n = 0; n < 200; n += 1) {
        const link = await openLink(at(means), { username: 'Auth:JWT', password: means.token, clientId: `ear ${n}` });
        link.socket.removeAllListeners('data').resume();
        link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] } as Packet);
      }
      begun();
      await floodChat(means, 20);
    },
  },
  deaf: {
    shows: '200 subscribers that never read, on busy channels',
    run: async (means, begun) => {
      const deaf = means.devices.slice(0, 200);
      for (const [n, { root }] of deaf.entries()) {
        const link = await logIn(means, n, `deaf ${n}`);
        link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${root}/chat`, qos: 1 }] } as Packet);
        link.socket.pause();
      }
      begun();
      await floodChat(means, deaf.length, Buffer.alloc(8000));
    },
  },
  'stored-sessions': {
    shows: '200 stored sessions of absent clients whose queues fill with messages of 16 KB',
    run: async (means, begun) => {
      const absent = means.devices.slice(0, 200);
      for (const [n, { root }] of absent.entries()) {
        const link = await logIn(means, n, `absent ${n}`, false);
        link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${root}/chat`, qos: 1 }] } as Packet);
        await new Promise((resolve) => link.socket.once('data', resolve));
        link.socket.destroy();
      }
      begun();
      await floodChat(means, 50, Buffer.alloc(16_000), 1);
    },
  },
  retained: {
    shows: 'retained messages of 128 KiB on every channel of 200 devices',
    run: async (means, begun) => {
      begun();
      const payload = Buffer.alloc(maxPayloadBytes);
      await Promise.all(
        means.devices.map(async ({ root }, n) => {
          const { socket } = await logIn(means, n, 'retained');
          for (let round = 2; ; round += 1) {
            const topic = `${root}/channel${2 + (round % 98)}`;
            await written(
              socket,
              publishBytes(topic, payload, { qos: 1, messageId: 1 + (round % 60_000), retain: true }),
            );
          }
        }),
      );
    },
  },
  qos2: {
    shows: 'QoS 2 of 128 KiB that is never released, from 50 devices',
    run: async (means, begun) => {
      begun();
      const payload = Buffer.alloc(maxPayloadBytes);
      await Promise.all(
        means.devices.slice(0, 50).map(async ({ root }, n) => {
          const { socket } = await logIn(means, n, 'unreleased');
          for (let id = 1; id < 65_535; id += 1)
            await written(socket, publishBytes(`${root}/chat`, payload, { qos: 2, messageId: id }));
        }),
      );
    },
  },
  connects: {
    shows: 'CONNECTs with right secrets, 200 at once, again and again',
    run: (means, begun) => {
      begun();
      return again(200, async (n) => (await logIn(means, n, 'again').catch(() => undefined))?.socket.destroy());
    },
  },
  subscribes: {
    shows: '200 clients that subscribe to 200 filters and unsubscribe, again and again',
    run: async (means, begun) => {
      begun();
      await Promise.all(
        means.devices.map(async ({ root }, n) => {
          const { socket } = await logIn(means, n, 'subscribes');
          const topics = Array.from({ length: 200 }, (_, m) => (m < 100 ? `${root}/channel${m}` : `${root}/+/${m}/#`));
          const packets = Buffer.concat(
            [
              { cmd: 'subscribe', messageId: 1, subscriptions: topics.map((topic) => ({ topic, qos: 1 })) },
              { cmd: 'unsubscribe', messageId: 2, unsubscriptions: topics },
            ].map((packet) => mqttPacket.generate(packet as Packet)),
          );
          for (;;) await written(socket, packets);
        }),
      );
    },
  },
  'foreign-filters': {
    shows: '200 idle connections of an account with 43 wildcards each that match the topics of every account',
    run: async (means, begun) => {
      const subscriptions = wildcards.map((topic) => ({ topic, qos: 1 }));
      for (let n = 0; n < 200; n += 1) {
        const who = { username: 'Auth:JWT', password: means.token, clientId: `idle ${n}` };
        const { socket, send } = await openLink(at(means), who);
        socket.removeAllListeners('data').resume();
        send({ cmd: 'subscribe', messageId: 1, subscriptions } as Packet);
      }
      begun();
      await sleep(2 ** 31 - 1);
    },
  },
  categories: {
    shows: 'messages of 4,900 points in as many new categories from 2 devices, as fast as they are read',
    run: async (means, begun) => {
      begun();
      await Promise.all(
        means.devices.slice(0, 2).map(async ({ root }, n) => {
          const { socket } = await logIn(means, n, 'categories');
          for (let round = 0; ; round += 1) {
            const payload = Array.from({ length: 4900 }, (_, at) => `,${n}-${round}-${at},1,`).join('\n');
            await written(
              socket,
              publishBytes(`${root}/temperature`, payload, { qos: 1, messageId: 1 + (round % 60_000) }),
            );
          }
        }),
      );
    },
  },
  'half-open': {
    shows: '1,000 half-open sockets',
    run: (means, begun) => {
      begun();
      return again(1000, async (n) => {
        await ended(connect({ port: means.mqttPort, host: '127.0.0.1', localAddress: `127.0.0.${2 + (n % 200)}` }));
        await sleep(100);
      });
    },
  },
  announced: {
    shows: '200 sockets announcing 10 MB',
    run: (means, begun) => {
      begun();
      return again(200, async (n) => {
        await announce(means, n);
        await sleep(100);
      });
    },
  },
  guesses: {
    shows: `${wrongPerSecond} wrong CONNECTs a second`,
    run: async (means, begun) => {
      begun();
      for (let n = 0; ; n += 1) {
        const { id } = means.devices[n % means.devices.length] as Means['devices'][number];
        openLink(at(means), { username: id, password: `wrong ${n}`, clientId: `guess ${n}` })
          .then(({ socket }) => socket.destroy())
          .catch(() => {});
        await sleep(1000 / wrongPerSecond);
      }
    },
  },
};

/** Never ends. */
export async function floodChat(means: Means, count: number, payload: string | Buffer = ',x,1,', qos: 0 | 1 = 0) {
  await Promise.all(
    means.devices.slice(0, count).map(({ root }, n) => pour(means, n, publishMany(`${root}/chat`, payload, qos))),
  );
}

async function floodStored(means: Means, count: number, payload: string, begun: () => void): Promise<void> {
  begun();
  await Promise.all(
    means.devices.slice(0, count).map(({ root }, n) => pour(means, n, publishMany(`${root}/temperature`, payload, 1))),
  );
}

/** Packets of about a megabyte, or a thousand. */
function publishMany(topic: string, payload: string | Buffer, qos: 0 | 1): Buffer {
  const count = Math.max(1, Math.min(1000, Math.floor(1_000_000 / (payload.length + 50))));
  return Buffer.concat(
    Array.from({ length: count }, (_, n) => publishBytes(topic, payload, { qos, messageId: n + 1 })),
  );
}

/** Sends the same packets of a device again and again, as fast as they are read. Never ends. */
export function pourPackets(means: Means, place: number, packets: ReadonlyArray<Buffer | object>): Promise<void> {
  const bytes = packets.map((one) => (Buffer.isBuffer(one) ? one : mqttPacket.generate(one as Packet)));
  return pour(means, place, Buffer.concat(bytes));
}

async function pour(means: Means, place: number, bytes: Buffer): Promise<void> {
  const { socket } = await logIn(means, place, 'flood');
  socket.removeAllListeners('data').resume();
  for (;;) await written(socket, bytes);
}

/** Resolves when there is room for more; never when the connection has ended. */
function written(socket: Socket, bytes: Buffer): Promise<void> | undefined {
  if (socket.write(bytes)) return undefined;
  return new Promise((resolve) => socket.once('drain', resolve));
}

function at({ mqttPort: port }: Means) {
  return { port };
}

function logIn(means: Means, place: number, clientId: string, clean = true): Promise<Link> {
  const { id, secret } = means.devices[place % means.devices.length] as Means['devices'][number];
  return openLink(at(means), { username: id, password: secret, clientId: `${clientId} ${id}`, clean });
}

/** Every other one is a CONNECT of that length, the rest are PUBLISH packets of a device that has connected. */
async function announce(means: Means, n: number): Promise<void> {
  const head = (type: number) => Buffer.from([type, ...lengthOf(announced), 0, 4]);
  const socket = n % 2 ? connect(means.mqttPort, '127.0.0.1') : (await logIn(means, n, 'announce')).socket;
  socket.on('data', () => {});
  socket.write(n % 2 ? Buffer.concat([head(0x10), Buffer.from('MQTT\x04\x02\x00\x3c')]) : head(0x30));
  await ended(socket);
}

function ended(socket: Socket): Promise<void> {
  socket.on('error', () => {});
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** The remaining length of a packet as its fixed header has it. */
function lengthOf(length: number): number[] {
  return length < 128 ? [length] : [(length & 127) | 128, ...lengthOf(length >> 7)];
}
