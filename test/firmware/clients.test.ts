/** What devices in the field do that cannot be flashed again: other encoders, other headers, other orders of messages. */
import { randomBytes } from 'node:crypto';
import { get, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import type { Ok } from '../support/answers.ts';
import { part } from '../support/part.ts';
import { nextMessage, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { board, codec, getChunk, info } from './board.ts';
import { type Device, devices, offerTo, publish, rollOut, rollout, rolloutUntil, sha256 } from './fleet.ts';

const t = await part(import.meta);

const text = (value: string) => Buffer.concat([Buffer.from([0x60 + value.length]), Buffer.from(value)]);
const [beginMap, beginList, end] = [Buffer.from([0xbf]), Buffer.from([0x9f]), Buffer.from([0xff])];
/** FILE_INFO of an encoder that does not know how many entries will come. */
const streamed = (name: string, revision: string) =>
  Buffer.concat([
    ...[beginMap, text('msgtype'), Buffer.from([0]), text('msgver'), Buffer.from([1])],
    ...[text('list'), beginList, beginMap, text('N'), text(name), text('R'), text(revision), end, end],
    ...[text('L'), Buffer.from([0xf4]), end],
  ]);
const selfDescribed = Buffer.from([0xd9, 0xd9, 0xf7]);

/** The service of the tests that need nothing of their own in it. */
let shared: Service;
t.before(async () => {
  shared = await sharedService(t);
});

t.test('a board may write maps and lists without their length, begin with the CBOR tag, and use any QoS', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const firmware = await publish(service, template.id, '2.0', { 'app.bin': randomBytes(100) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const { send, next } = await board(service, device);
  for (const qos of [0, 1, 2] as const) {
    const offer = next();
    await send(streamed('app.bin', '1.0'), qos);
    t.match(await offer, { msgtype: 1, list: [{ N: 'app.bin', R: '2.0', S: 100 }] }, `QoS ${qos}`);
  }
  const chunk = next();
  await send(Buffer.concat([selfDescribed, codec.encode(getChunk('app.bin', '2.0', 0))]));
  t.match(await chunk, { msgtype: 3, S: 0, L: 100 });
  await send(streamed('app.bin', '2.0'), 0);
  await rolloutUntil(service, id, ({ state }) => state === 'finished');
});

t.test('a board is told of the files that differ, and of nothing when none does', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device, other] = (await devices(service, template.id, 2)) as [Device, Device];
  const firmware = await publish(service, template.id, '2', { app: randomBytes(10), constructor: randomBytes(20) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const { send, heard, client } = await board(service, device);
  await send(info({ app: '2' }));
  t.match(heard.splice(0), [{ msgtype: 1, list: [{ N: 'constructor', R: '2' }] }], 'what is not named is absent');
  const status = (N: string, P: number) => send({ msgtype: 4, msgver: 1, N, R: '2', P, S: 0 });
  await status('app', 5);
  t.equal((await rollout(service, id)).counts.downloading, 1, 'the other file has not come');
  await status('constructor', 3);
  t.equal((await rollout(service, id)).counts.installing, 1);
  await send(info({ app: '2', constructor: '2', bootloader: '7' }));
  t.match(await rollout(service, id), { state: 'finished', counts: { succeeded: 1 } });
  await send(info({ app: '1' }));
  t.same(heard, [], 'nothing is offered any more');
  t.ok(client.connected);
  const idle = await board(service, other);
  await idle.send(info({ app: '1' }));
  t.same(idle.heard, [], 'nothing is offered at all');
});

t.test('chunks take a place from the first until the last; who has none gets no chunk, and asks again', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_DOWNLOADS: '1' } });
  const template = await service.template();
  const [one, two, polling] = (await devices(service, template.id, 3)) as [Device, Device, Device];
  const firmware = await publish(service, template.id, '2', { app: randomBytes(1500) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [one.id, two.id, polling.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 3);
  const boards = [await board(service, one), await board(service, two)] as const;
  const { url } = (await offerTo(service, polling)).files[0];
  await boards[0].send(getChunk('app', '2', 0));
  t.match(boards[0].heard.splice(0), [{ msgtype: 3, S: 0, L: 1024 }]);
  await boards[1].send(getChunk('app', '2', 0));
  t.same(boards[1].heard, [], 'no place');
  t.equal((await fetch(url)).status, 429, 'nor over HTTP');
  await boards[0].send(getChunk('app', '2', 1024));
  t.match(boards[0].heard, [{ msgtype: 3, S: 0, L: 476 }], 'the last one');
  await boards[1].send(getChunk('app', '2', 0));
  t.match(boards[1].heard, [{ msgtype: 3, S: 0, L: 1024 }]);
});

t.test('headers of downloads: odd ranges get the whole file or 416, etags may be weak or several', async (t) => {
  const service = shared;
  const template = await service.template();
  const [device] = (await devices(service, template.id, 1)) as [Device];
  const bytes = randomBytes(1000);
  const firmware = await publish(service, template.id, '2', { app: bytes });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  const { url } = (await offerTo(service, device)).files[0];
  const get = async (headers: Record<string, string>) => {
    const answer = await fetch(url, { headers });
    const body = new Uint8Array(await answer.arrayBuffer());
    return [answer.status, answer.status < 300 ? body.length : 0];
  };
  const huge = '9'.repeat(40);
  const many = Array.from({ length: 500 }, (_, n) => `${n}-${n}`).join(',');
  for (const range of [
    'bytes=0-0,1-1',
    'bytes=0-9,5-14,0-',
    `bytes=${many}`,
    'bytes=5-3',
    'bytes=-',
    'bytes=-1-5',
    'x=0-1',
  ])
    t.same(await get({ range }), [200, 1000], range.slice(0, 20));
  for (const range of ['bytes=1000-', `bytes=${huge}-`, 'bytes=-0']) t.same(await get({ range }), [416, 0], range);
  for (const range of ['bytes=0-', `bytes=0-${huge}`, `bytes=-${huge}`])
    t.same(await get({ range }), [206, 1000], range);
  t.same(await get({ range: 'Bytes=998-' }), [206, 2]);
  const etag = `"${sha256(bytes)}"`;
  for (const named of [etag, `W/${etag}`, `"x", ${etag}`, '*'])
    t.same(await get({ 'if-none-match': named }), [304, 0], named.slice(0, 5));
  t.same(await get({ 'if-none-match': '"x"' }), [200, 1000]);
  t.same(await get({ range: 'bytes=0-1', 'if-range': 'Wed, 21 Oct 2015 07:28:00 GMT' }), [200, 1000]);
});

/** Devices with an update before them. */
async function waiting(service: Service, count: number): Promise<Device[]> {
  const template = await service.template();
  const made = await devices(service, template.id, count);
  const firmware = await publish(service, template.id, '2');
  const { id } = await rollOut(service, firmware, { target: { deviceIds: made.map((one) => one.id) } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === count);
  return made;
}

type Offer = Ok<'GET', '/api/v1/firmware/offer'>;

/** GET /firmware/offer with these headers, as they are. */
async function ask(
  service: Service,
  headers: Record<string, string>,
): Promise<{ answer: IncomingMessage; body: Offer }> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    get(`${service.server.url}/api/v1/firmware/offer`, { headers, agent: false }, resolve).on('error', reject);
  });
  return { answer, body: (await json(answer)) as Offer };
}

t.test('URLs lead where the device can go: where it has asked, or to an address of the machine', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_HOST: '0.0.0.0' } });
  const [device] = (await waiting(service, 1)) as [Device];
  service.secrets.add(device.secret);
  const authorization = `Basic ${Buffer.from(`${device.id}:${device.secret}`).toString('base64')}`;
  const urlFor = async (host: string) => (await ask(service, { authorization, host })).body.files[0].url;
  t.match(await urlFor('things.local:8080'), /^http:\/\/things\.local:8080\/api\/v1\/firmware\/files\//);
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const offered = nextMessage(client);
  await client.subscribeAsync(service.topic(device.id, '_firmware'), { qos: 1 });
  const [{ url }] = JSON.parse((await offered).text).files;
  t.notMatch(url, /0\.0\.0\.0/);
  t.equal((await fetch(url)).status, 200);
});

t.test('with a public address, URLs begin with it, whatever a device calls the service', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_PUBLIC_URL: 'https://things.example.com' } });
  const [device] = (await waiting(service, 1)) as [Device];
  service.secrets.add(device.secret);
  const authorization = `Basic ${Buffer.from(`${device.id}:${device.secret}`).toString('base64')}`;
  const { body } = await ask(service, { authorization, host: 'evil.example.com' });
  t.match(body.files[0].url, /^https:\/\/things\.example\.com\/api/);
});

t.test('a client that waits to be asked for its password is asked; browsers ask nobody', async (t) => {
  const service = shared;
  const challenge = async (headers: Record<string, string>) => {
    const { answer } = await ask(service, headers);
    return [answer.statusCode, answer.headers['www-authenticate']?.split(' ')[0]];
  };
  t.same(await challenge({}), [401, 'Basic']);
  t.same(await challenge({ authorization: `Basic ${Buffer.from('a:b').toString('base64')}` }), [401, 'Basic']);
  t.same(await challenge({ authorization: 'Bearer x' }), [401, undefined]);
  t.same(await challenge({ cookie: 'a=b' }), [401, undefined]);
});

t.end();
