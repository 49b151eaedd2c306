/** A webhook's other end: a real server on loopback that does what a test wants, and keeps what it accepted. */
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { createServer as createTlsServer, type ServerOptions } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { until } from '../support/until.ts';

/** A message as a webhook gets it. */
export interface Bridged {
  id: string;
  topic: string;
  accountId: string;
  deviceId: string;
  organizationId: string | null;
  deviceTemplateId: string;
  channel: string;
  qos: number;
  time: string;
  payloadBase64: string;
  properties?: object;
  test?: true;
}

export interface Delivery {
  /** Path and query. */
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
  messages: Bridged[];
}

/** The status to answer with, with or without headers; a 200 without an end, long or of unknown length; or never. */
type Behaviour = (
  delivery: Delivery,
) => number | 'never' | 'long' | 'endless' | { status: number; headers: Record<string, string> };

export interface Receiver {
  url: string;
  port: number;
  /** Every request, whatever was answered. */
  tries: Delivery[];
  /** Messages of requests that were answered with 200. */
  messages: Bridged[];
  behave: Behaviour;
  /** The most connections that were open at once. */
  maxConnections: number;
  /** Resolves when so many messages have been accepted. */
  received(count: number): Promise<Bridged[]>;
  /** Resolves when so many requests have come. */
  tried(count: number): Promise<void>;
  close(): Promise<void>;
}

const fine: Behaviour = () => 200;

/** Listens on a free port, or on `port`, as one of `freePort` where it opens again; it closes with the test. With `tls` it speaks HTTPS. */
export async function startReceiver(
  t: Test,
  { port = 0, tls }: { port?: number; tls?: ServerOptions } = {},
): Promise<Receiver> {
  const server: Server = tls ? createTlsServer(tls) : createServer();
  server.on('request', (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      const delivery = { path: request.url ?? '', headers: request.headers, body, messages: JSON.parse(body).messages };
      const answer = receiver.behave(delivery);
      receiver.tries.push(delivery);
      if (answer === 'long' || answer === 'endless') {
        response.writeHead(200, answer === 'long' ? { 'content-length': 1_000_000 } : {}).write('x');
        receiver.messages.push(...delivery.messages);
      } else if (answer !== 'never') {
        const { status, headers } = typeof answer === 'number' ? { status: answer, headers: {} } : answer;
        if (status === 200) receiver.messages.push(...delivery.messages);
        response.writeHead(status, headers).end('thank you');
      }
    });
  });
  let connections = 0;
  server.on('connection', (socket) => {
    connections += 1;
    receiver.maxConnections = Math.max(receiver.maxConnections, connections);
    socket.on('close', () => {
      connections -= 1;
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const { port: actual } = server.address() as AddressInfo;
  const receiver: Receiver = {
    url: `${tls ? 'https' : 'http'}://127.0.0.1:${actual}/hook`,
    port: actual,
    tries: [],
    messages: [],
    behave: fine,
    maxConnections: 0,
    received: async (count) => {
      await until(
        () => receiver.messages.length,
        (length) => length >= count,
      );
      return receiver.messages;
    },
    tried: async (count) => {
      await until(
        () => receiver.tries.length,
        (length) => length >= count,
      );
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  t.teardown(() => receiver.close());
  return receiver;
}

export const textOf = (message: Pick<Bridged, 'payloadBase64'>): string =>
  Buffer.from(message.payloadBase64, 'base64').toString();

/** The payloads of the messages of each device, in the order in which they came. */
export function byDevice(messages: Bridged[]): Record<string, string[]> {
  const all: Record<string, string[]> = {};
  for (const message of messages) {
    const texts = all[message.deviceId] ?? [];
    all[message.deviceId] = texts;
    texts.push(textOf(message));
  }
  return all;
}
