/** What MQTT 5 has besides goes with an account that moves: properties, expiry, and groups of shared subscriptions. */
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { moveAccounts } from '../../cells/moves/offline/move.ts';
import type { Fixture } from '../broker/fixture.ts';
import {
  acknowledged,
  type Connected,
  connected,
  disconnectCode,
  leave,
  nextOf,
  openSocket,
  payloads,
  published,
  soFar,
  subscribed,
} from '../broker/level5/client.ts';
import { connect, type Heard, type Pair, publish } from '../broker/level5/packets.ts';
import { startMovable } from '../support/cells.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { withHaproxy } from '../support/haproxy.ts';
import { type Service, startService } from '../support/service.ts';

const keeping = { properties: { sessionExpiry: 1000 } };
/** Reason code: use another server. */
const useAnotherServer = 0x9c;

type Unit = Omit<Fixture, 'who'> & { properties: object };

async function unitIn(service: Service): Promise<Unit> {
  const channels = ['kept', 'shared', 'held'].map((name) => ({ name, persistenceType: 'simple' }));
  const { id: deviceTemplateId } = await service.template({ channels });
  const made = await service.device({ deviceTemplateId });
  const topic = (channel: string) => service.topic(made.device.id, channel);
  const userProperties: Pair[] = [
    ['b', '1'],
    ['a', '2'],
    ['b', '3'],
  ];
  const properties = {
    ...{ payloadFormat: 1, contentType: 'text/plain', responseTopic: topic('kept') },
    ...{ correlationData: '\x00\xff', userProperties },
  };
  return { service, ...made, topic, properties };
}

const share = (unit: Unit, channel: string) => `$share/group/${unit.topic(channel)}`;

/** A client with a stored session that has subscribed. */
async function subscriber(t: Test, unit: Unit, clientId: string, filter: string): Promise<Connected> {
  const client = await connected(t, unit, { clientId, ...keeping });
  t.same(await subscribed(client, [[filter, { qos: 1 }]], { subscriptionIdentifier: 7 }), [1]);
  return client;
}

async function back(t: Test, unit: Unit, clientId: string): Promise<Connected> {
  const client = await connected(t, unit, { clientId, clean: false, ...keeping });
  t.equal(client.connack.sessionPresent, true, clientId);
  return client;
}

async function taken(client: Connected): Promise<Heard[]> {
  const heard = await soFar(client);
  for (const one of heard) await acknowledged(client, one);
  return heard;
}

/** Queued and retained messages, and a group of two members that are away. */
async function fill(t: Test, unit: Unit): Promise<void> {
  const { topic, properties } = unit;
  await leave(await subscriber(t, unit, 'keeper', topic('kept')));
  for (const clientId of ['a', 'b']) await leave(await subscriber(t, unit, clientId, share(unit, 'shared')));
  const sender = await connected(t, unit, { clientId: 'sender' });
  for (const [text, messageExpiry] of [
    ['brief', 60],
    ['queued', 1000],
  ] as const)
    t.equal((await published(sender, topic('kept'), text, { properties: { ...properties, messageExpiry } })).code, 0);
  const retained = { retain: true, properties: { ...properties, messageExpiry: 2000 } };
  t.equal((await published(sender, topic('kept'), 'retained', retained)).code, 0);
  for (const text of ['1', '2', '3', '4'])
    t.equal((await published(sender, topic('shared'), text, { properties })).code, 0);
  await leave(sender);
}

/** All of it is there 100 seconds later. */
async function check(t: Test, unit: Unit): Promise<void> {
  const { topic, properties } = unit;
  const ofKeeper = { ...properties, subscriptionIdentifier: 7 };
  t.match(await taken(await back(t, unit, 'keeper')), [
    { payload: 'queued', properties: { ...ofKeeper, messageExpiry: 900 } },
    { payload: 'retained', properties: { ...ofKeeper, messageExpiry: 1900 } },
  ]);
  const late = await connected(t, unit, { clientId: 'late' });
  t.same(await subscribed(late, [topic('kept')]), [1]);
  t.match(await nextOf(late, 'publish'), {
    ...{ payload: 'retained', retain: true, properties: { ...properties, messageExpiry: 1900 } },
  });
  const members = [await back(t, unit, 'a'), await back(t, unit, 'b')];
  const heard = (await Promise.all(members.map(taken))).flat();
  t.same(payloads(heard).sort(), ['1', '2', '3', '4'], 'what waited for the group comes once');
  for (const one of heard) t.match(one.properties, ofKeeper);
  const sender = await connected(t, unit, { clientId: 'sender' });
  for (let n = 0; n < 10; n += 1) t.equal((await published(sender, topic('shared'), `${n}`)).code, 0);
  for (const member of members) t.equal((await taken(member)).length, 5, 'the group goes on, in turns');
}

t.test('between two running cells, and the clients are told to use another server', withHaproxy, async (t) => {
  const { time, account, move } = await startMovable(t);
  const unit = await unitIn(account);
  await fill(t, unit);
  const members: Connected[] = [];
  for (const clientId of ['one', 'two']) members.push(await subscriber(t, unit, clientId, share(unit, 'held')));
  const sender = await connected(t, unit, { clientId: 'sender' });
  for (const text of ['x', 'y']) t.equal((await published(sender, unit.topic('held'), text)).code, 0);
  for (const member of members) t.equal((await soFar(member)).length, 1, 'each has one that it does not acknowledge');
  const waiting = await openSocket(t, account.server.mqttPort);
  await move(async () => {
    waiting.send(connect({ clientId: 'waiting', username: unit.device.id, password: unit.secret }));
    sender.send(publish(unit.topic('held'), 'z', { qos: 1, id: 9 }));
    time.now += 100_000;
  });
  t.match(await waiting.next(), { cmd: 'connack', code: useAnotherServer });
  for (const client of [sender, ...members]) t.equal(await disconnectCode(t, client), useAnotherServer);
  await check(t, unit);
  const heard: Heard[] = [];
  for (const clientId of ['one', 'two']) heard.push(...(await taken(await back(t, unit, clientId))));
  t.same(payloads(heard).sort(), ['x', 'y'], 'what members had not acknowledged comes once');
});

t.test('between two directories', async (t) => {
  const time = { now: Date.now() };
  const clock = { now: () => time.now };
  const from = await startService(t, { clock });
  // The first account of each directory is its oldest.
  time.now += 1000;
  const directory = temporaryDirectory(t);
  cpSync(join(from.directory, 'keys'), join(directory, 'keys'), { recursive: true });
  await (await startService(t, { directory, clock })).close();
  Object.assign(from, await from.account());
  time.now += 1000;
  const unit = await unitIn(from);
  await fill(t, unit);
  await from.close();
  await moveAccounts({ accounts: [from.accountId], from: from.directory, to: directory });
  time.now += 100_000;
  const to = await startService(t, { directory, clock });
  await check(t, { ...unit, service: to });
});
