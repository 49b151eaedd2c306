/** A client of MQTT 5 on a bare socket, and what tests of level 5 say and hear with it. */
import diagnostics from 'node:diagnostics_channel';
import { connect as open, type Socket } from 'node:net';
import type { Test } from 'tap';
import { sharedService } from '../../support/shared.ts';
import { soon, until } from '../../support/until.ts';
import { type Fixture, fixtureIn } from '../fixture.ts';
import {
  type Asked,
  answer,
  type ConnectOptions,
  connect,
  disconnect,
  frameIn,
  type Heard,
  pingreq,
  publish,
  read,
  subscribe,
  type Written,
} from './packets.ts';

export interface Client {
  readonly socket: Socket;
  send(...packets: Buffer[]): void;
  /** The next packet that came and was not asked for yet; rejects when the connection ends before. */
  next(): Promise<Heard>;
  /** Ends the connection without a word. */
  drop(): Promise<void>;
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>;
}
/** `isGone` resolves when the service has noticed that the connection has ended: from then on its clock counts. */
export type Connected = Client & { readonly connack: Heard; isGone(end: () => Promise<void>): Promise<void> };

/** The ends of connections that this process has accepted and that are open, by the ports of both sides: when each has closed. */
const accepted = new Map<string, Promise<void>>();
diagnostics.subscribe('net.server.socket', (message) => {
  const { socket } = message as { socket: Socket };
  const ports = `${socket.localPort} ${socket.remotePort}`;
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  accepted.set(ports, closed);
  void closed.then(() => accepted.get(ports) === closed && accepted.delete(ports));
});

/** A service with one device in an account of its own; for tests that leave the service as it is. */
export async function ownDevice(t: Test): Promise<Fixture> {
  return fixtureIn(await sharedService(t));
}

/** A socket without a word on it; it ends with the test. */
export async function openSocket(t: Test, port: number): Promise<Client> {
  const socket = open(port, '127.0.0.1');
  t.teardown(() => socket.destroy());
  const arrived: Array<Heard | Error> = [];
  const waiting: Array<(one: Heard | Error) => void> = [];
  const give = (one: Heard | Error) => {
    const next = waiting.shift();
    if (next) next(one);
    else arrived.push(one);
  };
  let [bytes, isBad] = [Buffer.alloc(0), false];
  socket.on('data', (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (!isBad) {
      const frame = frameIn(bytes);
      if (!frame) return;
      bytes = bytes.subarray(frame.size);
      try {
        give(read(frame.first, frame.body, frame.size));
      } catch (error) {
        isBad = true;
        give(new Error(`the server sent ${frame.first.toString(16)} ${frame.body.toString('hex')}`, { cause: error }));
      }
    }
  });
  socket.on('error', () => {});
  let ended: Error | undefined;
  const closed = new Promise<void>((resolve) => {
    socket.on('close', () => {
      ended = new Error('the connection ended');
      for (const give of waiting.splice(0)) give(ended);
      resolve();
    });
  });
  return {
    socket,
    send: (...packets) => void socket.write(Buffer.concat(packets)),
    next: async () => {
      const one =
        arrived.shift() ?? ended ?? (await soon('a packet', new Promise<Heard | Error>((give) => waiting.push(give))));
      if (one instanceof Error) throw one;
      return one;
    },
    drop: () => {
      socket.destroy();
      return closed;
    },
    closed,
  };
}

type Who = Pick<Fixture, 'service' | 'device' | 'secret'>;

/** CONNECT of the device of a fixture, and CONNACK, whatever it says. */
export async function attempt(
  t: Test,
  { service, device, secret }: Who,
  more: ConnectOptions = {},
): Promise<Connected> {
  const client = await openSocket(t, service.server.mqttPort);
  client.send(connect({ username: device.id, password: secret, ...more }));
  const connack = await client.next();
  if (connack.cmd !== 'connack') throw new Error(`${connack.cmd} instead of connack`);
  const accepting = accepted.get(`${service.server.mqttPort} ${client.socket.localPort}`);
  const isGone = async (end: () => Promise<void>) => {
    const { broker } = service.server.ctx;
    const before = broker.gauges.connections;
    await end();
    // Through a proxy the other end is unknown; then the service must have no other connection that ends meanwhile.
    if (accepting) await soon('the end of the connection in the service', accepting);
    else await until(() => broker.gauges.connections < before);
  };
  return { ...client, connack, isGone };
}

/** The same, let in. */
export async function connected(t: Test, who: Who, more: ConnectOptions = {}): Promise<Connected> {
  const client = await attempt(t, who, more);
  t.equal(client.connack.code, 0, `connected: ${client.connack.properties.reasonString ?? ''}`);
  return client;
}

/** CONNACK of a CONNECT that is refused, after which the connection ends. */
export async function refused(t: Test, who: Who, more: ConnectOptions = {}): Promise<Heard> {
  const { connack, ...client } = await attempt(t, who, more);
  await ended(t, client);
  return connack;
}

/** That nothing more comes before the end of the connection. */
export async function ended(t: Test, client: Client, name = 'nothing follows'): Promise<void> {
  const last = await client.next().catch((error: Error) => error.message);
  t.same(last, 'the connection ended', name);
}

/** The reason of the DISCONNECT that is the last word of the server. */
export async function disconnectCode(t: Test, client: Client, name = 'DISCONNECT'): Promise<number | undefined> {
  return (await disconnection(t, client, name))?.code;
}

/** The DISCONNECT with which the service ends a connection. */
export async function disconnection(t: Test, client: Client, name = 'DISCONNECT'): Promise<Heard | undefined> {
  const last = await client.next().catch(() => undefined);
  if (last?.cmd !== 'disconnect') {
    t.fail(`${name}: ${last?.cmd ?? 'the end'} instead of DISCONNECT`);
    return undefined;
  }
  await ended(t, client, name);
  return last;
}

/** Leaves politely; with Session Expiry 0 that ends the session. */
export function leave(client: Connected, code?: number, properties?: Written): Promise<void> {
  return client.isGone(() => {
    client.send(disconnect(code, properties));
    return client.closed;
  });
}

/** Cuts a connection. */
export function cut(client: Connected): Promise<void> {
  return client.isGone(() => client.drop());
}

/** The admin of a fixture's account, as options of CONNECT. */
export const admin = ({ service }: Pick<Fixture, 'service'>) => ({ username: 'Auth:JWT', password: service.admin });

/** The next packet of a kind; what comes before is left out. */
export async function nextOf(client: Client, ...kinds: Array<Heard['cmd']>): Promise<Heard> {
  for (;;) {
    const packet = await client.next();
    if (kinds.includes(packet.cmd)) return packet;
  }
}

/** Subscribes, and gives the reason codes. */
export async function subscribed(client: Client, asked: Asked[], properties = {}): Promise<number[] | undefined> {
  client.send(subscribe(1, asked, properties));
  return (await nextOf(client, 'suback')).codes;
}

/** Publishes at QoS 1, and gives its PUBACK; those of earlier messages are left out. */
export async function published(client: Client, topic: string, payload: string, more = {}): Promise<Heard> {
  const id = 7;
  client.send(publish(topic, payload, { qos: 1, id, ...more }));
  for (;;) {
    const acknowledgement = await nextOf(client, 'puback');
    if (acknowledgement.id === id) return acknowledgement;
  }
}

/** Acknowledges a message to its end. */
export async function acknowledged(client: Client, { qos, id = 0 }: Heard): Promise<void> {
  if (qos === 1) client.send(answer('puback', id));
  if (qos !== 2) return;
  client.send(answer('pubrec', id));
  await nextOf(client, 'pubrel');
  client.send(answer('pubcomp', id));
}

/** The messages that have come when a PINGREQ is answered: all that was sent before it. */
export async function soFar(client: Client): Promise<Heard[]> {
  client.send(pingreq);
  const heard: Heard[] = [];
  for (;;) {
    const packet = await client.next();
    if (packet.cmd === 'pingresp') return heard;
    heard.push(packet);
  }
}

/** Takes and acknowledges messages until one has this payload, it included. */
export async function takenUntil(client: Client, payload: string): Promise<Heard[]> {
  const heard: Heard[] = [];
  for (;;) {
    const packet = await client.next();
    if (packet.cmd === 'pubrel') client.send(answer('pubcomp', packet.id as number));
    if (packet.cmd !== 'publish') continue;
    heard.push(packet);
    if (packet.qos === 1) client.send(answer('puback', packet.id as number));
    if (packet.qos === 2) client.send(answer('pubrec', packet.id as number));
    if (packet.payload === payload) return heard;
  }
}

export const payloads = (messages: Heard[]) => messages.map(({ payload }) => payload);
