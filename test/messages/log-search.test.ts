import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T12:00:00.000Z');
const clock = { now: () => start };
const iso = (offset: number) => new Date(start + offset).toISOString();
const path = '/api/v1/logs/search';

t.test('searching the logs of all devices', async (t) => {
  const service = await startService(t, { clock });
  const [inside, outside] = [await service.organization(), await service.organization()];
  const below = await service.organization({ parentId: inside.id });
  const { token } = await service.endUser(inside.id);
  const device = async (organizationId?: string) =>
    (await service.create('/devices', 'device', { serialNumber: service.unique('SN'), organizationId })).id as string;
  const [pump, valve, foreign, loose] = [
    await device(inside.id),
    await device(below.id),
    await device(outside.id),
    await device(),
  ];
  const write = (id: string, ...body: object[]) => service.ok('POST', `/api/v1/devices/${id}/logs`, { body });
  await write(
    pump,
    {
      message: 'Pump overheated',
      severity: 'error',
      code: 'E42',
      tags: ['heat', 'Pump room'],
      sourceTimestamp: iso(1000),
    },
    {
      message: 'pump restarted, pump well',
      details: 'after overheat',
      sourceTimestamp: iso(2000),
      rpm: 900,
      deep: { ok: true },
    },
  );
  await write(valve, { message: 'valve stuck', severity: 'warning', code: 'E42', sourceTimestamp: iso(3000) });
  await write(foreign, { message: 'foreign pump', severity: 'alert', sourceTimestamp: iso(4000) });
  await write(loose, { message: 'loose pump', severity: 'debug', sourceTimestamp: iso(5000) });

  const search = (body: object, as = service.admin) => service.http('POST', path, { body, token: as });
  const hits = async (body: object, as = service.admin) => {
    const answer = await search(body, as);
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body.hits;
  };
  const codes: Record<string, string> = {
    'Pump overheated': 'hot',
    'pump restarted, pump well': 'again',
    'valve stuck': 'stuck',
    'foreign pump': 'foreign',
    'loose pump': 'loose',
  };
  const found = async (must: unknown, more: object = {}, as = service.admin) =>
    (await hits({ query: { bool: { must } }, ...more }, as)).hits.map(({ _source }) => codes[_source.message]);

  await t.test('an admin finds the account, an end-user what it reaches, each the newest first', async (t) => {
    const all = await hits({});
    t.match(all, {
      total: 5,
      max_score: 1,
      hits: [{ _score: 1, _source: { message: 'loose pump', severity: 'debug' } }],
    });
    t.equal(all.hits[0]._id, all.hits[0]._source.id);
    t.strictSame(await found([]), ['loose', 'foreign', 'stuck', 'again', 'hot']);
    t.strictSame(await found([], {}, token), ['stuck', 'again', 'hot']);
    t.equal((await hits({}, token)).total, 3);
    t.strictSame(await found([{ match: { message: 'pump' } }], {}, token), ['again', 'hot']);
    t.equal(
      (await hits({ query: { bool: { must: [{ match: { message: 'pump' } }] } } }, token)).total,
      2,
      'nor counts more',
    );
    const { admin: stranger } = await service.account();
    t.equal((await hits({}, stranger)).total, 0, 'an account is a wall');
    t.equal((await hits({ query: { bool: { must: [{ match: { message: 'pump' } }] } } }, stranger)).total, 0);
    t.equal((await hits({ query: { bool: { must: [{ term: { deviceId: pump } }] } } }, stranger)).total, 0);
    t.strictSame(await found([{ term: { deviceId: foreign } }], {}, token), []);
    t.strictSame(await found([{ term: { deviceId: 'no-device' } }]), []);
  });

  await t.test('term, range and match find the documented entries', async (t) => {
    t.strictSame(await found({ term: { deviceId: valve } }), ['stuck'], 'a clause alone');
    t.strictSame(await found([{ term: { severity: 'warn' } }]), ['stuck']);
    t.strictSame(await found([{ term: { severity: { value: 'Warning' } } }]), ['stuck']);
    t.strictSame(await found([{ term: { code: 'E42' } }]), ['stuck', 'hot']);
    t.strictSame(await found([{ term: { code: 'e42' } }]), [], 'a term is exact');
    t.strictSame(await found([{ match: { code: 'e42' } }]), ['stuck', 'hot'], 'words are not');
    t.strictSame(await found([{ term: { tags: 'Pump room' } }]), ['hot']);
    t.strictSame(await found([{ match: { tags: 'room' } }]), ['hot']);
    t.strictSame(await found([{ term: { message: 'valve stuck' } }]), ['stuck']);
    t.strictSame(await found([{ term: { 'custom.rpm': 900 } }]), ['again']);
    t.strictSame(await found([{ term: { 'custom.rpm': '900' } }]), []);
    t.strictSame(await found([{ term: { 'custom.deep.ok': true } }]), ['again']);
    t.strictSame(await found([{ match: { details: 'OVERHEAT' } }]), ['again']);
    t.strictSame(await found([{ match: { message: 'over' } }]), [], 'words are whole');
    t.strictSame(await found([{ match: { message: { query: 'pump restarted', operator: 'and' } } }]), ['again']);
    t.strictSame(await found([{ match: { message: '...' } }]), []);
    const range = (sourceTimestamp: object) => found([{ range: { sourceTimestamp } }]);
    t.strictSame(await range({ gte: iso(2000), lt: iso(4000) }), ['stuck', 'again']);
    t.strictSame(await range({ gt: iso(2000), lte: start + 4000 }), ['foreign', 'stuck']);
    t.strictSame(await found([{ range: { received: { lt: iso(0) } } }]), []);
    t.equal((await found([{ range: { received: { gte: iso(0) } } }])).length, 5);
    const both = [{ term: { code: 'E42' } }, { term: { severity: 'error' } }, { match: { message: 'pump' } }];
    t.strictSame(await found(both), ['hot'], 'all of them must fit');
    t.strictSame(await found([{ term: { severity: 'error' } }, { term: { severity: 'warn' } }]), []);
  });

  await t.test('the best come first with words, the newest without, or as it is asked', async (t) => {
    const words = [{ match: { message: 'restarted pump' } }];
    t.strictSame(await found(words), ['again', 'loose', 'foreign', 'hot']);
    t.match(await hits({ query: { bool: { must: words } }, size: 2, from: 1 }), {
      total: 4,
      max_score: 2,
      hits: { length: 2 },
    });
    t.strictSame(await found(words, { sort: [{ sourceTimestamp: 'desc' }] }), ['loose', 'foreign', 'again', 'hot']);
    t.strictSame(await found(words, { sort: [{ sourceTimestamp: { order: 'asc' } }] }), [
      'hot',
      'again',
      'foreign',
      'loose',
    ]);
    t.strictSame(await found(words, { sort: ['_score'], size: 1 }), ['again']);
    t.strictSame(await found([], { sort: 'sourceTimestamp', size: 2, from: 1 }), ['again', 'stuck']);
    t.match(await hits({ size: 0 }), { total: 5, hits: { length: 0 } });
    t.match(await hits({ query: { bool: { must: [{ match: { message: 'nothing' } }] } } }), {
      total: 0,
      max_score: null,
      hits: { length: 0 },
    });
  });

  await t.test('what is not supported is refused by its name', async (t) => {
    const must = (clause: unknown) => ({ query: { bool: { must: [clause] } } });
    const refused: Array<[object, string]> = [
      [{ query: { match_all: {} } }, 'query.match_all'],
      [{ query: { bool: { should: [] } } }, 'query.bool.should'],
      [{ query: { bool: { must: [], must_not: [] } } }, 'query.bool.must_not'],
      [{ query: { bool: { filter: [] } } }, 'query.bool.filter'],
      [{ query: [] }, 'query'],
      [must({ wildcard: { message: 'p*' } }), 'query.bool.must.0.wildcard'],
      [must({ bool: {} }), 'query.bool.must.0.bool'],
      [must({ term: { organizationId: 'x' } }), 'query.bool.must.0.term.organizationId'],
      [must({ term: { code: 'x', message: 'y' } }), 'query.bool.must.0.term'],
      [must({ term: { code: ['x'] } }), 'query.bool.must.0.term.code'],
      [must({ term: { code: { value: 'x', boost: 2 } } }), 'query.bool.must.0.term.code.boost'],
      [must({ term: { severity: 'fatal' } }), 'query.bool.must.0.term.severity'],
      [must({ range: { severity: { gte: 'error' } } }), 'query.bool.must.0.range.severity'],
      [must({ range: { received: { gte: 'today' } } }), 'query.bool.must.0.range.received.gte'],
      [must({ range: { received: { format: 'x' } } }), 'query.bool.must.0.range.received.format'],
      [must({ match: { message: { query: 'x', fuzziness: 1 } } }), 'query.bool.must.0.match.message.fuzziness'],
      [must({ match: { message: { query: 'x', operator: 'xor' } } }), 'query.bool.must.0.match.message.operator'],
      [
        must({ match: { message: Array.from({ length: 33 }, (_, n) => n).join(' ') } }),
        'query.bool.must.0.match.message',
      ],
      [{ query: { bool: { must: Array.from({ length: 33 }, () => ({ term: { code: 1 } })) } } }, 'query.bool.must'],
      [{ aggs: {} }, 'aggs'],
      [{ sort: [{ message: 'desc' }] }, 'sort.message'],
      [{ sort: [{ _score: 'asc' }] }, 'sort._score'],
      [{ sort: ['_score', 'sourceTimestamp'] }, 'sort'],
      [{ size: 1001 }, 'size'],
      [{ from: -1 }, 'from'],
      [{ from: 9991, size: 10 }, 'from'],
    ];
    for (const [body, name] of refused)
      t.match(await search(body), { status: 400, body: { error: { code: 106, details: [{ path: name }] } } }, name);
    t.match(await service.http('POST', path, { body: {}, token: null }), { status: 401 });
    const said = async (body: object) =>
      (await search(body)).body.error.details[0].message.split('supported here: ')[1];
    t.equal(await said(must({ wildcard: { message: 'p*' } })), 'term, terms, range, match');
    t.equal(
      await said(must({ term: { organizationId: 'x' } })),
      'deviceId, sourceId, severity, message, code, details, tags, custom.<name>',
    );
    t.equal(await said(must({ range: { severity: {} } })), 'sourceTimestamp, received, serviceTimestamp');
    t.equal(await said(must({ match: { severity: 'x' } })), 'message, code, details, tags');
    t.equal(await said({ aggs: {} }), 'query, size, from, sort');
    t.equal(
      await said({ sort: ['message'] }),
      'sourceTimestamp, serviceTimestamp, received, severity, code, deviceId, sourceId, _score',
    );
  });

  await t.test(
    'old entries belong to anyone who reaches the device now, where its history was handed over',
    async (t) => {
      const change = async (method: string, id: string, body?: object) => {
        const { version } = (await service.ok('GET', `/api/v1/devices/${id}`)).device;
        await service.ok(method, `/api/v1/devices/${id}`, { headers: { etag: version }, body });
      };
      await change('PUT', foreign, { organizationId: below.id, keepHistory: true });
      await change('PUT', pump, { organizationId: outside.id });
      t.strictSame(await found([], {}, token), ['foreign', 'stuck']);
      t.strictSame(await found([{ match: { message: 'pump' } }], {}, token), ['foreign']);
      await change('DELETE', valve);
      t.strictSame(await found([], {}, token), ['foreign']);
      t.strictSame(await found([]), ['loose', 'foreign', 'again', 'hot'], 'nor does the trash show anything');
      t.equal((await hits({})).total, 4);
    },
  );
});

t.test('existing clients search by sourceId, sort by more than time, and read what they know', async (t) => {
  const service = await startService(t, { clock });
  const organization = await service.organization();
  const make = async () => (await service.device({ organizationId: organization.id })).device;
  const [one, two, three] = [await make(), await make(), await make()];
  const write = (id: string, ...body: object[]) => service.ok('POST', `/api/v1/devices/${id}/logs`, { body });
  await write(one.id, { message: 'a', code: 9, severity: 'error', sourceTimestamp: iso(3000) });
  await write(two.id, { message: 'b', code: 10, severity: 'debug', sourceTimestamp: iso(1000) });
  await write(three.id, { message: 'c', code: 'E1', severity: 'alert', sourceTimestamp: iso(2000) });
  const found = async (must: unknown[], sort?: unknown) =>
    (
      await service.ok('POST', path, { body: { query: { bool: { must } }, ...(sort !== undefined && { sort }) } })
    ).hits.hits.map(({ _source }) => _source);
  const said = async (must: unknown[], sort?: unknown) =>
    (await found(must, sort)).map(({ message }) => message).join('');
  t.equal(await said([{ term: { sourceId: one.id } }]), 'a');
  t.equal(await said([{ terms: { sourceId: [one.id, two.id, 'nothing'] } }]), 'ab');
  t.equal(await said([{ terms: { deviceId: [] } }]), '');
  t.equal(await said([{ terms: { severity: ['error', 'alert'] } }, { term: { severity: 'alert' } }]), 'c');
  t.equal(await said([{ range: { serviceTimestamp: { gte: iso(0) } } }], [{ sourceTimestamp: 'asc' }]), 'bca');
  for (const [sort, order] of [
    [{ code: 'asc' }, 'abc'],
    [{ code: 'desc' }, 'cba'],
    [{ severity: 'asc' }, 'cab'],
    [{ severity: { order: 'desc' } }, 'bac'],
    [{ sourceId: 'asc' }, 'abc'],
    [{ deviceId: 'desc' }, 'cba'],
    [{ serviceTimestamp: 'desc' }, 'acb'],
  ] as const)
    t.equal(await said([], [sort]), order, JSON.stringify(sort));
  t.equal((await service.http('POST', path, { body: { sort: ['_score', { code: 'asc' }] } })).status, 400);
  t.equal((await service.http('POST', path, { body: { sort: [{ toString: 'asc' }] } })).status, 400);

  const [source] = await found([{ term: { sourceId: one.id } }]);
  t.match(source, {
    deviceId: one.id,
    sourceId: one.id,
    sourceType: 'deviceId',
    deviceTemplateId: one.deviceTemplateId,
    organizationId: organization.id,
    sourceTimestamp: start + 3000,
    serviceTimestamp: start,
    received: iso(0),
    code: 9,
    incidents: { length: 0 },
  });
  t.equal((await found([{ term: { sourceId: three.id } }]))[0]?.code, 'E1');
  const client = await service.connect({ deviceId: one.id, secret: await service.credential(one.id) });
  await client.publishAsync(service.topic(one.id, '_log'), '{"message":"here"}', { qos: 1 });
  // It is written a moment after the connection.
  const lifecycle = () => found([{ term: { severity: 'lifecycle' } }]);
  await until(async () => (await lifecycle()).length > 0);
  t.match((await lifecycle())[0], { custom: { connected: 'true' } }, 'a text');
  const { logs } = await service.ok('GET', `/api/v1/devices/${one.id}/logs?severity=error`);
  t.match(logs.results[0], { sourceTimestamp: iso(3000), code: '9' }, 'GET is as it was');
  t.notOk('sourceId' in logs.results[0]);
});

t.end();
