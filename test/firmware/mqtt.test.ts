/** Firmware over MQTT: JSON on `_firmware`, CBOR on the control topics, junk there, and offers that are revoked. */
import { randomBytes } from 'node:crypto';
import { part } from '../support/part.ts';
import { nextMessage, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { board, codec, info } from './board.ts';
import { asDevice, type Device, devices, offerTo, publish, rollOut, rollout, rolloutUntil, sha256 } from './fleet.ts';

const t = await part(import.meta);

/** The service of the tests that need nothing of their own in it. */
let shared: Service;
t.before(async () => {
  shared = await sharedService(t);
});

t.test('what a device says on _set/fields that it runs ends its update, or its success', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const { id } = await rollOut(service, await publish(service, template.id, '2.0'), {
    target: { deviceIds: [device.id] },
  });
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const runs = (firmwareVersion: string) =>
    client.publishAsync(service.topic(device.id, '_set/fields'), JSON.stringify({ state: { firmwareVersion } }), {
      qos: 1,
    });
  const row = async () => (await service.ok('GET', `/api/v1/devices/${device.id}/firmware`)).firmware;
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  await offerTo(service, device);
  await runs('1.0');
  t.match(await row(), { state: 'offered' }, 'it has said nothing of the update');
  await runs('2.0');
  t.match(await row(), { state: 'succeeded' });
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 1 } });
  await runs('1.0');
  t.match(await row(), { state: 'failed', message: 'running 1.0' });
  const shown = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  t.match(shown, { firmwareVersion: '1.0', firmwareVersionSource: 'device', firmwareVersionTime: String });
  await runs('3.0');
  t.match(await row(), { state: 'failed', message: 'running 1.0' }, 'the row stays as it ended');
});

t.test('JSON: the offer comes with the subscription and when it arises, and the status sets the version', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const none = nextMessage(client);
  await client.subscribeAsync(service.topic(device.id, '_firmware'), { qos: 1 });
  t.same(JSON.parse((await none).text), { files: [] });
  const firmware = await publish(service, template.id, '2.0', { 'app.bin': randomBytes(5000) });
  const arisen = nextMessage(client);
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  const offer = JSON.parse((await arisen).text);
  t.match(offer, { packageId: firmware.id, firmwareVersion: '2.0', files: [{ name: 'app.bin', size: 5000 }] });
  const response = await fetch(offer.files[0].url);
  t.equal(sha256(new Uint8Array(await response.arrayBuffer())), offer.files[0].sha256);
  const say = (status: object) =>
    client.publishAsync(service.topic(device.id, '_firmware/status'), JSON.stringify(status), { qos: 1 });
  await say({ state: 'downloaded', bytes: 5000 });
  t.equal((await rollout(service, id)).counts.downloaded, 1);
  await say({ state: 'succeeded', firmwareVersion: '2.0' });
  t.equal((await rollout(service, id)).state, 'finished');
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.firmwareVersion, '2.0');
  await say({ state: 'broken' });
  await service.ok('GET', `/api/v1/devices/${device.id}/refusals`);
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}/refusals`)).refusals.meta.count, 1);
});

t.test('CBOR: a board asks, gets chunks one by one, and comes back with the new revision', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const bytes = randomBytes(2500);
  const firmware = await publish(service, template.id, '2.0', { 'app.bin': bytes });
  const { send, next } = await board(service, device);
  const told = next();
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  t.match(await told, { msgtype: 1, msgver: 1, list: [{ N: 'app.bin', R: '2.0', O: 0, S: 2500, M: true }] }, 'unasked');
  const asked = next();
  await send(info({ 'app.bin': '1.0' }, true));
  const { list } = await asked;
  t.equal(Buffer.from(list[0].F).toString('hex'), sha256(bytes));
  t.equal((await fetch(list[0].L)).status, 200, 'a link, because it takes links');
  const chunks: Buffer[] = [];
  for (let O = 0; O < 2500; ) {
    const chunk = next();
    await send({ msgtype: 2, msgver: 1, N: 'app.bin', R: '2.0', O, L: 4096 });
    const answer = await chunk;
    t.match(answer, { msgtype: 3, N: 'app.bin', O, S: 0, L: Math.min(1024, 2500 - O) });
    chunks.push(Buffer.from(answer.C));
    O += answer.L;
  }
  t.same(Buffer.concat(chunks), bytes);
  for (const [N, R, O, S] of [
    ['none', '2.0', 0, 1],
    ['app.bin', '2.0', 2500, 2],
    ['app.bin', '1.9', 0, 1],
  ]) {
    const refused = next();
    await send({ msgtype: 2, msgver: 1, N, R, O, L: 10 });
    t.match(await refused, { S, L: 0 });
  }
  await send({ msgtype: 4, msgver: 1, N: 'app.bin', R: '2.0', P: 3, S: 0 });
  t.equal((await rollout(service, id)).counts.downloaded, 1);
  await send({ msgtype: 4, msgver: 1, N: 'app.bin', R: '2.0', P: 4, S: 0 });
  t.equal((await rollout(service, id)).counts.installing, 1);
  await send(info({ 'app.bin': '2.0' }));
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 1 } });
  const over = next();
  await send({ msgtype: 2, msgver: 1, N: 'app.bin', R: '2.0', O: 0, L: 10 });
  t.match(await over, { S: 3 }, 'not offered any more');
});

t.test('CBOR: P 5 for every file is success, an error is a failure with its code', async (t) => {
  const service = shared;
  const template = await service.template();
  const [good, bad] = (await devices(service, template.id, 2)) as [Device, Device];
  const firmware = await publish(service, template.id, '3', { a: randomBytes(10), b: randomBytes(20) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [good.id, bad.id] }, maxFailurePercent: 100 });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
  const boards = [await board(service, good), await board(service, bad)] as const;
  for (const N of ['a', 'b']) await boards[0].send({ msgtype: 4, msgver: 1, N, R: '3', P: 5, S: 0 });
  await boards[1].send({ msgtype: 4, msgver: 1, N: 'a', R: '3', P: 3, S: -4 });
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 1, failed: 1 } });
  const { firmware: state } = await service.ok('GET', `/api/v1/devices/${bad.id}/firmware`);
  t.match(state, { state: 'failed', code: -4 });
});

/** Numbers that look random and are the same each time. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const ended = Buffer.from([0xff]);
const deep = (depth: number) =>
  Buffer.concat([...Array.from({ length: depth }, () => Buffer.from([0xa1, 0x61, 0x61])), Buffer.from([1])]);

t.test('junk and bombs on a control topic are counted, and the connection stays', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '0' } });
  const template = await service.template();
  const [device, other] = (await devices(service, template.id, 2)) as [Device, Device];
  const { client, send } = await board(service, device);
  const bombs = [
    deep(5000),
    Buffer.from([0x9b, 0, 0, 0, 1, 0, 0, 0, 0]),
    Buffer.from([0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    Buffer.from([0x7b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
    Buffer.from([0xbf, 0x61, 0x61, 0x9f]),
    Buffer.alloc(5000, 0x9f),
    Buffer.from([0xbf, 0x61, 0x61, 0xff]),
    Buffer.concat([Buffer.from([0xbf]), ...Array.from({ length: 1025 }, () => Buffer.from([0x61, 0x61, 1])), ended]),
    Buffer.concat([Buffer.from([0xa1, 0x61, 0x61, 0x9f]), Buffer.alloc(2000, 0x80), ended]),
    Buffer.from([0x7f, 0x61, 0x61, 0xff]),
    Buffer.from([0xd9, 0xd9, 0xf7]),
    codec.encode(Object.fromEntries(Array.from({ length: 600 }, (_, n) => [`k${n}`, n]))),
    Buffer.from([0xd9, 0xdf, 0xff, 0x80]),
    Buffer.alloc(20_000, 0x81),
    codec.encode({ msgtype: 0, msgver: 1, list: Array.from({ length: 65 }, () => ({ N: 'a', R: 'b' })) }),
    codec.encode({ msgtype: 2, msgver: 1, N: 'a', R: 'b', O: -1, L: 10 }),
    codec.encode({ msgtype: 2, msgver: 1, N: 'a', R: 'b', O: 0, L: 1e300 }),
    codec.encode({ msgtype: 4, msgver: 1, N: 'a', R: 'b', P: 9, S: 0 }),
    codec.encode({ msgtype: 9, msgver: 1 }),
    codec.encode({ msgtype: 0, msgver: 2, list: [] }),
    Buffer.alloc(0),
  ];
  // Of this thread, which decodes: others of the process may be starting.
  const memory = () => process.memoryUsage().heapTotal + process.memoryUsage().external;
  const before = memory();
  for (const bomb of bombs) await send(bomb);
  t.ok(memory() - before < 50_000_000, 'no bomb costs memory');
  const seed = codec.encode({ msgtype: 4, msgver: 1, N: 'app.bin', R: '2.0', P: 3, S: 0, list: [{ N: 'a', R: 'b' }] });
  for (const start of [1, 2, 3, 4, 5]) {
    const random = generator(start);
    for (let n = 0; n < 200; n += 1) {
      const bytes = Buffer.from(seed);
      for (let k = 0; k < 1 + random() * 6; k += 1)
        bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
      await send(bytes.subarray(0, 1 + Math.floor(random() * bytes.length)));
    }
  }
  t.ok(client.connected);
  t.equal((await service.http('GET', '/health/live', { token: null })).status, 200);
  await service.ok('GET', `/api/v1/devices/${device.id}/refusals`);
  t.ok((await service.ok('GET', `/api/v1/devices/${device.id}/refusals`)).refusals.meta.count > 0);
  const root = service.controlRoot;
  const granted = await client.subscribeAsync(`${root}/${other.id}/cln`).catch(() => []);
  t.ok(
    granted.every(({ qos }) => qos === 128),
    "another device's control topic is refused",
  );
});

t.test(
  'a device that moves, is deleted or gets another secret loses its offers before the answer leaves',
  async (t) => {
    const service = shared;
    const template = await service.template();
    const [home, elsewhere] = [await service.organization(), await service.organization()];
    const made = (await devices(service, template.id, 4, { organizationId: home.id })) as [
      Device,
      Device,
      Device,
      Device,
    ];
    const [moved, outside, deleted, regenerated] = made;
    const firmware = await publish(service, template.id, '2');
    const urls = new Map<string, string>();
    const offered = async (devices: Device[], target: object) => {
      const { id } = await rollOut(service, firmware, { target });
      await rolloutUntil(service, id, ({ counts }) => counts.pending === devices.length);
      for (const device of devices) urls.set(device.id, (await offerTo(service, device)).files[0].url);
      return id;
    };
    const byOrganization = await offered(made, { organizationId: home.id });
    const statusOf = async ({ id }: Device) => (await fetch(urls.get(id) ?? '')).status;
    for (const device of made) t.equal(await statusOf(device), 200);
    const change = async (method: string, { id }: Device, body?: object) => {
      const { version } = (await service.ok('GET', `/api/v1/devices/${id}`)).device;
      await service.ok(method, `/api/v1/devices/${id}`, { headers: { etag: version }, ...(body && { body }) });
    };
    await change('PUT', outside, { organizationId: elsewhere.id });
    t.equal(await statusOf(outside), 410);
    t.same(await offerTo(service, outside), { files: [] }, 'it is not of the organization any more');
    await change('DELETE', deleted);
    t.equal(await statusOf(deleted), 410);
    regenerated.secret = await service.credential(regenerated.id);
    t.equal(await statusOf(regenerated), 410);
    t.equal((await offerTo(service, regenerated)).files.length, 1, 'another offer for who has the new secret');
    t.match((await rollout(service, byOrganization)).counts, { cancelled: 2 });
    await offered([moved], { deviceIds: [moved.id] });
    await change('PUT', moved, { organizationId: elsewhere.id });
    t.equal(await statusOf(moved), 410);
    t.equal((await offerTo(service, moved)).files.length, 1, 'a rollout that names it goes on');
    t.match(await asDevice(service, moved, 'POST', '/firmware/status', { state: 'downloading' }), { status: 200 });
  },
);

t.end();
