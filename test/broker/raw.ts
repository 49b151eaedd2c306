/** A client on a bare socket, for packets that an honest client never sends. */
import { connect, type Socket } from 'node:net';
import mqttPacket, { type Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { soon } from '../support/until.ts';

export interface RawClient {
  readonly socket: Socket;
  send(...packets: Array<Packet | Buffer>): void;
  /** The next packet that came and was not asked for yet; rejects when the connection ends before. */
  next(): Promise<Packet>;
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>;
}

/** A raw connection; it ends with the test. */
export async function rawClient(t: Test, port: number, level: 4 | 5 = 4): Promise<RawClient> {
  const socket = connect(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  return speak(socket, level);
}

/** Packets over a socket. */
export function speak(socket: Socket, level: 4 | 5 = 4): RawClient {
  const protocolVersion = level;
  const parser = mqttPacket.parser({ protocolVersion });
  const arrived: Packet[] = [];
  const waiting: Array<{ resolve(packet: Packet): void; reject(error: Error): void }> = [];
  let ended = false;
  parser.on('packet', (packet) => {
    const next = waiting.shift();
    if (next) next.resolve(packet);
    else arrived.push(packet);
  });
  socket.on('data', (chunk) => parser.parse(chunk));
  socket.on('error', () => {});
  const closed = new Promise<void>((resolve) => {
    socket.on('close', () => {
      ended = true;
      for (const { reject } of waiting.splice(0)) reject(new Error('the connection ended'));
      resolve();
    });
  });
  return {
    socket,
    send: (...packets) => {
      const bytes = packets.map((packet) =>
        Buffer.isBuffer(packet) ? packet : mqttPacket.generate(packet, { protocolVersion }),
      );
      socket.write(Buffer.concat(bytes));
    },
    next: () => {
      const packet = arrived.shift();
      if (packet) return Promise.resolve(packet);
      if (ended) return Promise.reject(new Error('the connection ended'));
      const came = new Promise<Packet>((resolve, reject) => waiting.push({ resolve, reject }));
      return soon('a packet', came);
    },
    closed,
  };
}

export function connectPacket(more: object = {}): Packet {
  return {
    cmd: 'connect',
    protocolId: 'MQTT',
    protocolVersion: 4,
    clientId: 'raw',
    clean: true,
    keepalive: 60,
    ...more,
  } as Packet;
}

export function publishPacket(topic: string, payload: string | Buffer, more: object = {}): Packet {
  return { cmd: 'publish', topic, payload, qos: 0, dup: false, retain: false, ...more } as Packet;
}

export function subscribePacket(messageId: number, ...filters: Array<[string, 0 | 1 | 2]>): Packet {
  return { cmd: 'subscribe', messageId, subscriptions: filters.map(([topic, qos]) => ({ topic, qos })) } as Packet;
}
