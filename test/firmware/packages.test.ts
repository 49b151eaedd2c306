/** Firmware packages and their files: uploads whole, in parts, broken, wrong and too large. */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, rmSync, statSync } from 'node:fs';
import { type ClientRequest, request } from 'node:http';
import { join } from 'node:path';
import { purgeNow } from '../support/clockwork.ts';
import { whileDiskIsFull } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Answer, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const hash = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const etag = (version: string) => ({ headers: { etag: version } });

async function draft(service: Service, body: object = {}) {
  const template = await service.template();
  const named = { deviceTemplateId: template.id, name: service.unique('Firmware'), firmwareVersion: '2.0.0', ...body };
  return service.create('/firmware/packages', 'firmwarePackage', named);
}

async function put(
  service: Service,
  path: string,
  bytes: Buffer,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(`${service.server.url}/api/v1/firmware/packages/${path}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${service.admin}`, 'content-type': 'application/octet-stream', ...headers },
    body: new Uint8Array(bytes),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: JSON.parse(text), text };
}

const contents = (service: Service) =>
  readdirSync(join(service.directory, 'firmware')).filter((name) => name !== 'partial');

/** The service of the tests that need nothing of their own in it. */
let shared: Service;
t.before(async () => {
  shared = await startService(t);
});

t.test('a package is a draft until it is published, and frozen from then on', async (t) => {
  const service = shared;
  const made = await draft(service, { description: 'first' });
  t.match(made, { state: 'draft', files: { length: 0 }, description: 'first', firmwareVersion: '2.0.0' });
  const path = `/api/v1/firmware/packages/${made.id}`;
  t.match(await service.http('POST', `${path}/publish`, etag(made.version)), { status: 400 }, 'without a file');

  const bytes = randomBytes(100_000);
  const other = { 'content-digest': `sha-256=:${createHash('sha256').update('other').digest('base64')}:` };
  t.match(await put(service, `${made.id}/files/app.bin`, bytes, other), { status: 400 }, 'another digest');
  const packed = await put(service, `${made.id}/files/app.bin`, bytes, { 'content-encoding': 'gzip' });
  t.match(
    packed,
    { status: 415, body: { error: { details: [{ path: 'content-encoding' }] } } },
    'a file is sent as it is',
  );
  const uploaded = await put(service, `${made.id}/files/app.bin?signature=c2lnbmVk`, bytes, {
    digest: `sha-256=${createHash('sha256').update(bytes).digest('base64')}`,
  });
  t.equal(uploaded.status, 200);
  const file = { name: 'app.bin', revision: '2.0.0', size: 100_000, sha256: hash(bytes), signature: 'c2lnbmVk' };
  t.same(uploaded.body.firmwarePackage.files, [file]);
  const { version } = uploaded.body.firmwarePackage;
  t.not(version, made.version, 'the package has changed');
  t.equal(uploaded.headers.get('etag'), `"${version}"`);

  t.match(await service.http('POST', `${path}/publish`, etag(made.version)), { status: 412 }, 'with an old etag');
  const published = await service.ok('POST', `${path}/publish`, etag(version));
  t.equal(published.firmwarePackage.state, 'published');
  t.equal((await put(service, `${made.id}/files/app.bin`, bytes)).status, 400, 'no file changes');
  t.match(await service.http('DELETE', `${path}/files/app.bin`), { status: 400 }, 'nor goes');
  const latest = published.firmwarePackage.version;
  const renumbered = { body: { firmwareVersion: '3' }, ...etag(latest) };
  t.match(await service.http('PUT', path, renumbered), { status: 400, body: { error: { code: 106 } } });
  const described = await service.ok('PUT', path, { body: { description: 'second' }, ...etag(latest) });
  const retired = await service.ok('POST', `${path}/retire`, etag(described.firmwarePackage.version));
  t.match(retired.firmwarePackage, { state: 'retired', description: 'second' });

  const gone = await service.ok('DELETE', path, etag(retired.firmwarePackage.version));
  t.match(await service.http('GET', path), { status: 410 });
  const back = await service.ok(
    'POST',
    `/api/v1/trash/firmware/packages/${made.id}/recover`,
    etag(gone.firmwarePackage.version),
  );
  t.same(back.firmwarePackage.files, [file]);
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${made.id}&pageSize=50`);
  const changes = audit.auditRecords.results.map(({ details }) => details.change);
  t.same(changes, ['recovered', 'deleted', 'retired', 'updated', 'published', 'fileUploaded', 'created']);
});

t.test('a file comes in parts, goes on after a break, and a gap is refused with what is there', async (t) => {
  const service = await startService(t);
  const { id } = await draft(service);
  const bytes = randomBytes(300_000);
  const part = (from: number, to: number) => ({ 'content-range': `bytes ${from}-${to - 1}/${bytes.length}` });
  const send = (from: number, to: number, headers = {}) =>
    put(service, `${id}/files/app.bin`, bytes.subarray(from, to), { ...part(from, to), ...headers });
  const first = await send(0, 100_000, { digest: `sha-256=${hash(bytes)}` });
  t.same([first.status, first.body], [202, { file: { name: 'app.bin', received: 100_000 } }]);
  t.match(await send(150_000, 200_000), {
    status: 416,
    body: { error: { code: 109, details: [{ path: 'content-range', received: 100_000 }] } },
  });
  // A connection that breaks in the middle of a part.
  const broken = request(`${service.server.url}/api/v1/firmware/packages/${id}/files/app.bin`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${service.admin}`, 'content-length': 200_000, ...part(100_000, 300_000) },
  });
  broken.on('error', () => {});
  await new Promise<void>((resolve) => broken.write(bytes.subarray(100_000, 150_000), () => resolve()));
  broken.flushHeaders();
  await until(() => partials(service).some((size) => size === 150_000));
  const ended = new Promise((resolve) => broken.once('close', resolve));
  broken.destroy();
  await ended;
  await until(() => countStored(service, 'firmwareUploads', '"received" = 150000') === 1);
  const { file } = await service.ok('GET', `/api/v1/firmware/packages/${id}/files/app.bin`);
  t.same(file, { name: 'app.bin', received: 150_000, total: 300_000 });
  // A client that has not heard of the last bytes sends some again.
  const digestOf = (of: Buffer) => `sha-256=:${createHash('sha256').update(of).digest('base64')}:`;
  const wrong = await send(120_000, 300_000, { 'content-digest': digestOf(bytes) });
  t.match(wrong, { status: 400 }, 'the digest of the whole file is not that of the part');
  const whole = await send(120_000, 300_000, { 'repr-digest': digestOf(bytes) });
  t.equal(whole.status, 200);
  t.match(whole.body.firmwarePackage.files, [{ sha256: hash(bytes), size: 300_000 }]);
  t.same(contents(service), [hash(bytes)]);
  t.same(partials(service), []);
  const other = { ...part(0, bytes.length), 'repr-digest': digestOf(randomBytes(1)) };
  t.match(await put(service, `${id}/files/other.bin`, bytes, other), { status: 400 }, 'the digest of another file');
  t.same(contents(service), [hash(bytes)]);
});

/** The sizes of files that are not whole. */
function partials({ directory }: Service): number[] {
  const place = join(directory, 'firmware/partial');
  return readdirSync(place).map((name) => statSync(join(place, name)).size);
}

t.test('what is wrong is refused, and nothing of it is kept', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_FILE_BYTES: '200000' } });
  const { id } = await draft(service);
  const bytes = randomBytes(1000);
  const wrong = await put(service, `${id}/files/app.bin`, bytes, { digest: `sha-256=${hash(randomBytes(1))}` });
  t.match(wrong, { status: 400, body: { error: { code: 106, details: [{ path: 'digest' }] } } });
  t.equal((await put(service, `${id}/files/app.bin`, bytes, { digest: 'md5=xx' })).status, 400);
  for (const name of ['..%2Fapp', '.hidden', 'a%2Fb', 'x'.repeat(65), 'a%20b', '%00'])
    t.match(await put(service, `${id}/files/${name}`, bytes), { status: 400, body: { error: { code: 106 } } }, name);
  for (const range of ['bytes 5-3/10', 'bytes 0-9/5', 'lines 0-999/1000', 'bytes 0-10/1000'])
    t.equal((await put(service, `${id}/files/app.bin`, bytes, { 'content-range': range })).status, 400, range);
  t.equal((await put(service, `${id}/files/app.bin`, Buffer.alloc(0))).status, 400, 'an empty file');
  const large = await put(service, `${id}/files/app.bin`, randomBytes(200_001));
  t.equal(large.status, 413);
  t.match(large.body.error.message, /SLIPWAY_FIRMWARE_FILE_BYTES/);
  t.same(contents(service), []);
  for (let n = 0; n < 16; n += 1) await put(service, `${id}/files/f${n}`, bytes);
  t.match(await put(service, `${id}/files/f16`, bytes), { status: 400, body: { error: { code: 106 } } }, 'a 17th');
  t.equal((await put(service, `${id}/files/f15`, randomBytes(10))).status, 200, 'another 16th');
  t.equal(contents(service).length, 2, 'equal files are stored once');
  const audited = await service.ok('GET', `/api/v1/firmware/packages/${id}`);
  t.equal(audited.firmwarePackage.files.length, 16);
  const unknown = `/api/v1/firmware/packages/${id}/files/none`;
  t.match(await service.http('GET', unknown), { status: 404 });
  t.match(await service.http('DELETE', unknown), { status: 404 });
});

t.test('an account has a quota of bytes, each content once', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_BYTES_PER_ACCOUNT: '2500' } });
  const { id } = await draft(service);
  const bytes = randomBytes(1000);
  t.equal((await put(service, `${id}/files/one`, bytes)).status, 200);
  t.equal((await put(service, `${id}/files/same`, bytes)).status, 200);
  t.equal((await put(service, `${id}/files/two`, randomBytes(1000))).status, 200);
  const refused = await put(service, `${id}/files/three`, randomBytes(1000));
  t.equal(refused.status, 400);
  t.match(refused.body.error.details[0].message, /SLIPWAY_FIRMWARE_BYTES_PER_ACCOUNT.* at most 2500/);
  const { usage } = await service.ok('GET', '/api/v1/usage');
  t.match(
    usage.limits.find(({ name }) => name === 'firmwareBytes'),
    { used: 2000, limit: 2500 },
  );
  await service.ok('DELETE', `/api/v1/firmware/packages/${id}/files/two`);
  t.equal((await put(service, `${id}/files/three`, randomBytes(1000))).status, 200, 'room again');
});

t.test('uploads at the same time do not get past the quota', async (t) => {
  const quota = { SLIPWAY_FIRMWARE_BYTES_PER_ACCOUNT: '2500', SLIPWAY_FIRMWARE_FILE_BYTES: '1024' };
  const service = await startService(t, { env: quota });
  const { id } = await draft(service);
  const upload = (name: string, headers: Record<string, string>) =>
    new Promise<{ sending: ClientRequest; status: Promise<number | undefined> }>((resolve) => {
      const sending = request(`${service.server.url}/api/v1/firmware/packages/${id}/files/${name}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${service.admin}`, 'content-type': 'application/octet-stream', ...headers },
      });
      sending.on('error', () => {});
      t.teardown(() => sending.destroy());
      const status = new Promise<number | undefined>((answered) =>
        sending.once('response', (response) => answered(response.resume().statusCode)),
      );
      sending.flushHeaders();
      resolve({ sending, status });
    });
  const finish = async (headers: Record<string, string>) => {
    const all = await Promise.all(Array.from({ length: 6 }, (_, n) => upload(`${n}`, headers)));
    // Each has begun before the first has ended.
    for (const [n, { status }] of all.entries()) {
      const known = async () =>
        (await service.http('GET', `/api/v1/firmware/packages/${id}/files/${n}`)).status === 200;
      let isAnswered = false;
      status.then(() => {
        isAnswered = true;
      });
      while (!isAnswered && !(await known()));
    }
    for (const { sending } of all) sending.end(randomBytes(1000));
    return Promise.all(all.map(({ status }) => status));
  };
  const used = async () => {
    const { usage } = await service.ok('GET', '/api/v1/usage');
    return usage.limits.find(({ name }) => name === 'firmwareBytes')?.used;
  };
  for (const [name, value] of [
    ['transfer-encoding', 'chunked'],
    ['content-length', '1000'],
  ] as const) {
    t.equal((await finish({ [name]: value })).filter((status) => status === 200).length, 2, name);
    t.equal(await used(), 2000);
    t.same(partials(service), []);
    const { firmwarePackage } = await service.ok('GET', `/api/v1/firmware/packages/${id}`);
    for (const { name } of firmwarePackage.files)
      await service.ok('DELETE', `/api/v1/firmware/packages/${id}/files/${name}`);
  }
});

t.test('an upload ends when the disk becomes full, and goes on later', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_DISK_RESERVE_BYTES: '0' } });
  const { id } = await draft(service);
  const bytes = randomBytes(1000);
  // There is room for all of it when it begins, and none while it comes.
  const isFull = (_: string, bytes?: number) => bytes === undefined;
  const refused = await whileDiskIsFull(service, isFull, () => put(service, `${id}/files/one`, bytes));
  t.match(refused, { status: 507, body: { error: { code: -199 } } });
  t.equal((await put(service, `${id}/files/one`, bytes)).status, 200);
});

t.test('a full disk is 507', async (t) => {
  let free = 1e9;
  const env = { SLIPWAY_DISK_RESERVE_BYTES: '0' };
  const service = await startService(t, { env, freeOnDisk: async () => free });
  const { id } = await draft(service);
  free = 500;
  await until(async () => (await put(service, `${id}/files/one`, randomBytes(1000))).status === 507);
  t.match(await put(service, `${id}/files/one`, randomBytes(1000)), { status: 507, body: { error: { code: -199 } } });
});

t.test('what is not whole after a day goes, and contents that nobody uses a day later', async (t) => {
  let now = Date.parse('2026-03-01T00:00:00Z');
  const service = await startService(t, { clock: { now: () => now } });
  const { id } = await draft(service);
  await put(service, `${id}/files/half`, randomBytes(10), { 'content-range': 'bytes 0-9/20' });
  const used = randomBytes(10);
  await put(service, `${id}/files/used`, used);
  await put(service, `${id}/files/unused`, randomBytes(10));
  await service.ok('DELETE', `/api/v1/firmware/packages/${id}/files/unused`);
  await purgeNow(service);
  t.equal(contents(service).length, 2, 'a backup may be reading it');
  t.equal(partials(service).length, 1);
  now += 24 * 60 * 60_000 + 1000;
  await service.login();
  await purgeNow(service);
  t.same(contents(service), [hash(used)]);
  t.equal(partials(service).length, 0);
  t.match(await service.http('GET', `/api/v1/firmware/packages/${id}/files/half`), { status: 404 });
  rmSync(join(service.directory, 'firmware', hash(used)));
  t.equal((await put(service, `${id}/files/again`, used)).status, 200, 'what has been lost can be uploaded again');
});

t.test('two uploads of one file at once: the later one wins, whole', async (t) => {
  const service = shared;
  const { id } = await draft(service);
  const files = Array.from({ length: 6 }, () => randomBytes(500_000));
  const answers = await Promise.all(files.map((bytes) => put(service, `${id}/files/app.bin`, bytes).catch(() => null)));
  t.ok(answers.some((answer) => answer?.status === 200));
  const { firmwarePackage } = await service.ok('GET', `/api/v1/firmware/packages/${id}`);
  t.ok(files.some((bytes) => hash(bytes) === firmwarePackage.files[0].sha256));
  // One whose connection has ended is still cleared away.
  await until(() => partials(service).length === 0);
});

t.test('an account uploads so many files at a time', async (t) => {
  const service = shared;
  const [first, second] = [await draft(service), await draft(service)];
  const begin = (path: string) =>
    new Promise<ClientRequest>((resolve, reject) => {
      const headers = { authorization: `Bearer ${service.admin}`, 'content-type': 'application/octet-stream' };
      const sending = request(`${service.server.url}/api/v1/firmware/packages/${path}`, {
        ...{ method: 'PUT', headers: { ...headers, 'content-length': 100, expect: '100-continue' } },
      });
      sending.on('error', () => {});
      t.teardown(() => sending.destroy());
      sending.once('continue', () => resolve(sending));
      sending.once('response', ({ statusCode }) => reject(new Error(`it answered ${statusCode}`)));
      sending.flushHeaders();
    });
  const held = await Promise.all(Array.from({ length: 16 }, (_, n) => begin(`${first.id}/files/${n}`)));
  // Each is known to the service when it can be read.
  for (const [n] of held.entries())
    while ((await service.http('GET', `/api/v1/firmware/packages/${first.id}/files/${n}`)).status !== 200);
  const refused = await put(service, `${second.id}/files/one`, randomBytes(10));
  t.match(refused, { status: 429 });
  held[0]?.end(randomBytes(100));
  while ((await put(service, `${second.id}/files/one`, randomBytes(10))).status !== 200);
});

t.end();
