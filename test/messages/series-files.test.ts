import { deepStrictEqual } from 'node:assert';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import type { Test } from 'tap';
import type { Point } from '../../db/messages/store.ts';
import { csvColumns } from '../../src/messages/payload/forms/csv.ts';
import { readPoints } from '../../src/messages/payload/payload.ts';
import { connectPacket, rawClient } from '../broker/raw.ts';
import { countPages, storePoints } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Anything, nextMessage, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let templateId: string;
t.before(async () => {
  service = await sharedService(t);
  templateId = (await service.template({ channels: ['data', { name: 'live', persistenceType: 'simple' }] })).id;
});

/** A device with the stored channel `data`: written and read over HTTP. */
async function newSeries(body: object = {}) {
  const device = await service.create('/devices', 'device', {
    serialNumber: 'S',
    deviceTemplateId: templateId,
    ...body,
  });
  const topic = (channel = 'data') => service.topic(device.id, channel);
  const path = (channel = 'data') => `/api/v4/data/${topic(channel)}`;
  const post = (payload: string | Uint8Array, type: string, channel?: string, token = service.admin) =>
    fetch(service.server.url + path(channel), {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': type },
      body: payload,
    }).then(async (answer) => ({ status: answer.status, body: (await answer.json()) as Anything }));
  /** A whole range as it was sent. */
  const file = (format: string, query = '') =>
    fetch(`${service.server.url}${path()}?format=${format}&startDateTime=0001-01-01&endDateTime=9999-12-31&${query}`, {
      headers: { authorization: `Bearer ${service.admin}` },
    });
  const { channelTemplateId } = present(
    device.channels.find(({ channelTemplateName }) => channelTemplateName === 'data'),
  );
  const append = (points: Point[]) => storePoints(service, { deviceId: device.id, channelTemplateId }, points);
  const read = async (query = '') => (await service.ok('GET', `${path()}?pageSize=1000&${query}`)).result;
  return { device, topic, path, post, file, append, read };
}

const float = Buffer.alloc(4);
float.writeFloatLE(23.5);
const time = Date.parse('2026-03-01T12:00:00.000Z');
const iso = new Date(time).toISOString();

/** Every form that a device may publish, with its media type and what is to be read. */
const formsIn: Array<[type: string, payload: string | Uint8Array, expected: object[]]> = [
  [
    'text/csv',
    `${time},t,21.5,warm\r\n${iso},u,,only text`,
    [
      { time: iso, category: 't', numericValue: 21.5, stringValue: 'warm' },
      { time: iso, category: 'u', numericValue: null, stringValue: 'only text' },
    ],
  ],
  ['text/csv; charset=utf-8', `${csvColumns}\n${time},t,1,`, [{ time: iso, category: 't', numericValue: 1 }]],
  ['application/json', '21.5', [{ category: '', numericValue: 21.5 }]],
  [
    'application/json',
    '{"t": 1, "door": "open", "on": true, "none": null}',
    [
      { category: 't', numericValue: 1 },
      { category: 'door', stringValue: 'open' },
      { category: 'on', numericValue: 1 },
    ],
  ],
  [
    'application/senml+json',
    `[{"bn":"a/","bt":${time / 1000},"n":"v","v":2},{"n":"b","vb":false},{"n":"s","vs":"x"}]`,
    [
      { time: iso, category: 'a/v', numericValue: 2 },
      { time: iso, category: 'a/b', numericValue: 0 },
      { time: iso, category: 'a/s', stringValue: 'x' },
    ],
  ],
  [
    'application/json',
    `{"bn":"a/","bt":${time / 1000},"e":[{"n":"v","v":2},{"n":"b","bv":true},{"n":"s","sv":"x"}]}`,
    [
      { time: iso, category: 'a/v', numericValue: 2 },
      { time: iso, category: 'a/b', numericValue: 1 },
      { time: iso, category: 'a/s', stringValue: 'x' },
    ],
  ],
  ['application/octet-stream', float, [{ category: '', numericValue: 23.5 }]],
];

t.test('every form of points is written over HTTP as over MQTT', async (t) => {
  const { device } = await newSeries();
  const client = await service.connect({ deviceId: device.id, secret: await service.credential(device.id) });
  for (const [type, payload, expected] of formsIn) {
    const written = await newSeries();
    const title = `${type} ${String(payload).slice(0, 40)}`;
    t.strictSame(
      await written.post(payload, type),
      { status: 200, body: { success: true, count: expected.length } },
      title,
    );
    const points = await written.read('startDateTime=2026-01-01');
    t.match(points, expected, title);
    t.equal(points.length, expected.length, title);
    const before = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'data')}/latest?pageSize=1000`);
    await client.publishAsync(service.topic(device.id, 'data'), Buffer.from(payload as string), { qos: 1 });
    const after = await service.ok('GET', `/api/v4/data/${service.topic(device.id, 'data')}/latest?pageSize=1000`);
    t.equal(after.meta.count - before.meta.count, expected.length, `over MQTT: ${title}`);
  }
});

t.test('points that are written are delivered as they came, also to who was away', async (t) => {
  const { device, topic, post } = await newSeries();
  const secret = await service.credential(device.id);
  const session = { clientId: 'away', clean: false };
  const away = await service.connect({ deviceId: device.id, secret }, session);
  await away.subscribeAsync(topic(), { qos: 1 });
  await away.endAsync();
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(topic(), { qos: 1 });
  const heard = nextMessage(listener);
  const payload = ` ${time},t,1, \n`;
  t.equal((await post(payload, 'text/csv')).status, 200);
  t.equal((await heard).text, payload);
  // The message comes right behind CONNACK, before a client that waits for its connection listens.
  const back = await rawClient(t, service.server.mqttPort);
  back.send(connectPacket({ ...session, username: device.id, password: Buffer.from(secret) }));
  t.match(await back.next(), { cmd: 'connack', sessionPresent: true });
  t.match(await back.next(), { cmd: 'publish', payload: Buffer.from(payload) });
});

t.test('what holds no points, or has no place, is refused with the reason and delivered to nobody', async (t) => {
  const { device, topic, post, read } = await newSeries();
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync([topic(), topic('live'), topic('_rejected')], { qos: 1 });
  const heard: string[] = [];
  listener.on('message', (topic) => heard.push(topic));
  const bad: Array<[string, string | Uint8Array, RegExp]> = [
    ['text/csv', ',t,1,\n,t,x,', /^CSV: row 2: the number.* JSON: it cannot be parsed\.$/],
    ['text/csv', 'abcd', /no comma/],
    ['text/csv', '', /empty/],
    ['application/json', '{"a":[1]}', /SenML: .* JSON: property a: it is not a number/],
    ['application/senml+json', '[{"n":"a"}]', /SenML: record 1/],
    ['application/json', float, /UTF-8|no comma/],
    ['application/octet-stream', Buffer.alloc(5, 0xff), /UTF-8.* Float: it has 5 bytes, not 4/],
  ];
  for (const [type, payload, reason] of bad)
    t.match(
      await post(payload, type),
      { status: 400, body: { error: { code: 106, details: [{ path: 'body', message: reason }] } } },
      `${type} ${payload}`,
    );
  const noPoints = {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'topic', message: /stores no points/ }] } },
  };
  for (const channel of ['live', '_log', '_rejected', '_set/fields'])
    t.match(await post(',t,1,', 'text/csv', channel), noPoints, channel);
  t.match(await post(',t,1,', 'text/csv', 'unknown'), { status: 404, body: { error: { code: 100 } } });
  t.match(await post(',t,1,', 'text/plain'), { status: 415, body: { error: { code: 106 } } });
  t.match(await post(`,t,,${'x'.repeat(1000)}\n`.repeat(200), 'text/csv'), {
    status: 413,
    body: { error: { code: 106 } },
  });
  const { token } = await service.endUser((await service.organization()).id);
  t.match(await post(',t,1,', 'text/csv', 'data', token), { status: 404, body: { error: { code: 100 } } });
  t.strictSame(await read(), []);

  // What comes now was sent last.
  const last = nextMessage(listener);
  await post(',t,7,', 'text/csv');
  await last;
  t.strictSame(heard, [topic()]);
  t.match(await service.ok('GET', `/api/v1/devices/${device.id}/refusals`), { refusals: { results: { length: 0 } } });
});

t.test('an end-user writes on devices in its reach, and in a batch', async (t) => {
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  const { path, post, read } = await newSeries({ organizationId: organization.id });
  t.equal((await post(',t,1,', 'text/csv', 'data', token)).status, 200);
  const requests = [
    { method: 'POST', path: path(), payload: { t: 2 } },
    { method: 'GET', path: `${path()}?format=ndjson` },
    { method: 'GET', path: `${path()}?rollup=1d&aggregate=sum` },
    { method: 'GET', path: `${path()}?rollup=1d&format=csv` },
  ];
  const answers = await service.ok('POST', '/api/v1/batch', { token, body: { requests } });
  t.match(answers[0], { success: true, count: 1 });
  t.match(answers[1], { error: { code: 106, details: [{ path: 'format' }] } });
  t.match((answers as Anything[])[2]?.result, [{ category: 't', sum: 3 }]);
  t.match(answers[3], { error: { code: 106, details: [{ path: 'format' }] } });
  t.equal((await read()).length, 2);
});

/** Points of every kind that the store takes and some form can hold. */
const anyText = fc.string({ unit: 'grapheme', maxLength: 30 });
const anyPoint = fc
  .record(
    {
      // From year 1 to 9999, which queries can name.
      time: fc.integer({ min: -62_135_596_800_000, max: 253_402_214_400_000 - 1 }),
      category: fc.oneof(anyText, fc.constantFrom('', 'a,b', ' x ', 'two\nlines')),
      numericValue: fc.option(
        fc.oneof(
          fc.double({ noNaN: true, noDefaultInfinity: true }),
          fc.constantFrom(-0, 1e308, -1e308, 5e-324, 2 ** 53, 0.1),
        ),
      ),
      stringValue: fc.option(fc.oneof(anyText, fc.constantFrom('', 'a,b', ' x ', 'two\nlines', '"quoted"', '=1+1'))),
    },
    { noNullPrototype: true },
  )
  .filter(({ numericValue, stringValue }) => numericValue !== null || stringValue !== null)
  .map((point) => ({ ...point, numericValue: point.numericValue === 0 ? 0 : point.numericValue }));

/** What CSV makes of a point; undefined when it has no form in it. */
function asCsv(point: Point): Point | undefined {
  const oneLine = (text: string) => text.replace(/[\r\n]/g, ' ').replace(/^[ \t]+|[ \t]+$/g, '');
  const stringValue = oneLine(point.stringValue ?? '') || null;
  if (point.numericValue === null && stringValue === null) return undefined;
  return { ...point, category: oneLine(point.category.replaceAll(',', ' ')), stringValue };
}
const byTime = (points: Point[]) => points.toSorted((a, b) => a.time - b.time);
const shown = (point: Point) => ({ ...point, time: new Date(point.time).toISOString() });

t.test('what is read as JSON, NDJSON and CSV is what was stored, and CSV is read back by our own reader', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyPoint, { maxLength: 40 }), async (points) => {
      const { append, file, path } = await newSeries();
      await append(points);
      const stored = byTime(points).map(shown);
      const lines = (await (await file('ndjson')).text()).split('\n');
      deepStrictEqual(lines.pop(), '');
      deepStrictEqual(
        lines.map((line) => JSON.parse(line)),
        stored,
      );
      const range = 'startDateTime=0001-01-01&endDateTime=9999-12-31&pageSize=1000';
      deepStrictEqual((await service.ok('GET', `${path()}?${range}`)).result, stored);

      const csv = await (await file('csv')).text();
      const expected = byTime(points)
        .map(asCsv)
        .filter((point) => point !== undefined);
      const readBack = readPoints(Buffer.from(csv), 0);
      deepStrictEqual('points' in readBack ? readBack.points : [], expected);
    }),
    { numRuns: 25 },
  );
});

t.test('a whole range comes as a file of its type, in either order, of one category', async (t) => {
  const { append, device, file } = await newSeries();
  const points = Array.from({ length: 2500 }, (_, n) => ({
    time: time + Math.floor(n / 3),
    category: n % 7 ? 'a' : 'b',
    numericValue: n,
    stringValue: null,
  }));
  await append(points);
  const csv = await file('csv');
  t.equal(csv.headers.get('content-type'), 'text/csv; charset=utf-8; header=present');
  const name = `data_${device.id}_00010101T000000Z_99991231T000000Z.csv`;
  t.equal(csv.headers.get('content-disposition'), `attachment; filename="${name}"; filename*=UTF-8''${name}`);
  const rows = (await csv.text()).trimEnd().split('\n');
  t.equal(rows[0], csvColumns);
  t.equal(rows[1], `${iso},b,0,`);
  const numbers = (lines: string[]) => lines.map((row) => Number(row.split(',')[2]));
  t.strictSame(numbers(rows.slice(1)), [...points.keys()]);
  const ndjson = await file('ndjson', 'order=desc&category=b&omitNull=true');
  t.equal(ndjson.headers.get('content-type'), 'application/x-ndjson; charset=utf-8');
  const last = (await ndjson.text())
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  t.strictSame(
    last.map((point) => point.numericValue),
    points
      .filter(({ category }) => category === 'b')
      .map(({ numericValue }) => numericValue)
      .toReversed(),
  );
  t.notOk('stringValue' in last[0]);
});

t.test('CSV for spreadsheets is quoted where needed, and no text of a device is a formula', async (t) => {
  const { append, file } = await newSeries();
  const texts = ['plain', 'a, b', 'say "hi"', 'two\nlines', ' blank', ''];
  await append(texts.map((stringValue) => ({ time, category: 'a,b', numericValue: null, stringValue })));
  await append([{ time, category: '', numericValue: 1, stringValue: null }]);
  const text = await (await file('csv', 'quote=true')).text();
  const rows: string[][] = parse(text);
  t.strictSame(rows.slice(1), [...texts.map((one) => [iso, 'a,b', '', one]), [iso, '', '1', '']]);
  t.match(text, `${iso},"a,b",,plain\n${iso},"a,b",,"a, b"\n`, 'only where it must be');
  t.ok(text.endsWith(`${iso},"a,b",,""\n${iso},,1,\n`), 'an empty text differs from none');
});

t.test(
  'a device cannot put a formula into the spreadsheet of a reader; a raw file has its texts as they are',
  async (t) => {
    const { append, file, path } = await newSeries();
    const formulas = [
      '=1+1',
      '+1',
      '-1',
      '@SUM(A1)',
      '\t=1',
      '\r=1',
      '\n=1',
      '  =1',
      '＝1',
      '=HYPERLINK("http://x","y")',
    ];
    await append(formulas.map((text) => ({ time, category: text, numericValue: -1.5, stringValue: text })));
    await append([{ time, category: 'a=b', numericValue: -1e-7, stringValue: "it's 1-2" }]);
    const rows: string[][] = parse(await (await file('csv', 'quote=true')).text());
    t.strictSame(rows.slice(1), [
      ...formulas.map((text) => [iso, `'${text}`, '-1.5', `'${text}`]),
      [iso, 'a=b', '-1e-7', "it's 1-2"],
    ]);
    t.match(await (await file('csv')).text(), `${iso},=1+1,-1.5,=1+1\n${iso},+1,-1.5,+1\n`, 'raw');
    const rollup = 'startDateTime=2026-03-01&endDateTime=2026-04-01&rollup=1h&aggregate=min&format=csv&quote=true';
    const { text } = await service.http('GET', `${path()}?${rollup}`);
    t.match(text, `${iso},'=1+1,-1.5\n`, 'a rollup too');
  },
);

t.test('a rollup comes as a file, too, with the columns and values of its JSON', async (t) => {
  const { append, device, file, path } = await newSeries();
  const point = { stringValue: null };
  await append([
    { ...point, time, category: 't,u', numericValue: 1 },
    { ...point, time: time + 1, category: 't,u', numericValue: 4 },
    { time, category: 'door', numericValue: null, stringValue: 'open' },
  ]);
  const rollup = 'rollup=1h&aggregate=max,avg,count';
  const range = 'startDateTime=2026-03-01&endDateTime=2026-04-01';
  const read = async (format: string, more = '') =>
    fetch(`${service.server.url}${path()}?${range}&${rollup}&format=${format}${more}`, {
      headers: { authorization: `Bearer ${service.admin}` },
    });
  const csv = await read('csv', '&omitNull=true');
  const name = `data_${device.id}_20260301T000000Z_20260401T000000Z.1h.csv`;
  t.equal(csv.headers.get('content-disposition'), `attachment; filename="${name}"; filename*=UTF-8''${name}`);
  t.equal(csv.headers.get('platform-ignored-properties'), 'omitNull');
  t.equal(await csv.text(), `time,category,avg,max,count\n${iso},door,,,1\n${iso},t u,2.5,4,2\n`);
  t.match(await (await read('csv', '&quote=true')).text(), `${iso},"t,u",2.5,4,2\n`);
  const ndjson = await (await read('ndjson', '&omitNull=true')).text();
  t.equal(
    ndjson,
    `{"time":"${iso}","category":"door","count":1}\n{"time":"${iso}","category":"t,u","avg":2.5,"max":4,"count":2}\n`,
  );
  t.equal((await file('csv', 'rollup=1s')).status, 400, 'more than an answer holds');
});

/** A download on its own connection that is not read until somebody asks for its data: what was read before has widened no buffer. */
async function download(t: Test, url: string, token: string): Promise<IncomingMessage> {
  const headers = { authorization: `Bearer ${token}` };
  const request = get(service.server.url + url, { agent: false, headers });
  t.teardown(() => request.destroy());
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

t.test('a page of long texts ends early and goes on by its token: no answer holds all of them', async (t) => {
  const { append, file, path } = await newSeries();
  // Pages of a thousand such points would take 128 MB each.
  const long = (n: number) => `${n} ${'x'.repeat(130_000)}`;
  for (let n = 0; n < 30; n += 1)
    await append([{ time: time + (n >> 1), category: 'c', numericValue: n, stringValue: long(n) }]);
  const range = 'startDateTime=2026-01-01&endDateTime=2027-01-01&pageSize=1000';
  for (const more of ['', '&category=c', '&order=desc']) {
    const numbers: number[] = [];
    let pages = 0;
    for (let token = ''; ; pages += 1) {
      const { meta, result } = await service.ok('GET', `${path()}?${range}${more}${token}`);
      t.ok(JSON.stringify(result).length < 1_100_000, `${meta.count} points`);
      t.ok(result.length > 0 && meta.count === result.length);
      for (const { numericValue, stringValue } of result) {
        if (stringValue !== long(numericValue)) t.fail('another text');
        numbers.push(numericValue);
      }
      if (meta.pagingToken === null) break;
      token = `&pagingToken=${meta.pagingToken}`;
    }
    t.strictSame(
      numbers.toSorted((a, b) => a - b),
      Array.from({ length: 30 }, (_, n) => n),
      `each once ${more}`,
    );
    t.ok(pages >= 3);
  }
  const latest = await service.ok('GET', `${path()}/latest?pageSize=1000`);
  t.ok(JSON.stringify(latest).length < 1_100_000);
  t.match(latest.result[0], { numericValue: 29 }, 'the newest first');
  t.equal((await (await file('csv')).text()).split('\n').length, 32, 'a file has all');
});

t.test('HEAD has the headers of a whole range and reads none of it', async (t) => {
  const { path, append } = await newSeries();
  await append(
    Array.from({ length: 5000 }, (_, n) => ({ time: n, category: 'c', numericValue: n, stringValue: null })),
  );
  const pages = countPages(t, service);
  const url = `${service.server.url}${path()}?format=csv&startDateTime=0001-01-01&endDateTime=9999-12-31`;
  const headers = { authorization: `Bearer ${service.admin}` };
  const answer = await fetch(url, { method: 'HEAD', headers });
  t.match(answer, { status: 200 });
  t.match(answer.headers.get('content-type'), 'text/csv');
  t.equal(pages(), 0);
  t.equal((await (await fetch(url, { headers })).text()).trim().split('\n').length, 5001);
  t.equal(pages(), 6, 'and GET all of it');
});

t.test('rollups that nobody reads end when others of the account wait, and HEAD takes no place', async (t) => {
  const { append, path } = await newSeries();
  const count = 45_000;
  for (let from = 0; from < count; from += 5000)
    await append(
      Array.from({ length: 5000 }, (_, n) => ({
        time: time + Math.floor((from + n) / 3) * 60_000,
        category: `${(from + n) % 3}`.repeat(250),
        numericValue: n,
        stringValue: null,
      })),
    );
  const url = `${path()}?rollup=1m&aggregate=sum&startDateTime=2026-03-01&endDateTime=2026-03-14`;
  const headers = { authorization: `Bearer ${service.admin}` };
  for (let n = 0; n < 9; n += 1)
    t.equal((await fetch(service.server.url + url, { method: 'HEAD', headers })).status, 200);
  // One may be cut off while others are still opened.
  let cut = () => {};
  const cutOff = new Promise<void>((resolve) => {
    cut = resolve;
  });
  const open = async () => (await download(t, url, service.admin)).once('aborted', cut);
  const deaf = await Promise.all(Array.from({ length: 8 }, open));
  const { result } = await service.ok('GET', url);
  t.equal(result.length, count, 'who reads gets everything');
  for (const answer of deaf) answer.on('error', () => {}).resume();
  t.equal(await cutOff, undefined, 'a reader that did not read has been cut off');
});

t.test('reading goes no faster than the receiver, ends with it, and with its right', async (t) => {
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  const { device, append, path } = await newSeries({ organizationId: organization.id });
  const stringValue = 'x'.repeat(1000);
  for (let batch = 0; batch < 6; batch += 1)
    await append(
      Array.from({ length: 5000 }, (_, n) => ({
        time: time + batch * 5000 + n,
        category: 'c',
        numericValue: n,
        stringValue,
      })),
    );
  const url = `${path()}?format=csv&startDateTime=2026-01-01&endDateTime=2027-01-01`;
  const pages = countPages(t, service);

  const readAll = async () => {
    let bytes = 0;
    for await (const chunk of await download(t, url, token)) bytes += chunk.length;
    t.ok(bytes > 30_000_000);
  };
  await readAll();
  const ofAll = pages();

  // 30 pages of a megabyte: what a client does not read fills the buffers of the sockets and no more, while another reads all.
  const slow = await download(t, url, token);
  await readAll();
  const ofSlow = pages() - 2 * ofAll;
  t.ok(ofSlow > 0 && ofSlow < 12, `${ofSlow} pages were read`);
  slow.destroy();
  await readAll();
  // One may have been under way.
  t.ok(pages() - 3 * ofAll <= ofSlow + 1, `the slow reading went on: ${pages() - 3 * ofAll - ofSlow} pages`);

  const cut = await download(t, url, token);
  const { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const moved = await service.http('PUT', `/api/v1/devices/${device.id}`, {
    headers: { etag: version },
    body: { organizationId: null },
  });
  t.equal(moved.status, 200);
  await t.rejects(
    async () => {
      for await (const _ of cut);
    },
    { message: /aborted/ },
  );
});

t.end();
