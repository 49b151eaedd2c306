/** Clients that read slowly, and clients that read nothing. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, TLSSocket } from 'node:tls';
import type { Test } from 'tap';
import { createWebSocketStream, WebSocket } from 'ws';
import { Backlog } from '../../broker/connections/backlog.ts';
import { countSlowLooks } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { soon, until } from '../support/until.ts';
import { certificate, certificateFiles } from './certificate.ts';
import type { Message } from './conversation.ts';
import { type Fixture, fixture, rawConnected } from './fixture.ts';
import { metric } from './metrics.ts';
import { connectPacket, type RawClient, speak, subscribePacket } from './raw.ts';

const t = await part(import.meta);

const clock = {
  ahead: 0,
  now() {
    return Date.now() + this.ahead;
  },
};
/** Milliseconds that a reader may stand still, and more than others wait for it. */
const mayStandStill = 30_000;
const standsStill = 61_000;
const othersWait = 6_000;
/** More than the kernel takes. */
const count = 60;
const payload = (n: number) => Buffer.alloc(120_000, n);

let f: Fixture;
t.before(async () => {
  f = await fixture(t, certificate(t), { clock });
});

type Level = 3 | 4 | 5;
interface Way {
  name: string;
  level: Level;
  open(): Duplex;
}

const overTcp = () => connect(f.service.server.mqttPort, '127.0.0.1');
const overTls = () => connectTls({ port: f.service.mqttsPort, host: '127.0.0.1', rejectUnauthorized: false });
const overWebSocket = () => {
  const url = `${f.service.server.url.replace('http', 'ws')}/mqtt`;
  return createWebSocketStream(new WebSocket(url, 'mqtt', { rejectUnauthorized: false }), {
    highWaterMark: 65_536,
  });
};
const ways: Way[] = [
  { name: 'level 3, TCP', level: 3, open: overTcp },
  { name: 'level 4, TCP', level: 4, open: overTcp },
  { name: 'level 5, TCP', level: 5, open: overTcp },
  { name: 'level 4, WebSocket', level: 4, open: overWebSocket },
  { name: 'level 5, WebSocket', level: 5, open: overWebSocket },
  { name: 'level 5, TLS', level: 5, open: overTls },
];

/** A client with a stored session, and with a will that tells of its end. */
async function enter(t: Test, { name, level, open }: Way): Promise<RawClient> {
  const conn = open();
  t.teardown(() => conn.destroy());
  const client = speak(conn as Socket, level === 5 ? 5 : 4);
  const properties = level === 5 ? { properties: { sessionExpiryInterval: 1000 } } : {};
  const protocol = level === 3 ? { protocolId: 'MQIsdp', protocolVersion: 3 } : { protocolVersion: level };
  const will = { topic: f.topic('temperature'), payload: Buffer.from(name), qos: 0, retain: false };
  const who = { username: f.device.id, password: Buffer.from(f.secret), clientId: name, clean: false, keepalive: 0 };
  client.send(connectPacket({ ...who, ...protocol, ...properties, will }));
  t.match(await client.next(), { cmd: 'connack' });
  return client;
}

/** Reads so many messages; each is acknowledged. */
async function read(client: RawClient, many: number): Promise<Message[]> {
  const messages: Message[] = [];
  while (messages.length < many) {
    const packet = await client.next();
    if (packet.cmd !== 'publish') continue;
    client.send({ cmd: 'puback', messageId: packet.messageId as number });
    messages.push(packet as unknown as Message);
  }
  return messages;
}

const first = ({ payload }: Message) => (payload as Buffer)[0];
const numbers = Array.from({ length: count }, (_, n) => n);

t.test(
  'a queue reaches a client that reads slowly; one that reads nothing is cut off, and its will is sent',
  async (t) => {
    for (const way of ways) {
      const client = await enter(t, way);
      client.send(subscribePacket(1, [f.topic('chat'), 1]));
      t.match(await client.next(), { cmd: 'suback' });
      client.send({ cmd: 'disconnect' });
      client.socket.end();
      await client.closed;
    }
    const admin = await f.service.connect({ jwt: f.service.admin });
    for (const n of numbers) await admin.publishAsync(f.topic('chat'), payload(n), { qos: 1 });
    const wills: string[] = [];
    await admin.subscribeAsync(f.topic('temperature'));
    admin.on('message', (_, text) => wills.push(String(text)));
    const standing = () =>
      Promise.all(
        ways.map(async (way) => {
          const client = await enter(t, way);
          client.socket.pause();
          return client;
        }),
      );
    await standing();
    await until(() => {
      clock.ahead += 2000;
      return wills.length === ways.length;
    });
    t.same(wills.sort(), ways.map(({ name }) => name).sort(), 'one will of each that has read nothing');

    const looks = countSlowLooks(t);
    const clients = await standing();
    clock.ahead += othersWait;
    await until(() => looks().length === ways.length);
    clock.ahead += mayStandStill;
    const before = looks();
    await until(() => looks().every((count, n) => count > Number(before[n])));
    await Promise.all(
      clients.map(async (client, at) => {
        client.socket.resume();
        const heard = await read(client, count);
        t.same(heard.map(first), numbers, `${ways[at]?.name}: all, in order`);
      }),
    );
    t.equal(wills.length, ways.length, 'no further will');
  },
);

t.test('others wait for a slow reader for seconds, and what they send it then waits in memory, in order', async (t) => {
  const reader = await rawConnected(t, f, { clientId: 'clean', keepalive: 0 });
  reader.send(subscribePacket(1, [f.topic('chat'), 1]));
  t.match(await reader.next(), { cmd: 'suback' });
  reader.socket.pause();
  const admin = await f.service.connect({ jwt: f.service.admin });
  let acknowledged = 0;
  const [begun, before] = [performance.now(), clock.ahead];
  for (const n of numbers) {
    const published = admin.publishAsync(f.topic('chat'), payload(n), { qos: 1 });
    // The clock goes on while the publisher waits, and no further than a reader may stand still.
    const waiting = setInterval(() => {
      if (clock.ahead - before < mayStandStill) clock.ahead += 500;
    }, 50);
    await soon('PUBACK', published);
    clearInterval(waiting);
    acknowledged += 1;
  }
  t.equal(acknowledged, count, `in ${Math.round(performance.now() - begun)} ms`);
  reader.socket.resume();
  t.same((await read(reader, count)).map(first), numbers);
});

t.test('what waits for a client that reads nothing is bounded, and what is dropped is counted', async (t) => {
  const reader = await rawConnected(t, f, { clientId: 'bounded', keepalive: 0 });
  reader.send(subscribePacket(1, [f.topic('chat'), 1]));
  t.match(await reader.next(), { cmd: 'suback' });
  reader.socket.pause();
  const admin = await f.service.connect({ jwt: f.service.admin });
  const dropped = async () => Number(await metric(f, 'slipway_mqtt_dropped_messages_total{reason="queue"}'));
  const [before, begun] = [await dropped(), clock.ahead];
  const many = 400;
  for (let n = 0; n < many; n += 1) {
    const published = admin.publishAsync(f.topic('chat'), payload(n), { qos: 1 });
    const waiting = setInterval(() => {
      if (clock.ahead - begun < mayStandStill) clock.ahead += 500;
    }, 50);
    await soon('PUBACK', published);
    clearInterval(waiting);
  }
  const left = many - ((await dropped()) - before);
  // 1 MiB on its way and 4 MiB behind it, and what kernels take.
  t.ok(left * payload(0).length < 20_000_000, `${left} of ${many} messages are kept`);
  reader.socket.resume();
  const heard = (await read(reader, left)).map(first);
  t.same(
    heard.slice(-10),
    Array.from({ length: 10 }, (_, n) => (many - 10 + n) % 256),
    'the oldest were dropped',
  );
  reader.send({ cmd: 'pingreq' });
  t.match(await reader.next(), { cmd: 'pingresp' }, 'and nothing else is there');
});

/** A socket of a server, over TCP or TLS, and its client, which reads nothing. */
async function pair(t: Test, isSecure: boolean): Promise<{ conn: Duplex; reader: Socket }> {
  const { SLIPWAY_TLS_CERT: cert = '', SLIPWAY_TLS_KEY: key = '' } = certificateFiles(t);
  const server: Server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const to = { port, host: '127.0.0.1', rejectUnauthorized: false };
  const reader = isSecure ? connectTls(to) : connect(to);
  reader.on('error', () => {});
  const [socket] = await accepted;
  const conn = isSecure
    ? new TLSSocket(socket, { isServer: true, cert: readFileSync(cert), key: readFileSync(key) })
    : socket;
  conn.on('error', () => {});
  if (isSecure) await once(reader, 'secureConnect');
  t.teardown(() => {
    for (const one of [reader, conn]) one.destroy();
    server.close();
  });
  return { conn, reader };
}

/** Reads so many bytes and stops. */
function take(reader: Socket, bytes: number): Promise<void> {
  return new Promise((resolve) => {
    let left = bytes;
    reader.on('data', function count(chunk: Buffer) {
      left -= chunk.length;
      if (left > 0) return;
      reader.off('data', count);
      reader.pause();
      resolve();
    });
    reader.resume();
  });
}

t.test('a part of a long write is a sign of life, over TCP and TLS', async (t) => {
  await Promise.all([false, true].map((isSecure) => pair(t, isSecure).then((two) => takeInParts(t, two))));
});

async function takeInParts(t: Test, { conn, reader }: { conn: Duplex; reader: Socket }): Promise<void> {
  // The date jumps a day: it is no time in which the reader has taken nothing.
  const own = { ahead: 0, jump: 0, now: () => own.ahead + own.jump, monotonic: () => own.ahead };
  let looks = 0;
  let hasFailed = false;
  conn.write(Buffer.alloc(40_000_000));
  const backlog = new Backlog(conn, conn, {
    clock: own,
    maxUnsent: Number.POSITIVE_INFINITY,
    drained: () => {},
    failed: () => {
      hasFailed = true;
    },
  });
  const look = () => {
    looks += 1;
    if (!hasFailed) backlog.wait(look);
  };
  const nextLook = () => {
    const before = looks;
    return until(() => looks > before || hasFailed);
  };
  backlog.wait(look);
  own.ahead = othersWait;
  await nextLook();
  t.ok(backlog.isSlow);
  own.jump = 86_400_000;
  await nextLook();
  t.notOk(hasFailed, 'a jump of the date');
  for (let n = 0; n < 2; n += 1) {
    await take(reader, 6_000_000);
    await nextLook();
    own.ahead += mayStandStill;
    await nextLook();
  }
  t.notOk(hasFailed, 'twice 30 seconds');
  own.ahead += standsStill;
  await until(() => hasFailed);
}

t.test('more than may wait for a client ends it, however steadily it reads', async (t) => {
  const { conn, reader } = await pair(t, false);
  const own = { ahead: 0, now: () => own.ahead };
  const maxUnsent = 1_000_000;
  conn.write(Buffer.alloc(40_000_000));
  const ended = new Promise<Error>((failed) => {
    const backlog = new Backlog(conn, conn, { clock: own, maxUnsent, drained: () => {}, failed });
    backlog.wait(() => {});
  });
  await take(reader, 1_000_000);
  own.ahead = othersWait;
  t.match(await soon('the end', ended), { message: 'drain timeout' });
});
t.end();
