/** The share of the disk that an account may take while there is another one: out of the box, and by what is really on the disk. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import type { Test } from 'tap';
import { metric } from '../broker/metrics.ts';
import { publish as publishFirmware } from '../firmware/fleet.ts';
import { changeStored, weighAccounts, whileDiskIsFull } from '../support/faults.ts';
import { follow } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, closed, nextMessage, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const mebibyte = 1024 * 1024;
const text = { 'content-type': 'text/csv' };

async function usageOf(service: Service, token = service.admin) {
  return (await service.ok('GET', '/api/v1/usage', { token })).usage;
}

/** Bytes of a database that are in use. */
function inUse(file: Sqlite.Database): number {
  const [pages, unused, bytes] = ['page_count', 'freelist_count', 'page_size'].map((name) =>
    Number(file.pragma(name, { simple: true })),
  ) as [number, number, number];
  return bytes * (pages - unused);
}

/** The rows of a CSV payload with texts of 900 bytes. */
const rows = (count: number) => Array.from({ length: count }, () => `,c,,${'x'.repeat(900)}`).join('\n');

/** A device that stores points, with its client. */
async function startDevice(t: Test, service: Service) {
  const template = await service.template({ channels: ['data', { name: 'live', persistenceType: 'simple' }] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  t.teardown(() => client.end(true));
  await client.subscribeAsync(service.topic(device.id, '_rejected'), { qos: 1 });
  return { device, client, template, topic: service.topic(device.id, 'data') };
}

t.test('an account takes half of the disk and no more, and other accounts go on', async (t) => {
  let room = 6 * mebibyte;
  let stored = () => 0;
  const logLines: string[] = [];
  const env = { SLIPWAY_DISK_RESERVE_BYTES: String(mebibyte) };
  const service = await startService(t, { env, logLines, freeOnDisk: async () => room - stored() });
  const file = new Sqlite(join(service.directory, 'messages.db'), { readonly: true });
  t.teardown(() => file.close());
  const empty = inUse(file);
  stored = () => inUse(file) - empty;
  const gauge = async (name: string) => Number(await metric({ service }, `slipway_disk_share_${name}`));
  t.ok(Number.isNaN(await gauge('bytes')), 'the only account has all of it');
  const other = await service.account();
  const { device, client, template, topic } = await startDevice(t, service);
  await until(async () => !Number.isNaN(await gauge('bytes')));
  const share = await gauge('bytes');
  t.ok(share >= 2.5 * mebibyte && share < 2.6 * mebibyte, `${share} bytes`);
  const [mine, others] = [await usageOf(service), await usageOf(service, other.admin)];
  const { diskBytes } = mine;
  const untold = { diskSharePercent: null, diskShareBytes: null };
  for (const usage of [mine, others]) t.match(usage, untold, 'nobody is told what is free on the machine');
  t.ok(diskBytes > 0 && others.diskBytes > 0 && diskBytes < mebibyte / 10, `${diskBytes} bytes`);

  const post = (path: string, body: unknown, headers = {}) => service.http('POST', path, { body, headers });
  const store = () => post(`/api/v4/data/${topic}`, rows(120), text);
  let count = 0;
  for (let isTaken = true; isTaken; ) {
    const { diskBytes: before } = await usageOf(service);
    const answers = await Promise.all(Array.from({ length: 5 }, store));
    const taken = answers.filter(({ status }) => status === 200).length;
    count += taken;
    isTaken = taken === answers.length;
    // The service looks once a second, so a time is waited for.
    if (isTaken) await until(async () => (await usageOf(service)).diskBytes > before);
  }
  t.ok(count >= 15 && count <= 35, `${count} messages of 120 points of 1 KB`);
  const { diskSharePercent, diskShareBytes } = await usageOf(service);
  t.ok(diskSharePercent >= 80 && diskSharePercent <= 100, `${diskSharePercent} %`);
  t.equal(diskShareBytes, null);
  t.match(await usageOf(service, other.admin), untold, 'another account is told nothing');
  const refusal = { code: -199, details: [{ message: /^The account has taken its share of the disk/ }] };
  const refused = { status: 507, body: { error: refusal } };
  const { accountId } = service;
  const of = { accountId, deviceTemplateId: template.id };
  t.match(await store(), refused);
  t.match(await post('/api/v1/devices', { ...of, serialNumber: 'new' }), refused);
  t.match(await post('/api/v1/provisioning/jobs', { rows: [{ serialNumber: 'new' }] }), refused);
  t.match(await post(`/api/v1/devices/${device.id}/commands`, { name: 'x' }), refused);
  t.match(await post(`/api/v1/devices/${device.id}/logs`, { message: 'hot' }), refused);
  t.match(await post(`/messaging/publish/${service.topic(device.id, 'live')}?retain=true`, 'on', text), refused);
  await t.rejects(publishFirmware(service, template.id, '2', { 'app.bin': randomBytes(10) }), /share of the disk/);

  const said = nextMessage(client, (heard) => heard.endsWith('/_rejected'));
  const ended = closed(client).then(() => 'closed');
  const published = client.publishAsync(topic, ',c,1,', { qos: 1 });
  published.catch(() => {});
  t.equal(await Promise.race([published, ended]), 'closed', 'nothing is acknowledged that is not kept');
  t.match(JSON.parse((await said).text).error, refusal);

  const made = { accountId: other.accountId, name: 'of another account' };
  t.equal((await service.http('POST', '/api/v1/organizations', { body: made, token: other.admin })).status, 200);
  t.ok((await service.loginAs(adminEmail, adminPassword)).jwt, 'logging in works');
  t.ok(await service.credential(device.id), 'a secret can be replaced');
  const { device: found } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: found.version } });

  await until(async () => (await gauge('refused_accounts')) === 1);
  const lines = logLines.map((line) => JSON.parse(line)).filter(({ msg }) => /share of the disk/.test(msg ?? ''));
  t.match(
    lines.filter(({ level }) => level >= 40).map(({ msg, accountId }) => ({ msg, accountId })),
    [
      { msg: 'an account takes 80 % of its share of the disk', accountId },
      { msg: 'an account is refused: it has taken its share of the disk', accountId },
    ],
    'the operator is told, once',
  );
  const [most, shareNow] = [await gauge('highest_use_bytes'), await gauge('bytes')];
  t.ok(most <= shareNow, `what comes between two looks at the disk is counted, too: ${most} of ${shareNow} bytes`);

  room = 100 * mebibyte;
  await until(async () => (await post('/api/v1/devices', { ...of, serialNumber: 'new' })).status === 200);
});

t.test('a job ends when the account has no more room, and goes on when it has', async (t) => {
  const service = await startService(t);
  const template = await service.template();
  let asked = 0;
  // There is room for the request, and none for its rows.
  const isFull = () => {
    asked += 1;
    return asked > 1;
  };
  const rows = [{ serialNumber: 'one' }, { serialNumber: 'two' }].map((row) => ({ ...row, template: template.name }));
  const { job, failed } = await whileDiskIsFull(service, isFull, async () => {
    const { body } = await service.http('POST', '/api/v1/provisioning/jobs', { body: { rows } });
    return { job: body.job, failed: (await follow(service, body.job.id)).at(-1) };
  });
  t.match(failed, { state: 'failed', done: 0, reason: /store is full/ });
  await service.http('POST', `/api/v1/provisioning/jobs/${job.id}/retry`);
  t.match((await follow(service, job.id)).at(-1), { state: 'succeeded', done: 2 });
});

t.test('what an account is said to take is what the databases grow by', async (t) => {
  const service = await startService(t);
  const { accountId } = service;
  const { topic, device, template } = await startDevice(t, service);
  for (const name of ['a', 'b'])
    await service.ok('POST', '/api/v1/devices/custom-fields', {
      body: { accountId, deviceTemplateId: template.id, name, fieldType: 'text' },
    });
  const files = ['registry.db', 'messages.db'].map(
    (name) => new Sqlite(join(service.directory, name), { readonly: true }),
  );
  t.teardown(() => {
    for (const file of files) file.close();
  });
  const bytes = () => files.reduce((sum, file) => sum + inUse(file), 0);
  const taken = async () => (await usageOf(service)).diskBytes;
  /** What has been counted, for each byte by which the files have grown. */
  const counted = async (work: () => Promise<unknown>) => {
    await weighAccounts(service);
    const before = { size: bytes(), taken: await taken() };
    await work();
    await weighAccounts(service);
    return ((await taken()) - before.taken) / (bytes() - before.size);
  };
  const many = async (count: number, one: (n: number) => Promise<unknown>) => {
    for (let n = 0; n < count; n += 20) await Promise.all(Array.from({ length: 20 }, (_, at) => one(n + at)));
  };
  const write = (body: string) => service.ok('POST', `/api/v4/data/${topic}`, { body, headers: text });
  const texts = (length: number) =>
    Array.from({ length: 100 }, (_, n) => `,c,,${`${n}`.padEnd(length, 'x')}`).join('\n');
  const log = (length: number) => ({
    message: Array.from({ length: length / 8 }, () => randomBytes(4).toString('hex')).join(' '),
  });
  const create = <const P extends string, const W extends string>(path: P, wrapper: W, body: object) =>
    service.create(path, wrapper, { accountId, ...body });
  const cases: Record<string, () => Promise<unknown>> = {
    'points of one number': () => many(20, () => write(Array.from({ length: 500 }, (_, n) => `,c,${n},`).join('\n'))),
    'texts of 100 bytes': () => many(20, () => write(texts(100))),
    'texts of 1,000 bytes': () => many(20, () => write(texts(1000))),
    'categories of 1,000 bytes that nobody else has': () =>
      many(20, () => write(Array.from({ length: 100 }, () => `,${randomBytes(500).toString('hex')},1,`).join('\n'))),
    'log entries': () => many(200, () => service.ok('POST', `/api/v1/devices/${device.id}/logs`, { body: log(80) })),
    'long log entries': () =>
      many(100, () => service.ok('POST', `/api/v1/devices/${device.id}/logs`, { body: log(8000) })),
    'devices and organizations': async () => {
      await many(400, (n) => create('/devices', 'device', { deviceTemplateId: template.id, serialNumber: `SN-${n}` }));
      const values = { a: 'x'.repeat(1000), b: 'y'.repeat(1000) };
      const long = (n: number) => ({ deviceTemplateId: template.id, serialNumber: `L-${n}`, ...values });
      await many(200, (n) => create('/devices', 'device', long(n)));
      await many(200, (n) => create('/organizations', 'organization', { name: `Organization ${n}` }));
    },
    commands: () =>
      many(80, () =>
        service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: 'x', payload: 'x'.repeat(9000) } }),
      ),
  };
  for (const [name, work] of Object.entries(cases)) {
    const share = await counted(work);
    t.ok(share > 0.4 && share < 1.7, `${name}: ${share.toFixed(2)}`);
  }
  const { usage } = await service.ok('GET', '/api/v1/usage');
  t.ok(usage.diskBytes > bytes() / 2 && usage.diskBytes < bytes() * 1.5);
});

t.test('the accounts are summed by other threads when there are many, and /metrics still answers', async (t) => {
  const service = await startService(t);
  const many = 15_000;
  const numbers = `WITH RECURSIVE "many"("n") AS (SELECT 1 UNION ALL SELECT "n" + 1 FROM "many" WHERE "n" < ${many})`;
  const fill = (file: string, sql: string) => changeStored(service, `${numbers} ${sql}`, [], file);
  await fill('registry.db', `INSERT INTO "kept" SELECT 'account ' || "n", 'jobRowBytes', "n" FROM "many"`);
  await fill('messages.db', `INSERT INTO "heldBytes" SELECT 'account ' || "n", 1000 FROM "many"`);
  await weighAccounts(service);
  t.same(await weighAccounts(service), ['messages', 'registry']);
  const { text: metrics } = await service.http('GET', '/metrics', { token: null });
  t.match(metrics, new RegExp(`^slipway_disk_share_highest_use_bytes ${1.5 * many + 1000}$`, 'm'));
});

t.end();
