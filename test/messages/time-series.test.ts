import type { Test } from 'tap';
import { purgeNow } from '../support/clockwork.ts';
import { part } from '../support/part.ts';
import { type Point, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T12:00:00.000Z');
const iso = (offset: number) => new Date(start + offset).toISOString();
/** As long as a channel name may be, and longest in a URL. */
const strangeName = `a%2Fb ?${'ü'.repeat(93)}`;
let now = start + 60_000;
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

/** A device with the stored channel `data`, and a way to publish rows on it as the device does. */
async function startDevice(t: Test, body: object = {}) {
  const template = await service.template({
    channels: ['data', { name: 'live', persistenceType: 'simple' }, strangeName],
  });
  const { device, secret } = await service.device({ deviceTemplateId: template.id, ...body });
  const client = await service.connect({ deviceId: device.id, secret });
  t.teardown(() => client.end(true));
  const publish = (rows: string[], channel = 'data') =>
    client.publishAsync(service.topic(device.id, channel), rows.join('\n'), { qos: 1 });
  const path = (channel = 'data') => `/api/v4/data/${service.topic(device.id, channel)}`;
  return { device, publish, path };
}

t.test('a published point is readable at once, raw or percent-encoded', async (t) => {
  const { device, publish, path } = await startDevice(t);
  await publish([',temperature,21.5,warm']);
  const answer = await service.ok('GET', path());
  t.match(answer.meta, {
    timeSpent: Number,
    start: iso(60_001 - 86_400_000),
    end: iso(60_001),
    count: 1,
    pagingToken: null,
  });
  const point = { time: iso(60_000), category: 'temperature', numericValue: 21.5, stringValue: 'warm' };
  t.strictSame(answer.result, [point]);
  const encoded = encodeURIComponent(service.topic(device.id, 'data'));
  t.strictSame((await service.ok('GET', `/api/v4/data/${encoded}`)).result, [point]);
  t.strictSame((await service.ok('GET', `/api/v4/data/${encoded}/latest`)).result, [point]);

  await publish([',strange,1,'], strangeName);
  const strange = encodeURIComponent(service.topic(device.id, strangeName));
  t.match((await service.ok('GET', `/api/v4/data/${strange}`)).result, [{ category: 'strange' }]);
});

t.test('a range is read in order, in groups, by category, without what is null', async (t) => {
  const { publish, path } = await startDevice(t);
  await publish([`${iso(2000)},b,,late`, `${iso(1000)},a,1,`, `${iso(1000)},b,2,x`, `${iso(3000)},a,3,`]);
  const read = async (query: string) => (await service.ok('GET', `${path()}?${query}`)).result;
  const times = (points: Point[]) => points.map((point) => point.time);

  t.strictSame(times(await read('')), [iso(1000), iso(1000), iso(2000), iso(3000)]);
  t.strictSame(times(await read('order=desc')), [iso(3000), iso(2000), iso(1000), iso(1000)]);
  t.strictSame(times(await read(`startDateTime=${iso(1000)}&endDateTime=${iso(3000)}`)), [
    iso(1000),
    iso(1000),
    iso(2000),
  ]);
  t.strictSame(await read(`startDateTime=${iso(5000)}`), []);
  t.strictSame(await read('category=a&groupType=1&omitNull=true'), [
    {
      category: 'a',
      values: [
        { time: iso(1000), numericValue: 1 },
        { time: iso(3000), numericValue: 3 },
      ],
    },
  ]);
  t.strictSame((await read('groupType=2'))[0], {
    time: iso(1000),
    values: [
      { category: 'a', numericValue: 1, stringValue: null },
      { category: 'b', numericValue: 2, stringValue: 'x' },
    ],
  });
  const latest = await service.ok('GET', `${path()}/latest?pageSize=2`);
  t.strictSame(times(latest.result), [iso(3000), iso(2000)]);
  t.equal(latest.meta.count, 2);
});

t.test('pages show each point once while points arrive and time goes on', async (t) => {
  t.teardown(() => {
    now = start + 60_000;
  });
  const { publish, path } = await startDevice(t);
  await publish(Array.from({ length: 25 }, (_, n) => `${iso(Math.floor(n / 4))},c,${n},`));
  const seen: number[] = [];
  let query = 'pageSize=4';
  let range: [string, string] | undefined;
  for (;;) {
    const { meta, result } = await service.ok('GET', `${path()}?${query}`);
    seen.push(...result.map((point) => point.numericValue));
    range ??= [meta.start, meta.end];
    t.strictSame([meta.start, meta.end], range, 'the range stays that of the first page');
    if (meta.pagingToken === null) break;
    const token = Buffer.from(meta.pagingToken, 'base64url').toString();
    t.match(token, /^\d+ [\w-]{32} \d+ \d+$/, 'it does not show how many points all accounts have stored');
    await publish([`${iso(-1000)},c,-1,`]);
    now += 3_600_000;
    query = `pageSize=4&pagingToken=${meta.pagingToken}`;
  }
  t.strictSame(seen, [...Array(25).keys()]);
});

t.test('a wrong parameter is named', async (t) => {
  const { path } = await startDevice(t);
  const wrong = {
    'startDateTime=yesterday': 'startDateTime',
    'endDateTime=2026-02-30': 'endDateTime',
    'startDateTime=2026-03-02&endDateTime=2026-03-01': 'endDateTime',
    'pageSize=0': 'pageSize',
    'pageSize=1001': 'pageSize',
    'pageSize=ten': 'pageSize',
    'groupType=3': 'groupType',
    'order=up': 'order',
    'omitNull=maybe': 'omitNull',
    'pagingToken=abc': 'pagingToken',
    'format=xml': 'format',
    'rollup=soon': 'rollup',
    'rollup=7m': 'rollup',
    'rollup=1s': 'rollup',
    'rollup=1h&aggregate=median': 'aggregate',
    'rollup=1h&aggregate=': 'aggregate',
    'rollup=1h&timezone=Mars': 'timezone',
    'rollup=1h&fill=zero': 'fill',
    'rollup=soon&format=csv': 'rollup',
    [`pagingToken=${Buffer.from('1 1 9999999999999999 1').toString('base64url')}`]: 'pagingToken',
  };
  for (const [query, name] of Object.entries(wrong)) {
    const answer = await service.http('GET', `${path()}?${query}`);
    t.match(answer, { status: 400, body: { error: { code: 106, details: [{ path: name }] } } }, query);
  }
  t.equal((await service.http('GET', `${path()}?pageSize=1000`)).status, 200);
});

t.test('what is out of reach looks like nothing; a channel that stores nothing is empty', async (t) => {
  const inside = await service.create('/organizations', 'organization', { name: 'inside' });
  const outside = await service.create('/organizations', 'organization', { name: 'outside' });
  const { token } = await service.endUser(inside.id);
  const mine = await startDevice(t, { organizationId: inside.id });
  const other = await startDevice(t, { organizationId: outside.id });
  await mine.publish([',t,1,']);
  await other.publish([',t,1,']);

  t.equal((await service.ok('GET', mine.path(), { token })).meta.count, 1);
  t.equal((await service.ok('GET', other.path())).meta.count, 1);
  const notFound = { status: 404, body: { error: { code: 100 } } };
  t.match(await service.http('GET', other.path(), { token }), notFound);
  t.match(await service.http('GET', `${other.path()}/latest`, { token }), notFound);
  for (const path of [
    mine.path('unknown'),
    mine.path().replace(service.accountId, mine.device.id),
    mine.path().replace(mine.device.id, service.accountId),
    mine.path().replace('/d/', '/x/'),
    '/api/v4/data/',
    '/api/v4/data/latest',
    mine.path('%2B'),
  ])
    t.match(await service.http('GET', path), notFound, path);
  t.match(await service.http('GET', mine.path(), { token: null }), { status: 401 });
  for (const channel of ['live', '_log', '_set/fields'])
    t.match(
      await service.ok('GET', mine.path(channel)),
      { meta: { count: 0, pagingToken: null }, result: { length: 0 } },
      channel,
    );
});

t.test('a rollup has the aggregates of each bucket and category', async (t) => {
  const { publish, path } = await startDevice(t);
  const at = (minutes: number, seconds = 0) => iso(minutes * 60_000 - 3_600_000 + seconds * 1000);
  await publish([
    `${at(0)},a,3,`,
    `${at(0, 59)},a,-1,`,
    `${at(0, 59)},a,7,`,
    `${at(0, 30)},b,10,`,
    `${at(1)},door,,open`,
    `${at(3)},a,5,`,
  ]);
  const read = (query: string) => service.ok('GET', `${path()}?rollup=1m&${query}`);
  const all = await read('aggregate=last,first,avg,min,max,sum,count');
  t.match(all.meta, { count: 4, pagingToken: null, start: iso(60_001 - 86_400_000), end: iso(60_001) });
  t.strictSame(all.result, [
    { time: at(0), category: 'a', avg: 3, min: -1, max: 7, sum: 9, count: 3, first: 3, last: 7 },
    { time: at(0), category: 'b', avg: 10, min: 10, max: 10, sum: 10, count: 1, first: 10, last: 10 },
    { time: at(1), category: 'door', avg: null, min: null, max: null, sum: null, count: 1, first: null, last: null },
    { time: at(3), category: 'a', avg: 5, min: 5, max: 5, sum: 5, count: 1, first: 5, last: 5 },
  ]);
  t.strictSame(
    (await read('')).result[0],
    { time: at(0), category: 'a', avg: 3 },
    'the average, when nothing else is asked',
  );
  t.strictSame((await read('category=a&order=desc&aggregate=count')).result, [
    { time: at(3), category: 'a', count: 1 },
    { time: at(0), category: 'a', count: 3 },
  ]);
  const range = `startDateTime=${at(0, 30)}&endDateTime=${at(3)}`;
  t.strictSame((await read(`${range}&category=a&aggregate=sum,count&fill=null&groupType=1`)).result, [
    {
      category: 'a',
      values: [
        { time: at(0), sum: 6, count: 2 },
        { time: at(1), sum: null, count: 0 },
        { time: at(2), sum: null, count: 0 },
      ],
    },
  ]);
  t.strictSame((await read(`${range}&fill=null&omitNull=true&category=unknown`)).result[0], {
    time: at(0),
    category: 'unknown',
  });
  t.strictSame((await read('category=unknown')).result, []);
  const { headers } = await service.http('GET', `${path()}?rollup=1h&pageSize=5&pagingToken=x`);
  t.equal(headers.get('platform-ignored-properties'), 'pageSize, pagingToken');
});

t.test('a sum that no number can hold is null, and so is its average', async (t) => {
  const { publish, path } = await startDevice(t);
  await publish([`${iso(-1000)},a,1e308,`, `${iso(-900)},a,1e308,`, `${iso(-800)},a,1e308,`]);
  const read = async (query: string) => (await service.ok('GET', `${path()}?rollup=1d&${query}`)).result[0];
  const { time: _, ...shown } = await read('aggregate=avg,sum,min,max,count');
  t.strictSame(shown, { category: 'a', avg: null, sum: null, min: 1e308, max: 1e308, count: 3 });
  t.strictSame(Object.keys(await read('aggregate=avg,sum&omitNull=true')), ['time', 'category']);
});

t.test('days of a rollup are those of its time zone', async (t) => {
  const { publish, path } = await startDevice(t);
  await publish([
    '2026-03-28T22:59:59Z,t,1,',
    '2026-03-28T23:00:00Z,t,2,',
    '2026-03-29T21:59:59Z,t,4,',
    '2026-03-29T22:00:00Z,t,8,',
  ]);
  const range = 'startDateTime=2026-03-28T12:00:00Z&endDateTime=2026-03-30T12:00:00Z';
  const read = async (zone: string) =>
    (await service.ok('GET', `${path()}?rollup=1d&aggregate=sum&${range}&timezone=${zone}`)).result;
  t.strictSame(await read('Europe/Berlin'), [
    { time: '2026-03-27T23:00:00.000Z', category: 't', sum: 1 },
    { time: '2026-03-28T23:00:00.000Z', category: 't', sum: 6 },
    { time: '2026-03-29T22:00:00.000Z', category: 't', sum: 8 },
  ]);
  t.strictSame(await read('UTC'), [
    { time: '2026-03-28T00:00:00.000Z', category: 't', sum: 3 },
    { time: '2026-03-29T00:00:00.000Z', category: 't', sum: 12 },
  ]);
});

t.test('more than one answer holds is refused, whatever asks for it', async (t) => {
  const { publish, path } = await startDevice(t);
  await publish(Array.from({ length: 40 }, (_, n) => `${iso(0)},c${n},1,`));
  const year = `startDateTime=${iso(-365 * 86_400_000)}`;
  const refused = (answer: object) =>
    t.match(answer, { status: 400, body: { error: { details: [{ path: 'rollup' }] } } });
  refused(await service.http('GET', `${path()}?rollup=1m&${year}`));
  refused(await service.http('GET', `${path()}?rollup=1h&fill=null&${year}`));
  t.equal((await service.ok('GET', `${path()}?rollup=1h&${year}`)).meta.count, 40);
});

t.test('who is out of reach gets no rollup and no file, and who sees nothing stored gets empty ones', async (t) => {
  const inside = await service.create('/organizations', 'organization', { name: 'near' });
  const { token } = await service.endUser(inside.id);
  const outsider = await startDevice(t);
  const insider = await startDevice(t, { organizationId: inside.id });
  for (const query of ['rollup=1h', 'format=csv', 'format=ndjson']) {
    t.match(await service.http('GET', `${outsider.path()}?${query}`, { token }), {
      status: 404,
      body: { error: { code: 100 } },
    });
    t.equal((await service.http('GET', `${insider.path()}?rollup=1h`, { token })).status, 200);
  }
  t.equal(
    (await service.http('GET', `${insider.path('live')}?format=csv`, { token })).text,
    'timestamp,category,numericValue,stringValue\n',
  );
  t.strictSame((await service.ok('GET', `${insider.path('live')}?rollup=1h`, { token })).result, []);
});

t.test(
  'a point more than a day ahead is listed and marked, is never the latest, and is kept from its arrival on',
  async (t) => {
    const template = await service.template({
      channels: [{ name: 'data', persistenceType: 'timeSeries', retentionDays: 1 }],
    });
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    const client = await service.connect({ deviceId: device.id, secret });
    t.teardown(() => client.end(true));
    const path = `/api/v4/data/${service.topic(device.id, 'data')}`;
    const before = now;
    t.teardown(() => {
      now = before;
    });
    const day = 86_400_000;
    const ahead = now + 400 * day;
    const rows = [`${ahead},x,3,`, `${now},x,1,`, `${now + day},x,2,`];
    await client.publishAsync(service.topic(device.id, 'data'), rows.join('\n'), { qos: 1 });
    const marked = { time: new Date(ahead).toISOString(), category: 'x', numericValue: 3, aheadOfTime: true };
    const all = 'endDateTime=2030-01-01T00:00:00Z&startDateTime=2020-01-01T00:00:00Z&omitNull=true';
    for (const category of ['', '&category=x']) {
      const listed = (await service.ok('GET', `${path}?${all}${category}`)).result;
      t.same(
        listed.map(({ numericValue, aheadOfTime }) => [numericValue, aheadOfTime]),
        [
          [1, undefined],
          [2, undefined],
          [3, true],
        ],
      );
      t.strictSame(listed[2], marked);
      const latest = (await service.ok('GET', `${path}/latest?pageSize=10${category}`)).result;
      t.same(
        latest.map(({ numericValue }) => numericValue),
        [2, 1],
      );
    }
    now += 3 * day;
    await purgeNow(service);
    t.strictSame((await service.ok('GET', `${path}?${all}`)).result, []);
  },
);

t.end();
