/** What tests of stored sessions say and hear, with packets of their own, in a service or a process. */
import type { Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import { type Running, startProcess } from '../support/process.ts';
import { type Fixture, fixture, sibling } from './fixture.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

export interface Message {
  cmd: string;
  topic: string;
  payload: Buffer;
  qos: number;
  dup: boolean;
  retain: boolean;
  messageId: number;
}
export type Who = Pick<Fixture, 'device' | 'secret'>;

/** Things of a fixture whose service has ended, so that a process can take its directory. */
export async function left(t: Test, env: Record<string, string> = {}): Promise<Fixture & { other: Fixture }> {
  const f = await fixture(t, env);
  const other = await sibling(f);
  await f.service.close();
  return { ...f, other };
}

export const start = (t: Test, { service }: Fixture, env = {}) => startProcess(t, service.directory, env);
export const keeper = { clientId: 'keeper', clean: false };

/** A connection of a device, and whether it found its session. */
export async function connected(
  t: Test,
  { mqttPort }: Pick<Running, 'mqttPort'>,
  { device, secret }: Who,
  more: object = {},
): Promise<RawClient & { sessionPresent: boolean }> {
  const client = await rawClient(t, mqttPort);
  client.send(connectPacket({ username: device.id, password: Buffer.from(secret), ...more }));
  const connack = (await client.next()) as Packet & { sessionPresent: boolean };
  t.match(connack, { cmd: 'connack', returnCode: 0 });
  return { ...client, sessionPresent: connack.sessionPresent };
}

export async function subscribed(client: RawClient, ...filters: Array<[string, 0 | 1 | 2]>): Promise<number[]> {
  client.send(subscribePacket(1, ...filters));
  for (;;) {
    const packet = await client.next();
    if (packet.cmd === 'suback') return packet.granted as number[];
  }
}

export async function disconnected(client: RawClient): Promise<void> {
  client.send({ cmd: 'disconnect' });
  await client.closed;
}

/** Publishes and waits for the acknowledgement: PUBACK, or PUBREC and PUBCOMP. */
export async function published(client: RawClient, topic: string, payload: string, more: object = {}): Promise<void> {
  client.send(publishPacket(topic, payload, { qos: 1, messageId: 7, ...more }));
  for (;;) {
    const { cmd, messageId } = await client.next();
    if (cmd === 'pubrec') client.send({ cmd: 'pubrel', messageId: messageId as number });
    if (cmd === 'puback' || cmd === 'pubcomp') return;
  }
}

/** Takes and acknowledges messages until `enough`, and what follows within two round trips. */
export async function taken(client: RawClient, enough: (messages: Message[]) => boolean): Promise<Message[]> {
  const messages: Message[] = [];
  let pings = 0;
  client.send({ cmd: 'pingreq' });
  // None is left to be answered: a later call would take that answer for one of its own.
  while (pings < 2) {
    const packet = (await client.next()) as Packet & Message;
    const { messageId } = packet;
    if (packet.cmd === 'pingresp') {
      if (enough(messages)) pings += 1;
      if (pings < 2) client.send({ cmd: 'pingreq' });
    } else if (packet.cmd === 'pubrel') client.send({ cmd: 'pubcomp', messageId });
    else {
      messages.push(packet);
      if (packet.qos > 0) client.send({ cmd: packet.qos === 1 ? 'puback' : 'pubrec', messageId });
    }
  }
  return messages;
}

export const texts = (messages: Message[]) => messages.map(({ payload }) => payload.toString());
