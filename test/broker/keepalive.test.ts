/** What counts as a sign of life. */
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { generate, type Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { createWebSocketStream, WebSocket } from 'ws';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { soon } from '../support/until.ts';
import { type Fixture, fixtureIn } from './fixture.ts';
import { connectPacket, publishPacket, speak } from './raw.ts';

const t = await part(import.meta);

/** Seconds, and milliseconds after which the silent are cut off. */
const keepalive = 2;
const patience = 3000;

interface Way {
  name: string;
  level: 4 | 5;
  /** A connection, and the socket that its bytes leave by: its packets may be parts of WebSocket messages. */
  open(port: number, http: string): { conn: Duplex; send(bytes: Buffer): (part: Buffer) => void };
}

/** A WebSocket frame with a mask of zeros. */
const frame = (length: number) => {
  const head = Buffer.alloc(14);
  head[0] = 0x82;
  head[1] = 0xff;
  head.writeBigUInt64BE(BigInt(length), 2);
  return head;
};
const tcp: Way['open'] = (port) => {
  const conn = connect(port, '127.0.0.1');
  return { conn, send: () => (part) => conn.write(part) };
};
const webSocket: Way['open'] = (_, http) => {
  const ws = new WebSocket(`${http.replace('http', 'ws')}/mqtt`, 'mqtt');
  const send = (bytes: Buffer) => {
    const { _socket: socket } = ws as unknown as { _socket: Socket };
    socket.write(frame(bytes.length));
    return (part: Buffer) => socket.write(part);
  };
  const conn = createWebSocketStream(ws);
  ws.on('close', () => conn.destroy());
  return { conn, send };
};
const ways: Way[] = [
  { name: 'level 4, TCP', level: 4, open: tcp },
  { name: 'level 5, TCP', level: 5, open: tcp },
  { name: 'level 4, WebSocket', level: 4, open: webSocket },
  { name: 'level 5, WebSocket', level: 5, open: webSocket },
];

async function enter(t: Test, f: Fixture, { name, level, open }: Way) {
  const { conn, send } = open(f.service.server.mqttPort, f.service.server.url);
  t.teardown(() => conn.destroy());
  const client = speak(conn as Socket, level);
  const who = { username: f.device.id, password: Buffer.from(f.secret), clientId: name, keepalive };
  client.send(connectPacket({ ...who, protocolVersion: level }));
  t.match(await client.next(), { cmd: 'connack' });
  return { client, send };
}

const bytesOf = (packet: Packet, level: 4 | 5) => Buffer.from(generate(packet, { protocolVersion: level }));

t.test('a long packet that arrives slowly is a sign of life, and a byte now and then is none', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const slow = async (way: Way) => {
    const { client, send } = await enter(t, f, way);
    const bytes = bytesOf(publishPacket(f.topic('chat'), Buffer.alloc(6000), { qos: 1, messageId: 7 }), way.level);
    const write = send(bytes);
    // Twice the time in which a packet has to come, at twice the rate.
    for (let at = 0, size = Math.ceil(bytes.length / 20); at < bytes.length; at += size) {
      write(bytes.subarray(at, at + size));
      await delay((2 * patience) / 20);
    }
    t.match(await client.next(), { cmd: 'puback', messageId: 7 }, `${way.name}: it stays`);
  };
  const trickling = async (way: Way) => {
    const { client, send } = await enter(t, f, { ...way, name: `${way.name}, trickling` });
    const bytes = bytesOf(publishPacket(f.topic('chat'), Buffer.alloc(6000)), way.level);
    const write = send(bytes);
    let at = 0;
    const timer = setInterval(() => write(bytes.subarray(at, ++at)), 500);
    t.teardown(() => clearInterval(timer));
    await soon('the end', client.closed);
    clearInterval(timer);
    t.ok(at < 60, `${way.name}: it is cut off after ${at} bytes`);
    if (way.level === 5) t.match(await client.next(), { cmd: 'disconnect', reasonCode: 0x8d });
  };
  await Promise.all(ways.flatMap((way) => [slow(way), trickling(way)]));
});
t.end();
