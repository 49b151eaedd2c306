import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
/** Provisioning jobs: rows to devices, once each, with what is said of every row. */
import { hash } from 'argon2';
import { readUnits } from '../../cli/line/units-csv.ts';
import { readSheet, type Sheet } from '../../console/devices/sheet.ts';
import { maxShareBytes } from '../../src/factory/jobs/shares.ts';
import { dice } from '../support/dice.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { changeStored, formerHashes, holdJobs, nextShare, whileSessionsFail } from '../support/faults.ts';
import { follow, postRows, provision, rowsOf, unitsOf } from '../support/jobs.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const jobs = '/api/v1/provisioning/jobs';
/** What the console shows of a sheet with two columns. */
const shownIn = (sheet: Sheet) =>
  'fault' in sheet
    ? sheet
    : sheet.rows.map(({ cells: [serialNumber = '', name = ''] }) => ({
        serialNumber: serialNumber.trim(),
        name: name.trim() || undefined,
      }));
const devicesWith = async (serialNumber: string) =>
  (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=${serialNumber}&pageSize=1000`))
    .devices.results;
const numbered = (prefix: string, count: number) =>
  ['serialNumber', ...Array.from({ length: count }, (_, at) => `${prefix}${at + 1}`)].join('\n');

t.test('a number that is too large is refused, and not taken for nothing', async (t) => {
  const body = '{"serialNumber":"HUGE","latitude":1e999}\n';
  const headers = { authorization: `Bearer ${service.admin}`, 'content-type': 'application/x-ndjson' };
  const answer = await fetch(service.server.url + jobs, { method: 'POST', headers, body });
  t.equal(answer.status, 400);
  t.match(await answer.json(), { error: { code: 106, details: [{ message: /too large/ }] } });
});

t.test('what nobody sees at the ends of a serial number is no part of it, in every form of rows', async (t) => {
  const csv =
    'serialNumber,name\n\u00a0EDGE-1\u00a0,first one\n"EDGE-1 ",same one\n"EDGE-2\u0004",other\n"EDGE\t3",inside\n';
  const job = await provision(service, csv);
  t.match(job, { total: 4, done: 2, failed: 2 });
  const rows = await rowsOf(service, job.id);
  t.match(rows, [
    { serialNumber: 'EDGE-1', state: 'done' },
    { serialNumber: 'EDGE-1', state: 'failed', errors: [{ column: 'serialNumber', message: /row 1 has the same/ }] },
    { serialNumber: 'EDGE-2', state: 'done' },
    { state: 'failed', errors: [{ column: 'serialNumber', message: /control characters/ }] },
  ]);
  const again = await provision(
    service,
    [{ serialNumber: '\ufeffEDGE-1\r' }, { serialNumber: '\u3000' }],
    '?dryRun=true',
  );
  t.match(await rowsOf(service, again.id), [
    { errors: [{ column: 'serialNumber', message: /Another device/ }] },
    { errors: [{ column: 'serialNumber' }] },
  ]);
  t.match(await devicesWith('EDGE'), [{ serialNumber: 'EDGE-1' }, { serialNumber: 'EDGE-2' }]);
});

t.test('rows whose serial numbers differ only in how a letter is composed are one device', async (t) => {
  const job = await provision(service, 'serialNumber\nCOMPOSED \u00e9\nCOMPOSED e\u0301\n');
  t.match(await rowsOf(service, job.id), [
    { serialNumber: 'COMPOSED \u00e9', state: 'done' },
    { serialNumber: 'COMPOSED \u00e9', errors: [{ column: 'serialNumber', message: /row 1 has the same/ }] },
  ]);
});

t.test('each row becomes a device in its place, whose secret connects and whose code claims it', async (t) => {
  const template = await service.template({ name: 'Pump', channels: ['flow'] });
  const field = { deviceTemplateId: template.id, name: 'batch', fieldType: 'int', required: true };
  await service.create('/devices/custom-fields', 'deviceField', field);
  const home = await service.organization({ name: 'Warehouse, north' });
  const rows = [
    'serialNumber,template,organization,firmwareVersion,latitude,batch,name',
    'P-1,Pump,"Warehouse, north",1.2,48.1,7,"a ""first"" one"',
    `P-2,${template.id},,,,8,`,
  ];
  const job = await provision(service, rows.join('\r\n'));
  t.match(job, { state: 'succeeded', action: 'provision', dryRun: false, total: 2, done: 2, failed: 0, skipped: 0 });
  t.equal(Date.parse(job.expires) - Date.parse(job.finished), 86_400_000, 'its results are there for a day');
  const [first, second] = await unitsOf(service, job.id);
  t.match(first, {
    row: 1,
    serialNumber: 'P-1',
    accountId: service.accountId,
    broker: `mqtt://127.0.0.1:${service.server.mqttPort}`,
    topics: {
      flow: service.topic(first.deviceId, 'flow'),
      '_set/fields': service.topic(first.deviceId, '_set/fields'),
    },
  });
  t.equal(new URL(first.claimUrl).searchParams.get('code'), first.associationCode);
  const { device } = await service.ok('GET', `/api/v1/devices/${first.deviceId}`);
  t.match(device, {
    serialNumber: 'P-1',
    deviceTemplateId: template.id,
    organizationId: home.id,
    provisioningState: 'activated',
    firmwareVersion: '1.2',
    latitude: '48.1',
    batch: 7,
    name: 'a "first" one',
    createdById: job.createdById,
  });
  t.match((await service.ok('GET', `/api/v1/devices/${second.deviceId}`)).device, { organizationId: null, batch: 8 });
  const client = await service.connect({ deviceId: first.deviceId, secret: first.secret });
  await client.publishAsync(first.topics.flow, '21.5', { qos: 1 });
  await t.rejects(service.connect({ deviceId: first.deviceId, secret: second.secret }), 'no other secret');
  const claim = { associationCode: second.associationCode, organizationId: home.id };
  const claimed = await service.ok('POST', '/api/v1/association/start-association-with-code', { body: claim });
  t.equal(claimed.deviceId, second.deviceId);
});

t.test('codes that were stored by former hashes are still found, and so are secrets', async (t) => {
  const home = await service.organization();
  for (const form of [0, 1]) {
    const { device, secret } = await service.device();
    const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', {
      body: { deviceId: device.id },
    });
    const code = associationCode.replaceAll('-', '');
    const codeHash = (await formerHashes(service, code))[form];
    await changeStored(service, 'UPDATE "associationCodes" SET "codeHash" = ? WHERE "deviceId" = ?', [
      codeHash,
      device.id,
    ]);
    const body = { associationCode, organizationId: home.id };
    t.equal(
      (await service.ok('POST', '/api/v1/association/start-association-with-code', { body })).deviceId,
      device.id,
    );

    const secretHash = await hash(secret, { memoryCost: 64, timeCost: 1, parallelism: 1 });
    await changeStored(service, 'UPDATE "credentials" SET "secretHash" = ? WHERE "entityId" = ?', [
      secretHash,
      device.id,
    ]);
    await t.resolves(service.connect({ deviceId: device.id, secret }));
  }
});

t.test('CSV, NDJSON and JSON say the same, whole or in pieces', async (t) => {
  const values = [
    { serialNumber: 'F "1", é', name: 'comma, "quote"\nline' },
    { serialNumber: 'F [2] {', organization: null, latitude: 1.5 },
  ];
  const ndjson = values.map((one) => JSON.stringify(one)).join('\r\n\r\n');
  const csv = 'serialNumber,name,latitude\n"F ""1"", é","comma, ""quote""\nline",\n\nF [2] {,,1.5\n';
  for (const [type, body] of [
    ['text/csv; charset=utf-8', `\uFEFF${csv}`],
    ['application/x-ndjson', ndjson],
    ['application/json', JSON.stringify({ rows: values }, null, 2)],
  ] as const) {
    const answer = await service.http('POST', `${jobs}?dryRun=true`, { body, headers: { 'content-type': type } });
    t.equal(answer.status, 202, answer.text);
    const job = (await follow(service, answer.body.job.id)).at(-1);
    t.match(job, { dryRun: true, total: 2, done: 2, expires: null }, type);
    const serials = (await rowsOf(service, job.id)).map(({ serialNumber }) => serialNumber);
    t.strictSame(serials, ['F "1", é', 'F [2] {'], type);
    t.match(await service.http('GET', `${jobs}/${job.id}/results`), { status: 400, body: { error: { code: 106 } } });
  }
  t.strictSame(await devicesWith('F '), [], 'a dry run makes nothing');
});

t.test('lines of CSV end in any mix of CR LF, LF and CR, for the API and the command', async (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'units.csv');
  const lines = ['serialNumber,name,', 'L-1,one,', ',,', '"L-2","two, or\nmore",', 'L-3,three,'];
  const ends = ['\r\n', '\n', '\r'];
  for (const first of ends)
    for (const second of ends)
      for (const last of [...ends, '']) {
        const text = lines
          .map((line, at) => line + (at === 0 ? first : at === lines.length - 1 ? last : second))
          .join('');
        const title = JSON.stringify([first, second, last]);
        const answer = await postRows(service, text, '?dryRun=true');
        t.equal(answer.status, 202, `${title} ${answer.text}`);
        await follow(service, answer.body.job.id);
        const serials = (await rowsOf(service, answer.body.job.id)).map(({ serialNumber }) => serialNumber);
        t.strictSame(serials, ['L-1', 'L-2', 'L-3'], title);
        writeFileSync(file, text);
        t.strictSame(
          readUnits(file).rows.map(({ serialNumber }) => serialNumber),
          serials,
          title,
        );
      }
  // Where a piece of a long body ends between CR and LF.
  const long = `serialNumber\r\n${Array.from({ length: 20_000 }, (_, n) => `M-${n}`).join('\r\n')}`;
  t.match(await provision(service, long, '?dryRun=true'), { total: 20_000 });
  const unnamed = 'serialNumber,,name\nL-1,,one\nL-2,x,two\n';
  const { status, body } = await postRows(service, unnamed, '?dryRun=true');
  t.match([status, body.error.details], [400, [{ message: /row 2 has a value in column 2, which has no name/ }]]);
  writeFileSync(file, unnamed);
  t.throws(() => readUnits(file), /a value in column 2, line 3; that column has no name/);
});

t.test(
  'files of any encoding, separator, quotes, blanks and ends of lines make the rows that a person sees, or none',
  async (t) => {
    const seed = 20_261_129;
    const roll = dice(seed);
    const of = <T>(some: readonly T[]): T => some[Math.floor(roll() * some.length)] as T;
    const file = join(temporaryDirectory(t), 'units.csv');
    const rows = [
      ['serialNumber', 'name'],
      ['GERÄT-1', 'Große Pumpe'],
      ['GERÄT-2', 'two, of them'],
      ['GERÄT-3', 'a "third"'],
      ['GERÄT-4', ''],
    ];
    const seen = rows.slice(1).map(([serialNumber, name]) => ({ serialNumber, name: name || undefined }));
    const swapped = (text: string) => Buffer.from(text, 'utf16le').swap16();
    const encodings: Record<string, (text: string) => Buffer> = {
      'UTF-8': (text) => Buffer.from(text),
      'UTF-8 with its mark': (text) => Buffer.from(`\ufeff${text}`),
      'UTF-16, little end first': (text) => Buffer.from(`\ufeff${text}`, 'utf16le'),
      'UTF-16, big end first': (text) => swapped(`\ufeff${text}`),
      'UTF-16 without its mark': (text) => Buffer.from(text, 'utf16le'),
      'Windows-1252': (text) => Buffer.from(text, 'latin1'),
    };
    const separators = [',', ',', ',', ';', '\t', '|'];
    const outcomes = { same: 0, refused: 0 };
    for (let round = 0; round < 80; round += 1) {
      const [encoding, separator] = [roll() < 0.6 ? 'UTF-8' : of(Object.keys(encodings)), of(separators)];
      const [quotes, blank] = [of(['all', 'some', 'needed']), of(['', '', ' ', '\u00a0'])];
      const cell = (text: string) => {
        const isQuoted = quotes === 'all' || (quotes === 'some' && roll() < 0.5) || /[",;|\t]/.test(text);
        return isQuoted ? `"${text.replaceAll('"', '""')}"` : `${text}${text && blank}`;
      };
      const ends = of([['\n'], ['\r\n'], ['\r'], ['\n', '\r\n', '\r']]);
      const lines = rows.map((row) => row.map(cell).join(separator));
      // A spreadsheet leaves cleared rows and columns behind.
      if (roll() < 0.5) lines.splice(2, 0, separator);
      if (separator !== '|' && roll() < 0.3) lines.unshift(of([`sep=${separator}`, `"sep=${separator}"`]));
      const text = lines.map((line, at) => (at < lines.length - 1 || roll() < 0.5 ? line + of(ends) : line)).join('');
      const bytes = encodings[encoding]?.(text) ?? Buffer.alloc(0);
      const title = JSON.stringify({ round, encoding, separator, quotes, blank, text });
      const body = { body: bytes as never, headers: { 'content-type': 'text/csv' } };
      const answer = await service.http('POST', `${jobs}?dryRun=true`, body);
      writeFileSync(file, bytes);
      const sheet = await readSheet(new Blob([bytes]));
      if (!encoding.startsWith('UTF-8') || separator === '|') {
        t.match(answer, { status: 400, body: { error: { code: 106 } } }, title);
        t.throws(() => readUnits(file), /is not UTF-8|cannot be read|no column serialNumber/, title);
        if (!encoding.startsWith('UTF-8')) t.match(sheet, { fault: 'notUtf8' }, title);
        if (encoding === 'Windows-1252' && separator !== '|')
          t.strictSame(shownIn(await readSheet(new Blob([bytes]), true)), seen, title);
        outcomes.refused += 1;
        continue;
      }
      const job = answer.status === 202 ? (await follow(service, answer.body.job.id)).at(-1) : {};
      const made = job.id ? (await rowsOf(service, job.id)).map(({ serialNumber }) => serialNumber) : answer.text;
      const units = readUnits(file).rows.map(({ serialNumber, fields }) => ({ serialNumber, name: fields.name }));
      t.strictSame(shownIn(sheet), seen, `console: ${title}`);
      t.strictSame([made, units, job.failed], [seen.map(({ serialNumber }) => serialNumber), seen, 0], title);
      outcomes.same += 1;
    }
    t.ok(outcomes.same > 15 && outcomes.refused > 15, JSON.stringify(outcomes));
  },
);

t.test('what cannot be meant is refused as a whole, naming it', async (t) => {
  const jobsNow = () => countStored(service, 'jobs', `"accountId" = '${service.accountId}'`);
  const jobsBefore = jobsNow();
  const csv = { 'content-type': 'text/csv' };
  const ndjson = { 'content-type': 'application/x-ndjson' };
  const refused: Array<[path: string, body: string, headers?: Record<string, string>, query?: string]> = [
    ['serialnumber', 'serialnumber\nX-1', csv],
    ['lattitude', 'serialNumber,lattitude\nX-1,1', csv],
    ['serialNumber', 'serialNumber,serialNumber\nX-1,X-2', csv],
    ['serialNumber', 'name\nX-1', csv],
    ['body', 'serialNumber,name\nX-1', csv],
    ['body', 'serialNumber\n"X-1', csv],
    ['rows', 'serialNumber\n', csv],
    ['rows', '', csv],
    ['id', '{"serialNumber":"X-1"}\n{"serialNumber":"X-2","id":"x"}', ndjson],
    ['__proto__', '{"serialNumber":"X-1","__proto__":{}}', ndjson],
    ['body', '{"serialNumber":"X-1"}\n["X-2"]', ndjson],
    ['body', '{"serialNumber":', ndjson],
    ['rows', `{"serialNumber":"X-1","name":${'['.repeat(30_000)}${']'.repeat(30_000)}}`, ndjson],
    ['body', '{"rows":[{"serialNumber":"X-1"}'],
    ['body', '{"rows":[{"serialNumber":"X-1"},]}'],
    ['body', '{"row":[{"serialNumber":"X-1"}]}'],
    ['body', '[{"serialNumber":"X-1"}]'],
    ['rows', '{"rows":[]}'],
    ['dryRun', '{"rows":[{"serialNumber":"X-1"}],"dryRun":true}'],
    ['dryrun', '{"rows":[{"serialNumber":"X-1"}]}', {}, '?dryrun=true'],
  ];
  for (const [path, body, headers = {}, query = ''] of refused) {
    const answer = await service.http('POST', jobs + query, { body, headers });
    t.match(answer, { status: 400, body: { error: { code: 106, details: [{ path }] } } }, body);
  }
  for (const path of ['template', 'organization']) {
    const answer = await postRows(service, [{ serialNumber: 'X-1' }], `?${path}=nobody`);
    t.match(answer, { status: 400, body: { error: { code: 102, details: [{ path }] } } });
  }
  t.match(await service.http('POST', jobs, { body: 'x', headers: { 'content-type': 'text/plain' } }), { status: 415 });
  const bytes = await fetch(service.server.url + jobs, {
    method: 'POST',
    headers: { ...csv, authorization: `Bearer ${service.admin}` },
    body: Buffer.from('serialNumber\nX-\xff', 'latin1'),
  });
  t.equal(bytes.status, 400, 'text that is no UTF-8');
  const tooMany = await postRows(service, numbered('X-', 50_001));
  t.match(tooMany, { status: 400, body: { error: { details: [{ path: 'rows', message: /50000/ }] } } });
  t.strictSame(await devicesWith('X-'), [], 'nothing has been made');
  t.equal(jobsNow(), jobsBefore, 'nor will it be');
});

t.test('a column of CSV that is nearly one of the rows is led back to it', async (t) => {
  await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: (await service.template()).id, name: 'floor plan', fieldType: 'string' },
  });
  for (const [column, meant] of [
    ['serialnumber', 'serialNumber'],
    ['Name', 'name'],
    ['lattitude', 'latitude'],
    ['floor plam', 'floor plan'],
  ]) {
    const { status, body } = await postRows(service, `serialNumber;${column}\nX-1;1\n`, '?dryRun=true');
    const said = `${column}: did you mean ${meant}? A parameter value is invalid.`;
    t.strictSame([status, body.error.message], [400, said]);
    t.strictSame(body.error.details, [{ path: column, message: 'is no column' }]);
  }
});

t.test('a bad row says what is wrong with it, as POST /devices does, and leaves the others alone', async (t) => {
  const plain = await service.template({ name: 'Plain' });
  const strict = await service.template({ name: 'Strict' });
  await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: strict.id, name: 'grade', fieldType: 'int', required: true },
  });
  for (const _ of [1, 2]) await service.organization({ name: 'Twins' });
  const values: Array<Record<string, unknown>> = [
    { serialNumber: 'B-1' },
    { serialNumber: '' },
    { name: 'no serial' },
    { serialNumber: 'B-2', latitude: 'north' },
    { serialNumber: 'B-3', longitude: 181 },
    { serialNumber: 'B-4', name: 'x'.repeat(256) },
    { serialNumber: 'B-5', purchaseDate: 'yesterday' },
    { serialNumber: 'B-6', deviceTemplateId: strict.id },
    { serialNumber: 'B-7', deviceTemplateId: strict.id, grade: 'A' },
    { serialNumber: 'B-8', deviceTemplateId: strict.id, grade: 1 },
    { serialNumber: 'B-9\u0000' },
    { serialNumber: 'B-10', name: ['a'] },
    { serialNumber: 'B-11', deviceTemplateId: 'nobody' },
    { serialNumber: 'B-12', organizationId: '00000000-0000-7000-8000-000000000000' },
  ];
  const job = await provision(service, values, `?template=${plain.id}`);
  const rows = await rowsOf(service, job.id);
  t.match(job, { state: 'succeeded', done: 2, failed: 12 });
  for (const [at, body] of values.entries()) {
    const alone = {
      accountId: service.accountId,
      deviceTemplateId: plain.id,
      ...body,
      serialNumber: body.serialNumber,
    };
    const answer = await service.http('POST', '/api/v1/devices', { body: alone });
    if (answer.status === 200) t.match(rows[at], { state: 'done', errors: { length: 0 } }, JSON.stringify(body));
    else {
      const path = answer.body.error.details[0].path;
      t.match(
        rows[at],
        { row: at + 1, state: 'failed', deviceId: null, errors: [{ column: path }] },
        JSON.stringify(body),
      );
    }
  }
  const more = [
    { serialNumber: 'C-1' },
    { serialNumber: 'C-2' },
    { serialNumber: 'C-1', template: 'Strict', grade: 1 },
    { serialNumber: 'C-3', organization: 'Twins' },
    { serialNumber: 'C-4', grade: 1 },
    { serialNumber: 'C-5', template: 'Plain', deviceTemplateId: plain.id },
  ];
  const second = await provision(service, more, '?template=Plain');
  const failed = await rowsOf(service, second.id, 'failed');
  t.match(failed, [
    { row: 3, errors: [{ column: 'serialNumber', message: /row 1/ }] },
    { row: 4, errors: [{ code: 106, column: 'organization', message: /several/ }] },
    { row: 5, errors: [{ code: 106, column: 'grade' }] },
    { row: 6, errors: [{ column: 'template' }] },
  ]);
  t.equal(failed.length, 4);
});

t.test('a column that is a custom field too is refused, and says what to give instead', async (t) => {
  const template = await service.template({ name: 'Mould' });
  await service.create('/devices/custom-fields', 'deviceField', {
    ...{ deviceTemplateId: template.id, name: 'template', fieldType: 'string' },
  });
  const rows = [
    { serialNumber: 'AMB-1', template: 'Mould' },
    { serialNumber: 'AMB-2', deviceTemplateId: template.id },
    { serialNumber: 'AMB-3', template: 'Plain' },
  ];
  const job = await provision(service, rows, `?template=${template.id}`);
  t.match(job, { done: 2, failed: 1 });
  t.match(await rowsOf(service, job.id, 'failed'), [
    { row: 1, errors: [{ column: 'template', message: /deviceTemplateId/ }] },
  ]);
  const [made] = await devicesWith('AMB-2');
  t.match(made, { deviceTemplateId: template.id, template: null });
});

t.test('of long rows only a few are looked at together, and none is left out', async (t) => {
  const rows = Array.from({ length: 39 }, (_, at) => ({ serialNumber: `LONG-${at}`, name: 'x'.repeat(40_000) }));
  const job = await provision(service, rows, '?dryRun=true');
  t.match(job, { failed: 39 });
  t.equal((await rowsOf(service, job.id, 'failed')).at(-1)?.serialNumber, 'LONG-38');
  await changeStored(service, `UPDATE "jobRows" SET "state" = 'pending' WHERE "jobId" = ?`, [job.id]);
  const seen: number[] = [];
  for (;;) {
    const share = await nextShare(service, job.id, seen.at(-1) ?? 0);
    if (share.length === 0) break;
    const bytes = share.reduce((sum, { input }) => sum + input.length, 0);
    t.ok(bytes <= maxShareBytes && share.length > 1, `${share.length} rows of ${bytes} bytes`);
    seen.push(...share.map(({ row }) => row));
  }
  t.strictSame(
    seen,
    rows.map((_, at) => at + 1),
  );
});

t.test('the same rows are the same job whatever has become of it; nothing is ever doubled', async (t) => {
  const first = await provision(service, numbered('S-', 5));
  t.equal((await postRows(service, numbered('S-', 5))).body.job.id, first.id);
  t.not((await postRows(service, numbered('S-', 5), '?dryRun=true')).body.job.id, first.id);
  await service.ok('POST', `${jobs}/${first.id}/results/confirm`);
  const again = await postRows(service, numbered('S-', 5));
  t.match(again, { status: 202, body: { job: { id: first.id, done: 5 } } }, 'confirmed, it is still the same');
  const forced = await provision(service, numbered('S-', 6), '?force=true');
  t.match(forced, { done: 1, skipped: 5 });
  const known = new Map((await devicesWith('S-')).map((one) => [one.serialNumber, one.id]));
  t.equal(known.size, 6);
  for (const { serialNumber, deviceId } of await rowsOf(service, forced.id, 'skipped'))
    t.equal(deviceId, known.get(serialNumber));
  const other = await provision(service, numbered('S-', 2), `?template=${(await service.template()).id}`);
  t.match(other, { done: 2 }, 'of another template they are others');
});

t.test(
  'twenty at once with the same rows are one job; two jobs with the same serial numbers make each once',
  async (t) => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => postRows(service, numbered('T-', 40))));
    t.equal(new Set(answers.map(({ body }) => body.job.id)).size, 1);
    const forced = await Promise.all([1, 2, 3].map(() => provision(service, numbered('U-', 700), '?force=true')));
    const sum = (name: string) => forced.reduce((total, job) => total + job[name], 0);
    t.equal(sum('done'), 700);
    t.equal(sum('skipped'), 1400);
    t.equal((await devicesWith('T-')).length, 40);
    t.equal((await devicesWith('U-')).length, 700);
  },
);

t.test('an Idempotency-Key gets the first answer again, and no other request', async (t) => {
  const headers = { 'idempotency-key': 'a line' };
  const first = await postRows(service, numbered('V-', 2), '?force=true', { headers });
  const again = await postRows(service, numbered('V-', 2), '?force=true', { headers });
  t.equal(again.body.job.id, first.body.job.id);
  t.equal(again.headers.get('idempotent-replayed'), 'true');
  t.match(await postRows(service, numbered('V-', 3), '?force=true', { headers }), { status: 400 });
});

t.test('a cancelled job leaves what it has made, and skips the rest', async (t) => {
  const release = holdJobs(t, service);
  const { job } = (await postRows(service, numbered('W-', 3000))).body;
  await until(async () => (await service.ok('GET', `${jobs}/${job.id}`)).job.done > 0);
  const cancelled = (await service.ok('POST', `${jobs}/${job.id}/cancel`)).job;
  release();
  t.match(cancelled, { state: 'cancelled', failed: 0 });
  t.ok(cancelled.done > 0 && cancelled.done < 3000, 'it was in the middle');
  t.equal(cancelled.done + cancelled.skipped, 3000);
  t.equal((await follow(service, job.id)).length, 1, 'its events end at once');
  // Another one has its turn in the time in which it would have gone on.
  await provision(service, numbered('AFTER-', 1000));
  const devices = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=W-&pageSize=1`);
  t.equal(devices.devices.meta.count, cancelled.done, 'nothing has been made since');
  t.equal((await unitsOf(service, job.id)).length, cancelled.done, 'what it has made can be fetched');
  const skipped = await service.ok('GET', `${jobs}/${job.id}/rows?state=skipped`);
  t.match(skipped.rows, { meta: { count: cancelled.skipped }, results: [{ state: 'skipped', deviceId: null }] });
  t.equal((await service.ok('POST', `${jobs}/${job.id}/cancel`)).job.state, 'cancelled', 'twice is as once');
  t.match(await service.http('POST', `${jobs}/${job.id}/retry`), { status: 400 });
});

t.test('failed rows are tried again, and those that are right by now are made', async (t) => {
  const rows = [
    { serialNumber: 'R-1' },
    { serialNumber: 'R-2', template: 'Later' },
    { serialNumber: 'R-1' },
    { serialNumber: 'R-4' },
  ];
  const job = await provision(service, rows);
  t.match(job, { done: 2, failed: 2 });
  await service.template({ name: 'Later' });
  const { job: retried } = await service.ok('POST', `${jobs}/${job.id}/retry`);
  t.equal(retried.id, job.id);
  t.match((await follow(service, job.id)).at(-1), { state: 'succeeded', done: 3, failed: 1 });
  t.match(await rowsOf(service, job.id, 'failed'), [{ row: 3, errors: [{ message: /row 1/ }] }]);
  t.strictSame(
    (await unitsOf(service, job.id)).map(({ row, serialNumber }) => [row, serialNumber]),
    [
      [1, 'R-1'],
      [2, 'R-2'],
      [4, 'R-4'],
    ],
    'in the order of the rows, though the second was made last',
  );
  await service.ok('POST', `${jobs}/${job.id}/results/confirm`);
  await service.ok('POST', `${jobs}/${job.id}/retry`);
  await follow(service, job.id);
  t.strictSame(await unitsOf(service, job.id), [], 'what was confirmed does not come back');
});

t.test('a job ends when the caller that made it no longer exists, and says so', async (t) => {
  const { accountId } = service;
  const application = await service.create('/applications', 'application', { name: 'MES', kind: 'backEnd' });
  const { id: appId, appToken } = application;
  const { jwt: token } = await service.ok('POST', '/api/v1/auth/login-application', {
    body: { appId, appToken, accountId },
    token: null,
  });
  const release = holdJobs(t, service);
  const { job } = (await postRows(service, numbered('Y-', 3000), '', { token })).body;
  await service.ok('DELETE', `/api/v1/applications/${appId}`);
  release();
  const ended = (await follow(service, job.id)).at(-1);
  t.match(ended, { state: 'failed', reason: /.+/, createdById: appId });
  t.ok(ended.done < 3000);
  const devices = await service.ok('GET', `/api/v1/devices?accountId=${accountId}&serialNumber=Y-&pageSize=1`);
  t.equal(devices.devices.meta.count, ended.done);
});

t.test('jobs are listed by state and action, newest first, and are in the audit record', async (t) => {
  const list = async (query: string) =>
    (await service.ok('GET', `${jobs}?accountId=${service.accountId}&${query}`)).jobs;
  const newest = await provision(service, numbered('Z-', 1));
  const { results, meta } = await list('pageSize=3');
  t.equal(results[0].id, newest.id);
  t.equal(results.length, 3);
  t.ok(meta.count > 10);
  t.match(await list('state=cancelled'), { meta: { count: 1 } });
  t.match(await list('action=delete'), { results: { length: 0 }, meta: { count: 0 } });
  t.match(await service.http('GET', `${jobs}?accountId=${service.accountId}&page=1000`), { status: 416 });
  await unitsOf(service, newest.id);
  await service.ok('POST', `${jobs}/${newest.id}/results/confirm`);
  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${newest.id}`);
  t.strictSame(audit.auditRecords.results.map(({ event }) => event).sort(), [
    'jobFinished',
    'jobResultsConfirmed',
    'jobResultsFetched',
    'jobStarted',
  ]);
});

t.test('its events end when it cannot be read who may have them, and nothing else does', async (t) => {
  const release = holdJobs(t, service);
  const { job } = (await postRows(service, numbered('UNSEEN-', 3000))).body;
  const events = await fetch(`${service.server.url}${jobs}/${job.id}/events`, {
    headers: { authorization: `Bearer ${service.admin}` },
  });
  const text = await whileSessionsFail(service, () => {
    release();
    return events.text();
  });
  t.notMatch(text, /"state":"succeeded"/);
  t.equal((await follow(service, job.id)).at(-1).done, 3000, 'the job goes on');
});

t.test('its events end with the session of the reader', async (t) => {
  const second = await service.create('/account-users', 'accountUser', {
    ...{ createIdmUser: true, idmUserEmail: 'second@example.com', idmUserPassword: 'another fine secret' },
  });
  t.ok(second.id);
  const { jwt } = await service.loginAs('second@example.com', 'another fine secret');
  const release = holdJobs(t, service);
  const { job } = (await postRows(service, numbered('E-', 3000))).body;
  const events = await fetch(`${service.server.url}${jobs}/${job.id}/events`, {
    headers: { authorization: `Bearer ${jwt}` },
  });
  t.equal(events.status, 200);
  await service.ok('POST', '/api/v1/sessions/logout', { token: jwt });
  t.notMatch(await events.text(), /"state":"succeeded"/);
  release();
  t.equal((await follow(service, job.id)).at(-1).done, 3000, 'the job goes on');
});

t.end();
