/** The results of jobs: for the caller that made the job, until they are confirmed or a day has passed. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import Sqlite from 'better-sqlite3';
import { parse } from 'csv-parse/sync';
import { encrypt } from '../../src/core/formats/aes-gcm.ts';
import { resultFile } from '../../src/factory/results/files.ts';
import { Sealing } from '../../src/identity/secrets/sealing.ts';
import { lookAtJobs } from '../support/clockwork.ts';
import { changeStored, clearRowsOf, emptyLog } from '../support/faults.ts';
import { download, follow, postRows, provision, rowsOf, unitsOf } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored, storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { unzipped } from '../support/unzipped.ts';

const t = await part(import.meta);

let now = Date.parse('2026-06-01T00:00:00Z');
let service: Service;
t.before(async () => {
  const env = {
    SLIPWAY_MQTT_PUBLIC_URL: 'mqtts://things.example.com:8883',
    SLIPWAY_CLAIM_URL: 'https://example.com/claim?from=label',
  };
  service = await startService(t, { clock: { now: () => now }, env });
});

const jobs = '/api/v1/provisioning/jobs';
const file = async (id: string, format: string, what = 'results') => {
  const response = await download(service, `${jobs}/${id}/${what}?format=${format}`);
  return { response, bytes: Buffer.from(await response.arrayBuffer()) };
};

/** Whether one of the texts is in a file of the data directory. */
function filesWith(directory: string, texts: readonly string[]): string[] {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  return files
    .filter((one) => {
      const bytes = readFileSync(join(one.parentPath, one.name));
      return texts.some((text) => bytes.includes(text));
    })
    .map(({ name }) => name);
}

const gone = { status: 410, body: { error: { code: 106 } } };

t.test('every format has the same units; a file for each is named by its row', async (t) => {
  const job = await provision(service, [
    { serialNumber: 'A "1", é' },
    { serialNumber: '../B/2' },
    { serialNumber: 'C' },
  ]);
  const units = await unitsOf(service, job.id);
  t.equal(units.length, 3);
  t.equal(units[0].broker, 'mqtts://things.example.com:8883');
  t.equal(
    units[0].claimUrl,
    `https://example.com/claim?from=label&code=${units[0].associationCode}&account=${service.accountId}`,
  );
  t.strictSame(JSON.parse((await file(job.id, 'json')).bytes.toString()), { results: units });
  const csv = await file(job.id, 'csv');
  t.match(csv.response.headers.get('content-disposition'), `job-${job.id}.csv`);
  t.equal(csv.response.headers.get('cache-control'), 'no-store');
  const rows = parse(csv.bytes, { columns: true }) as Array<{ row: string; topics: string; [column: string]: string }>;
  t.strictSame(
    rows.map((row) => ({ ...row, row: Number(row.row), topics: JSON.parse(row.topics) })),
    units,
  );
  for (const [format, extension] of [
    ['env', 'env'],
    ['c-header', 'h'],
    ['esp-nvs-csv', 'csv'],
  ] as const) {
    const files = await unzipped((await file(job.id, format)).bytes);
    t.strictSame([...files.keys()], [`1-A_1_.${extension}`, `2-.._B_2.${extension}`, `3-C.${extension}`], format);
    for (const [at, content] of [...files.values()].entries()) t.ok(content.includes(units[at].secret), format);
  }
  t.match(await service.http('GET', `${jobs}/${job.id}/results?format=xml`), { status: 400 });
});

t.test('a serial number is no formula in the CSV of results, and as it is in the files for programs', async (t) => {
  const serials = ['=1+1', '-2', '@x', '+3', 'plain'];
  const job = await provision(
    service,
    serials.map((serialNumber) => ({ serialNumber })),
  );
  const rows = parse((await file(job.id, 'csv')).bytes, { columns: true }) as Array<{
    row: string;
    topics: string;
    [column: string]: string;
  }>;
  const written = rows.map(({ serialNumber }) => serialNumber);
  t.strictSame(written, ["'=1+1", "'-2", "'@x", "'+3", 'plain']);
  const units = await unitsOf(service, job.id);
  t.strictSame(
    rows.map(({ secret, deviceId }) => ({ secret, deviceId })),
    units.map(({ secret, deviceId }) => ({ secret, deviceId })),
    'ids and secrets never change',
  );
  for (const format of ['json', 'esp-nvs-csv']) {
    const { bytes } = await file(job.id, format);
    t.ok(bytes.includes('=1+1') && !bytes.includes("'=1+1"), format);
  }
});

t.test('labels show the code and never the secret, and end with the results', async (t) => {
  const job = await provision(service, [{ serialNumber: 'L-1' }, { serialNumber: '<L-2>' }]);
  const units = await unitsOf(service, job.id);
  const sheet = (await file(job.id, 'html', 'labels')).bytes;
  t.ok(units.every(({ associationCode }) => sheet.includes(associationCode)));
  t.notOk(sheet.includes('<L-2>'));
  const contents: Buffer[] = [sheet];
  for (const format of ['svg', 'png']) {
    const files = await unzipped((await file(job.id, format, 'labels')).bytes);
    t.strictSame([...files.keys()], [`1-L-1.${format}`, `2-_L-2_.${format}`]);
    contents.push(...files.values());
  }
  for (const content of contents) t.notOk(units.some(({ secret }) => content.includes(secret)));
  await service.ok('POST', `${jobs}/${job.id}/results/confirm`);
  t.match(await service.http('GET', `${jobs}/${job.id}/labels`), gone);
});

t.test('a ZIP waits for its reader, however often, and leaves nothing behind by that', async (t) => {
  const topics = { data: `slipway/v1/${'x'.repeat(2000)}` };
  const unit = { serialNumber: 'Z', deviceId: 'd', accountId: 'a', secret: 's', associationCode: 'c', claimUrl: 'u' };
  async function* many() {
    for (let row = 1; row <= 200; row += 1) yield { row, ...unit, broker: 'mqtt://localhost', topics };
  }
  const { body } = resultFile('env', many());
  const listeners: number[] = [];
  const pieces: Buffer[] = [];
  for await (const piece of body) {
    pieces.push(piece as Buffer);
    listeners.push(body.listenerCount('close'));
    await nextTurn();
  }
  t.equal((await unzipped(Buffer.concat(pieces))).size, 200);
  t.ok(Math.max(...listeners) <= 5, `${Math.max(...listeners)} listeners in the end`);
});

t.test('only who made a job has its results; other admins see the job', async (t) => {
  const job = await provision(service, [{ serialNumber: 'O-1' }]);
  await service.create('/account-users', 'accountUser', {
    ...{ createIdmUser: true, idmUserEmail: 'other@example.com', idmUserPassword: 'another fine secret' },
  });
  const { jwt: token } = await service.loginAs('other@example.com', 'another fine secret');
  t.equal((await service.ok('GET', `${jobs}/${job.id}`, { token })).job.done, 1);
  const refused = { status: 403, body: { error: { code: 21 } } };
  for (const path of ['results', 'labels'])
    t.match(await service.http('GET', `${jobs}/${job.id}/${path}`, { token }), refused);
  t.match(await service.http('POST', `${jobs}/${job.id}/results/confirm`, { token }), refused);
  t.match(await service.http('POST', `${jobs}/${job.id}/retry`, { token }), refused);
  t.equal((await unitsOf(service, job.id)).length, 1, 'and they are still there');
});

t.test('while a job runs there is nothing to fetch, nor to confirm', async (t) => {
  const rows = Array.from({ length: 1500 }, (_, at) => ({ serialNumber: `N-${at}` }));
  const { job } = (await postRows(service, rows)).body;
  t.match(await service.http('GET', `${jobs}/${job.id}/results`), { status: 400, body: { error: { code: 106 } } });
  t.match(await service.http('POST', `${jobs}/${job.id}/results/confirm`), { status: 400 });
  t.equal((await follow(service, job.id)).at(-1).done, 1500);
  t.equal((await unitsOf(service, job.id)).length, 1500);
});

t.test('after a day the results are gone, from the files too, and the job says so', async (t) => {
  const job = await provision(service, [{ serialNumber: 'D-1' }]);
  const stored = () => keysOf('"id" = ?', [job.id]);
  const [sealedKey = ''] = stored();
  now += 86_399_000;
  await service.login();
  const [unit] = await unitsOf(service, job.id);
  t.equal(filesWith(service.directory, [sealedKey]).length > 0, true, 'until then its key is there');
  now += 2000;
  for (const what of ['results', 'labels']) t.match(await service.http('GET', `${jobs}/${job.id}/${what}`), gone);
  t.match(await service.http('POST', `${jobs}/${job.id}/results/confirm`), gone);
  t.match((await service.ok('GET', `${jobs}/${job.id}`)).job, { state: 'expired', done: 1, confirmed: null });
  t.equal((await postRows(service, [{ serialNumber: 'D-1' }])).body.job.id, job.id, 'it is still the same job');
  // As each minute.
  lookAtJobs(service);
  await looked(job.id);
  await until(() => filesWith(service.directory, [sealedKey]).length === 0);
  t.strictSame(filesWith(service.directory, [unit.secret, unit.associationCode.replaceAll('-', '')]), []);
  t.ok((await service.connect(unit)).connected, 'the unit itself goes on');
});

t.test('a program that reads the database holds nobody up: the log is emptied when it has ended', async (t) => {
  const reader = new Sqlite(join(service.directory, 'registry.db'), { readonly: true });
  reader.exec('BEGIN');
  reader.prepare('SELECT count(*) FROM "jobs"').get();
  await provision(service, [{ serialNumber: service.unique('READ') }]);
  const from = performance.now();
  t.equal(emptyLog(service), false);
  const waited = performance.now() - from;
  t.ok(waited < 2500, `it waits for nobody: ${waited} ms`);
  reader.close();
  // A thread of the service may be reading at this moment.
  await until(() => emptyLog(service));
  await provision(service, [{ serialNumber: service.unique('READ') }]);
});

t.test('30 days after the end of a job its rows are forgotten, and the job is not', async (t) => {
  const job = await provision(service, [{ serialNumber: 'OLD-1' }, { serialNumber: 'OLD-2' }]);
  const login = async () => {
    service.admin = (await service.loginAs('admin@example.com', 'correct horse battery')).jwt;
  };
  now += 30 * 86_400_000 - 1000;
  await login();
  lookAtJobs(service);
  await looked(job.id);
  const later = await provision(service, [{ serialNumber: 'OLD-3' }]);
  t.equal((await rowsOf(service, job.id)).length, 2, 'until then they can be read');
  now += 2000;
  lookAtJobs(service);
  await until(() => countStored(service, 'jobRows', '"jobId" = ?', [job.id]) === 0);
  t.strictSame(await rowsOf(service, job.id), []);
  t.match((await service.ok('GET', `${jobs}/${job.id}`)).job, { state: 'expired', total: 2, done: 2 });
  t.equal((await rowsOf(service, later.id)).length, 1, 'those of a later one stay');
});

t.test('what a retry has made outlives the end of what was confirmed before', async (t) => {
  const name = service.unique('Late');
  const rows = [{ serialNumber: 'LATE-1' }, { serialNumber: 'LATE-2', organization: name }];
  const job = await provision(service, rows);
  t.match(job, { done: 1, failed: 1 });
  await service.ok('POST', `${jobs}/${job.id}/results/confirm`);
  await service.create('/organizations', 'organization', { name });
  await service.ok('POST', `${jobs}/${job.id}/retry`);
  t.match((await follow(service, job.id)).at(-1), { state: 'succeeded', done: 2 });
  // As the sweep does that found the job before it was retried.
  await clearRowsOf(service, job.id);
  const [unit, none] = await unitsOf(service, job.id);
  t.equal(none, undefined);
  t.ok((await service.connect(unit)).connected);
});

t.test('results that an earlier version has sealed, each with its own row, can be fetched', async (t) => {
  const job = await provision(service, [{ serialNumber: 'FORMER-1' }, { serialNumber: 'FORMER-2' }]);
  const units = await unitsOf(service, job.id);
  const sealing = Sealing.open(join(service.directory, 'keys'));
  const [sealedKey = ''] = keysOf('"id" = ?', [job.id]);
  const key = Buffer.from(sealing.open(`job/${job.id}`, sealedKey), 'base64');
  const { deviceTemplateId } = (await service.ok('GET', `/api/v1/devices/${units[0].deviceId}`)).device;
  for (const { row, serialNumber, secret, associationCode } of units) {
    const result = { serialNumber, deviceTemplateId, secret, code: associationCode.replaceAll('-', '') };
    const sealedResult = encrypt(key, JSON.stringify(result), `${job.id}/${row}`);
    const seal = 'UPDATE "jobRows" SET "sealedResult" = ? WHERE "jobId" = ? AND "row" = ?';
    await changeStored(service, seal, [sealedResult, job.id, row]);
  }
  t.strictSame(await unitsOf(service, job.id), units);
});

t.test('what was confirmed is nowhere any more', async (t) => {
  const job = await provision(service, [{ serialNumber: 'Q-1' }, { serialNumber: 'Q-2' }]);
  const units = await unitsOf(service, job.id);
  const others = [];
  for (let at = 0; at < 8; at += 1) others.push(await provision(service, [{ serialNumber: `QQ-${at}` }]));
  const [sealedKey] = keysOf('"id" = ?', [job.id]);
  const keys = keysOf();
  t.equal(typeof sealedKey, 'string');
  const { job: confirmed } = await service.ok('POST', `${jobs}/${job.id}/results/confirm`);
  t.match(confirmed, { state: 'succeeded', confirmed: /.+/, expires: null });
  t.match((await service.ok('POST', `${jobs}/${job.id}/results/confirm`)).job, confirmed, 'twice is as once');
  for (const what of ['results', 'labels']) t.match(await service.http('GET', `${jobs}/${job.id}/${what}`), gone);
  t.same(keysOf('"id" = ?', [job.id]), []);
  t.equal((await rowsOf(service, job.id, 'done')).length, 2, 'the rows are there, without their secrets');
  await looked(job.id);
  for (const { id } of others) await service.ok('POST', `${jobs}/${id}/results/confirm`);
  const left = keysOf();
  const destroyed = keys.filter((key) => !left.includes(key));
  // While it runs and nobody writes: the write-ahead log is emptied too.
  await until(() => filesWith(service.directory, destroyed).length === 0);
  const [unit] = units;
  const client = await service.connect(unit);
  client.end(true);
  await service.close();
  const texts = units.flatMap(({ secret, associationCode }) => [
    secret,
    associationCode,
    associationCode.replaceAll('-', ''),
  ]);
  t.strictSame(filesWith(service.directory, [...texts, ...destroyed]), []);
});

/** Waits until the sealed rows of a job have been cleared. */
const looked = (id: string) =>
  until(() => countStored(service, 'jobRows', '"jobId" = ? AND "sealedResult" IS NOT NULL', [id]) === 0);

/** The sealed keys of jobs that have one. */
const keysOf = (condition = '1', values: unknown[] = []) =>
  storedRows<{ sealedKey: string }>(
    service,
    `SELECT "sealedKey" FROM "jobs" WHERE "sealedKey" IS NOT NULL AND ${condition}`,
    values,
  ).map(({ sealedKey }) => sealedKey);

t.end();
