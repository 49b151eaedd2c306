/** What must be true after a restart of everything that was acknowledged before the process died, read through the API. */
import type { Packet } from 'mqtt-packet';
import { type Login, openLink } from '../../bench/link.ts';

import type { Api } from './api.ts';
import { type Fleet, type Source, timeOf } from './fleet.ts';

/** Milliseconds without a message after which a subscriber has got everything. */
const patience = 10_000;
/** Milliseconds in which presence must be right. */
const presenceTime = 5000;

/** Numbers that were acknowledged, by topic. */
export type Acknowledged = Map<string, number[]>;

/** Every message of a stored channel, and the newest of the others; from the message after `from[topic]` on. */
export async function checkStored(
  api: Api,
  mqttPort: number,
  { sources, visitor }: Fleet,
  acknowledged: Acknowledged,
  from: Map<string, number>,
): Promise<string[]> {
  const losses: string[] = [];
  for (const source of sources) {
    const { topic, qos } = source.publisher.stream;
    const numbers = acknowledged.get(topic) ?? [];
    const { channel, deviceId } = source;
    const what = `${channel} QoS ${qos}`;
    if (channel === 'temperature' || channel === '_log') {
      const first = (from.get(topic) ?? 0) + 1;
      const stored = channel === '_log' ? await readLog(api, deviceId, first) : await readSeries(api, topic, first);
      const lost = numbers.filter((n) => !stored.has(n));
      if (lost.length > 0)
        losses.push(`${what}: ${lost.length} of ${numbers.length} are not stored (${firstOf(lost)})`);
      const twice = [...stored].filter(([, times]) => times > 1).map(([n]) => n);
      if (qos === 2 && twice.length > 0) losses.push(`${what}: ${twice.length} are stored twice (${firstOf(twice)})`);
    } else if (channel === 'state' || channel === '_set/fields') {
      const { last, sent } = source.publisher;
      const read =
        channel === 'state'
          ? () => readRetained(mqttPort, { ...visitor, password: api.token }, topic)
          : () => readName(api, deviceId);
      const value = last === 0 ? 0 : await read();
      if (!(value >= last && value <= sent)) losses.push(`${what}: ${value} is there, ${last} was acknowledged`);
    }
  }
  return losses;
}

/** What both subscribers have not heard, or not as often or in the order as they must. */
export async function checkHeard({ sources, present, absent }: Fleet, acknowledged: Acknowledged): Promise<string[]> {
  const losses: string[] = [];
  for (const subscriber of [present, absent]) {
    const who = subscriber.login.clientId;
    const isComplete = await subscriber.hears(acknowledged, patience);
    for (const { channel, publisher } of sources) {
      const { topic, qos } = publisher.stream;
      const heard = subscriber.of(topic);
      const what = `${channel} QoS ${qos}, subscriber ${who}`;
      const lost = isComplete ? [] : (acknowledged.get(topic) ?? []).filter((n) => !heard.numbers.has(n));
      if (lost.length > 0) losses.push(`${what}: ${lost.length} were not delivered (${firstOf(lost)})`);
      if (heard.late > 0) losses.push(`${what}: ${heard.late} came out of order`);
      if (qos === 2 && heard.repeated > 0) losses.push(`${what}: ${heard.repeated} came more than once`);
    }
  }
  return losses;
}

/** The devices that the registry calls connected must be these, soon. */
export async function checkConnected(api: Api, expected: string[]): Promise<string[]> {
  const wanted = [...expected].sort().join();
  const until = performance.now() + presenceTime;
  for (;;) {
    const { devices } = await api.ok('GET', `/api/v1/devices?accountId=${api.accountId}&connected=true&pageSize=1000`);
    const found = devices.results.map(({ id }: { id: string }) => id);
    if (found.sort().join() === wanted) return [];
    if (performance.now() > until) return [`${found.length} devices are called connected, ${expected.length} are`];
  }
}

export function connectedIds(sources: Source[]): string[] {
  return sources.map(({ deviceId }) => deviceId);
}

/** How often each number is in the series. */
async function readSeries(api: Api, topic: string, first: number): Promise<Map<number, number>> {
  const stored = new Map<number, number>();
  for (let token = ''; ; ) {
    const range = `startDateTime=${timeOf(first)}&endDateTime=2027-01-01T00:00:00Z&pageSize=1000`;
    const page = await api.ok('GET', `/api/v4/data/${topic}?${range}${token && `&pagingToken=${token}`}`);
    for (const { numericValue } of page.result) stored.set(numericValue, (stored.get(numericValue) ?? 0) + 1);
    token = page.meta.pagingToken ?? '';
    if (!token) return stored;
  }
}

async function readLog(api: Api, deviceId: string, first: number): Promise<Map<number, number>> {
  const stored = new Map<number, number>();
  for (let page = 1; ; page += 1) {
    const range = `severity=info&from=${timeOf(first)}&pageSize=1000&page=${page}`;
    const { logs } = await api.ok('GET', `/api/v1/devices/${deviceId}/logs?${range}`);
    for (const { message } of logs.results) stored.set(Number(message), (stored.get(Number(message)) ?? 0) + 1);
    if (page * 1000 >= logs.meta.count) return stored;
  }
}

/** The retained value of a topic on which nobody publishes now; NaN when none comes. */
function readRetained(port: number, login: Login, topic: string): Promise<number> {
  return new Promise((resolve, reject) => {
    // That no value is retained shows only by waiting.
    const timer = setTimeout(() => resolve(Number.NaN), patience);
    openLink({ port }, { ...login, clientId: 'reader' }, (packet, link) => {
      if (packet.cmd !== 'publish') return;
      clearTimeout(timer);
      link.send({ cmd: 'disconnect' });
      resolve(Number(packet.payload.toString()));
    }).then((link) => {
      link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] } as Packet);
    }, reject);
  });
}

async function readName(api: Api, deviceId: string): Promise<number> {
  return Number((await api.ok('GET', `/api/v1/devices/${deviceId}`)).device.name);
}

function firstOf(numbers: number[]): string {
  return `${numbers.slice(0, 5).join(', ')}${numbers.length > 5 ? ', …' : ''}`;
}
