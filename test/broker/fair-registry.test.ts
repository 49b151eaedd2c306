/** Accounts share the registry: what devices of one report in bulk does not make another wait, and nothing is lost of it. */
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { controlTopic, type HandledChannel, handledChannels } from '../../src/core/topics.ts';
import { board, codec } from '../firmware/board.ts';
import { asDevice, devices, publish, rollOut, rollout, rolloutUntil } from '../firmware/fleet.ts';
import { holdWrites, lanesOfWrites } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { type Fixture, fixtureIn, neighbour, rawConnected, sibling, versionOf } from './fixture.ts';
import { metric } from './metrics.ts';
import { publishPacket, type RawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  let now = Date.now();
  const tick = () => {
    now += 1;
    return now;
  };
  service = await startService(t, { clock: { now: tick } });
});

/** Transactions that wait for the registry. */
const waiting = async () => Number(await metric({ service }, 'slipway_queue_depth{queue="registry_writer"}'));

const waitsOf = (lanes: Array<Lane | undefined>, { device }: Fixture) =>
  lanes.filter((lane) => lane?.callerId === device.id).length;

/** Reads until `count` messages have been acknowledged; `ids` fills with their packet ids. */
async function acknowledged(client: RawClient, count: number, ids: Array<number | undefined> = []) {
  while (ids.length < count) {
    const packet = await client.next();
    if (packet.cmd === 'puback') ids.push(packet.messageId);
  }
  return ids;
}

const many = (count: number, topic: string, payloadOf: (n: number) => string) =>
  Array.from({ length: count }, (_, n) => publishPacket(topic, payloadOf(n), { qos: 1, messageId: n + 1 }));

/** A device with an update before it. */
async function updating(): Promise<{ f: Fixture; rolloutId: string }> {
  const f = await fixtureIn(service);
  const firmware = await publish(service, f.device.deviceTemplateId, '2.0', {
    a: Buffer.from('a'),
    b: Buffer.from('b'),
  });
  const { id: rolloutId } = await rollOut(service, firmware, { target: { deviceIds: [f.device.id] } });
  await rolloutUntil(service, rolloutId, ({ counts }) => counts.pending === 1);
  return { f, rolloutId };
}

const setName = (n: number | string) => JSON.stringify({ state: { serialNumber: `N ${n}` } });

/** Replies of a device, all that it may have under way, each to a command of its own. */
async function endingReplies({ device, topic }: Fixture) {
  const made = Array.from({ length: 16 }, () =>
    service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: 'blink' } }),
  );
  const ids = (await Promise.all(made)).map(({ command }) => command.id);
  return many(16, topic('_commands/replies'), (n) => JSON.stringify({ id: ids[n], status: 'succeeded' }));
}

/** How many commands of these devices ended before the fields of another one were set. The clock is later at each look. */
async function endedBefore(floods: Fixture[], calm: Fixture): Promise<number> {
  const ids = JSON.stringify(floods.map(({ device }) => device.id));
  const condition = `"deviceId" IN (SELECT "value" FROM json_each(?))
    AND "finished" < (SELECT "lastModified" FROM "devices" WHERE "id" = ?)`;
  return countStored(service, 'commands', condition, [ids, calm.device.id]);
}

t.test('a flood of reports of one account does not make a write of another wait for all of it', async (t) => {
  const f = await fixtureIn(service);
  const victim = await neighbour(f);
  const calm = await rawConnected(t, victim);
  const count = 1000;
  const floods = await Promise.all(
    [f, await sibling(f), await sibling(f), await sibling(f)].map(async (one) => {
      const client = await rawConnected(t, one);
      const first = await endingReplies(one);
      const more = many(count, one.topic('_commands/replies'), (n) =>
        JSON.stringify({ id: 'x', status: 'succeeded', result: n }),
      );
      return { one, begin: () => client.send(...first, ...more.slice(first.length)), all: acknowledged(client, count) };
    }),
  );
  const release = await holdWrites(service);
  const lanes = lanesOfWrites(t, service);
  for (const { begin } of floods) begin();
  await until(() => floods.every(({ one }) => waitsOf(lanes, one) === 16));
  calm.send(publishPacket(victim.topic('_set/fields'), setName('calm'), { qos: 1, messageId: 1 }));
  await until(() => waitsOf(lanes, victim) === 1);
  release();
  await acknowledged(calm, 1);
  const inOrder = Array.from({ length: count }, (_, n) => n + 1);
  for (const { all } of floods) t.same(await all, inOrder, 'in the order of the client');
  const passed = await endedBefore(
    floods.map(({ one }) => one),
    victim,
  );
  t.ok(passed < 16, `${passed} of ${16 * floods.length} that were there before went before one of a neighbour`);
});

t.test('accounts take turns to write, and a device that reports in bulk is read no further meanwhile', async (t) => {
  const f = await fixtureIn(service);
  const victim = await neighbour(f);
  const client = await rawConnected(t, f);
  const calm = await rawConnected(t, victim);
  const first = await endingReplies(f);
  const release = await holdWrites(service);
  const before = await waiting();
  const lanes = lanesOfWrites(t, service);
  const more = many(500, f.topic('_commands/replies'), (n) =>
    JSON.stringify({ id: 'x', status: 'succeeded', result: n }),
  );
  client.send(...first, ...more.slice(first.length));
  await until(() => waitsOf(lanes, f) === 16);
  client.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId: 501 }));
  calm.send(publishPacket(victim.topic('_set/fields'), setName('fair'), { qos: 1, messageId: 1 }));
  await until(() => waitsOf(lanes, victim) === 1);
  // What is noted of connections is written meanwhile, too.
  const writes = await metric({ service }, 'slipway_queue_depth{queue="registry_writer"}');
  t.ok(writes && writes - before < 25, `${writes} wait, of 501`);
  release();
  t.same(await acknowledged(calm, 1), [1]);
  t.equal((await acknowledged(client, 501)).at(-1), 501, 'all of it in the end, and in order');
  const passed = await endedBefore([f], victim);
  t.ok(passed < 10, `${passed} of 16 that were there before went before the one of a neighbour`);
});

t.test(
  'the progress of an update is merged while it waits, and each report is acknowledged when it is on disk',
  async (t) => {
    const { f, rolloutId } = await updating();
    const client = await rawConnected(t, f);
    const release = await holdWrites(service);
    const lanes = lanesOfWrites(t, service);
    const topic = f.topic('_firmware/status');
    client.send(...many(10, topic, (n) => JSON.stringify({ state: 'downloading', bytes: 100 * (n + 1) })));
    const refused = JSON.stringify({ state: 'downloading', bytes: 5, firmwareVersion: 'other' });
    client.send(publishPacket(topic, refused, { qos: 1, messageId: 11 }));
    client.send(publishPacket(topic, JSON.stringify({ state: 'downloaded' }), { qos: 1, messageId: 12 }));
    await until(() => waitsOf(lanes, f) > 0);
    t.ok(waitsOf(lanes, f) < 6, `${waitsOf(lanes, f)} writes wait for 12 reports`);
    release();
    await acknowledged(client, 12);
    const path = `/api/v1/firmware/rollouts/${rolloutId}/devices`;
    t.match((await service.ok('GET', path)).devices.results, [{ state: 'downloaded', bytes: 1000 }]);
    await service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
    const { refusals } = await service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
    t.equal(refusals.meta.count, 1, 'only the wrong one is refused, though it was merged with others');
  },
);

/** What a board says of a file. */
const ofFile = (N: string, P: number, S = 0) => ({ msgtype: 4, msgver: 1, N, R: '2.0', P, S });

/** What a device says of its update while its first report is written, on its JSON channel or on its control topic. */
const endings: Record<string, { said: object[]; isBoard?: true; is: object }> = {
  'it fails': {
    said: [{ state: 'installing' }, { state: 'failed' }, { state: 'downloading' }],
    is: { counts: { failed: 1 }, version: null, refused: 1 },
  },
  'it is installed': {
    said: ['installing', 'succeeded', 'downloading'].map((state) => ({ state, firmwareVersion: '2.0' })),
    is: { counts: { succeeded: 1 }, version: '2.0', refused: 1 },
  },
  'its files are finished, and one begins again': {
    said: [ofFile('b', 5), ofFile('a', 4), ofFile('a', 5), ofFile('a', 2)],
    isBoard: true,
    is: { counts: { succeeded: 1 }, version: '2.0', refused: 0 },
  },
  'its files are finished, and another one fails': {
    said: [ofFile('b', 5), ofFile('a', 4), ofFile('a', 5), ofFile('b', 5, -7)],
    isBoard: true,
    is: { counts: { succeeded: 1 }, version: '2.0', refused: 0 },
  },
};

for (const [what, { said, isBoard, is }] of Object.entries(endings))
  t.test(`the end of an update is kept, whatever its device says next: ${what}`, async (t) => {
    const { f, rolloutId } = await updating();
    const client = await rawConnected(t, f);
    const svc = controlTopic(service.controlRoot, f.device.id, 'svc');
    const topic = isBoard ? svc : f.topic('_firmware/status');
    const payloads = said.map((one) => (isBoard ? codec.encode(one) : JSON.stringify(one)));
    const release = await holdWrites(service);
    const lanes = lanesOfWrites(t, service);
    client.send(...payloads.map((payload, n) => publishPacket(topic, payload, { qos: 1, messageId: n + 1 })));
    await until(() => waitsOf(lanes, f) > 0);
    release();
    await acknowledged(client, said.length);
    const { firmwareVersion: version } = (await service.ok('GET', `/api/v1/devices/${f.device.id}`)).device;
    await service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
    const { refusals } = await service.ok('GET', `/api/v1/devices/${f.device.id}/refusals`);
    t.match({ ...(await rollout(service, rolloutId)), version, refused: refusals.meta.count }, is);
  });

t.test('replies to one command are taken in their order, whatever they say', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const path = `/api/v1/devices/${f.device.id}/commands`;
  const { id } = (await service.ok('POST', path, { body: { name: 'blink' } })).command;
  const release = await holdWrites(service);
  const lanes = lanesOfWrites(t, service);
  const statuses = ['accepted', 'accepted', 'succeeded'];
  client.send(...many(3, f.topic('_commands/replies'), (n) => JSON.stringify({ id, status: statuses[n] })));
  await until(() => waitsOf(lanes, f) > 0);
  release();
  await acknowledged(client, 3);
  t.match((await service.ok('GET', `${path}/${id}`)).command, { state: 'succeeded', lateReply: null });
  client.send(
    publishPacket(f.topic('_commands/replies'), JSON.stringify({ id, status: 'failed' }), { qos: 1, messageId: 4 }),
  );
  await acknowledged(client, 1);
  t.match((await service.ok('GET', `${path}/${id}`)).command, { state: 'succeeded', lateReply: { status: 'failed' } });
});

t.test('fields that are set again while they wait are written once', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const path = `/api/v1/devices/${f.device.id}`;
  const { version } = (await service.ok('GET', path)).device;
  const release = await holdWrites(service);
  const lanes = lanesOfWrites(t, service);
  client.send(...many(10, f.topic('_set/fields'), setName));
  await until(() => waitsOf(lanes, f) > 0);
  release();
  await acknowledged(client, 10);
  const { device } = await service.ok('GET', path);
  t.equal(device.serialNumber, 'N 9');
  t.ok(Number.parseInt(device.version, 36) - Number.parseInt(version, 36) < 4, 'the first, and what came meanwhile');
});

t.test('a device that subscribes to its commands again and again waits with one piece of work', async (t) => {
  const f = await fixtureIn(service);
  const client = await rawConnected(t, f);
  const release = await holdWrites(service);
  const lanes = lanesOfWrites(t, service);
  for (let n = 1; n <= 50; n += 1) client.send(subscribePacket(n, [f.topic('_commands'), 1]));
  for (let acks = 0; acks < 50; ) if ((await client.next()).cmd === 'suback') acks += 1;
  t.ok(waitsOf(lanes, f) < 6, `${waitsOf(lanes, f)} wait after 50`);
  release();
  const made = service.ok('POST', `/api/v1/devices/${f.device.id}/commands`, { body: { name: 'blink' } });
  t.match(await client.next(), { cmd: 'publish', topic: f.topic('_commands') });
  await made;
});

t.test('files of an update that are reported at once all count', async (t) => {
  const template = await service.template();
  const [device] = await devices(service, template.id, 1);
  if (!device) throw new Error('no device');
  const firmware = await publish(service, template.id, '2', { a: Buffer.from('a'), b: Buffer.from('b') });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const { send } = await board(service, device);
  await Promise.all(
    ['a', 'b'].flatMap((N) => [2, 3, 4, 5].map((P) => send({ msgtype: 4, msgver: 1, N, R: '2', P, S: 0 }))),
  );
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 1 } });
});

/** What is published on each channel whose messages change the registry; null where they do not. */
const writing: Record<HandledChannel, object | null> = {
  _log: null,
  '_set/fields': { state: { serialNumber: 'Lane' } },
  '_firmware/status': { state: 'downloading' },
  '_commands/replies': { id: 'x', status: 'succeeded' },
};

t.test(
  'what a caller causes to be written is in its lane, and what a stranger causes in that of all strangers',
  async (t) => {
    const f = await fixtureIn(service);
    const { accountId } = service;
    const asked = lanesOfWrites(t, service);
    const wrote = (wanted: Lane, what: string) => {
      const own = asked.filter((lane) => lane?.accountId === wanted.accountId && lane.callerId === wanted.callerId);
      t.ok(own.length > 0, what);
      asked.length = 0;
    };
    const ofDevice = { accountId, callerId: f.device.id };
    const client = await rawConnected(t, f);
    for (const [n, channel] of handledChannels.entries()) {
      if (!writing[channel]) continue;
      client.send(publishPacket(f.topic(channel), JSON.stringify(writing[channel]), { qos: 1, messageId: n + 1 }));
      await acknowledged(client, 1);
      wrote(ofDevice, channel);
    }
    const status = codec.encode({ msgtype: 4, msgver: 1, N: 'a', R: '1', P: 2, S: 0 });
    const svc = controlTopic(service.controlRoot, f.device.id, 'svc');
    client.send(publishPacket(svc, status, { qos: 1, messageId: 100 }));
    await acknowledged(client, 1);
    wrote(ofDevice, 'a control topic');
    client.send(subscribePacket(101, [f.topic('_commands'), 1]));
    t.match(await client.next(), { cmd: 'suback' });
    // What is noted of connections and refusals is written meanwhile, too.
    await until(() => waitsOf(asked, f) > 0);
    wrote(ofDevice, 'a subscription to _commands');
    await asDevice(service, { id: f.device.id, secret: f.secret }, 'POST', '/firmware/status', {
      state: 'downloading',
    });
    wrote(ofDevice, 'POST /firmware/status');
    const login = { emailAddress: adminEmail, password: adminPassword, accountId };
    await service.ok('POST', '/api/v1/auth/login-user', { body: login, token: null });
    wrote({ accountId: 'strangers', callerId: '127.0.0.1' }, 'a login');
    await service.ok('PUT', `/api/v1/devices/${f.device.id}`, {
      body: { serialNumber: 'PUT' },
      headers: { etag: await versionOf(service, f.device.id) },
    });
    t.ok(
      asked.some((lane) => lane?.accountId === accountId && lane.callerId !== f.device.id),
      'an admin',
    );
  },
);

t.end();
