import { part } from '../support/part.ts';
import { nextMessage, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const families = [
  { path: '/devices', wrapper: 'deviceField', property: 'deviceTemplateId', template: 'deviceTemplate' },
  { path: '/end-users', wrapper: 'endUserField', property: 'endUserTemplateId', template: 'endUserTemplate' },
  {
    path: '/organizations',
    wrapper: 'organizationField',
    property: 'organizationTemplateId',
    template: 'organizationTemplate',
  },
] as const;

const templateFor = (family: (typeof families)[number]) =>
  service.create(`${family.path}/templates`, family.template, { name: service.unique('T') });

for (const family of families) {
  const { path, wrapper, property } = family;
  t.test(`${path}: a custom field is created, read, changed, listed, deleted and recovered`, async (t) => {
    const template = await templateFor(family);
    const make = (body: object) =>
      service.http('POST', `/api/v1${path}/custom-fields`, {
        body: { accountId: service.accountId, [property]: template.id, ...body },
      });
    const made = (
      await make({ name: 'colour', fieldType: 'string', required: 'false', default: 'red', description: 'd' })
    ).body[wrapper];
    t.match(made, {
      [property]: template.id,
      name: 'colour',
      fieldType: 'string',
      required: false,
      default: 'red',
      description: 'd',
      version: '1',
    });
    t.match(await make({ name: 'colour', fieldType: 'int' }), {
      status: 400,
      body: { error: { code: 106, details: [{ path: 'name' }] } },
    });
    t.match(await make({ name: 'c', fieldType: 'colour' }), {
      status: 400,
      body: { error: { code: 106, details: [{ path: 'fieldType' }] } },
    });
    t.match(await make({ name: 'c', fieldType: 'int', default: 'many' }), {
      status: 400,
      body: { error: { code: 106, details: [{ path: 'default' }] } },
    });
    for (const name of ['id', 'version', 'accountId', '__proto__', 'account', property])
      t.match(
        await make({ name, fieldType: 'int' }),
        { status: 400, body: { error: { code: 106, details: [{ path: 'name' }] } } },
        name,
      );
    t.match(await make({ name: 'c', fieldType: 'int', [property]: 'nothing' }), {
      status: 400,
      body: { error: { code: 102 } },
    });

    const one = `/api/v1${path}/custom-fields/${made.id}`;
    t.same((await service.ok('GET', one))[wrapper], made);
    const body = {
      accountId: service.accountId,
      [property]: template.id,
      name: 'color',
      fieldType: 'string',
      required: true,
    };
    t.match(await service.http('PUT', one, { body }), { status: 400, body: { error: { code: 103 } } });
    const other = await templateFor(family);
    const moved = await service.http('PUT', one, {
      headers: { etag: made.version },
      body: { ...body, [property]: other.id },
    });
    t.match(moved, { status: 400, body: { error: { code: 106, details: [{ path: property }] } } });
    const typed = await service.http('PUT', one, {
      headers: { etag: made.version },
      body: { ...body, fieldType: 'int' },
    });
    t.match(
      typed,
      { status: 400, body: { error: { code: 106, details: [{ path: 'default' }] } } },
      'the default would not match',
    );
    const changed = (await service.ok('PUT', one, { headers: { etag: made.version }, body }))[wrapper];
    t.match(changed, { name: 'color', required: true, default: 'red', description: 'd' });

    await make({ name: 'weight', fieldType: 'float' });
    const list = async (query: string) =>
      (
        await service.ok(
          'GET',
          `/api/v1${path}/custom-fields?accountId=${service.accountId}&${property}=${template.id}&${query}`,
        )
      )[`${wrapper}s`];
    t.same(
      (await list('')).results.map((f) => f.name),
      ['color', 'weight'],
    );
    t.same(
      (await list('required=true')).results.map((f) => f.name),
      ['color'],
    );
    t.same(
      (await list('required=false')).results.map((f) => f.name),
      ['color', 'weight'],
    );
    t.same(
      (await list('fieldType=float')).results.map((f) => f.name),
      ['weight'],
    );
    t.same(
      (await list('default=red')).results.map((f) => f.name),
      ['color'],
    );
    t.same((await list(`sortBy=${property}&sortOrder=desc`)).meta.count, 2);
    t.match(await service.http('GET', `/api/v1${path}/custom-fields?accountId=${service.accountId}`), {
      status: 400,
      body: { error: { code: 106 } },
    });

    await service.ok('DELETE', one, { headers: { etag: changed.version } });
    t.match(await service.http('GET', one), { status: 410 });
    t.match(
      (await service.ok('GET', `/api/v1/trash${path}/custom-fields?accountId=${service.accountId}`))[`${wrapper}s`]
        .results,
      [{ id: made.id }],
    );
    t.match(await service.http('GET', `/api/v1/trash${path}/custom-fields/${made.id}`), { status: 200 });
    t.match(
      await service.http('POST', `/api/v1/trash${path}/custom-fields/${made.id}/recover`, {
        headers: { etag: changed.version },
      }),
      { status: 200 },
    );
    const count = await service.ok('GET', `/api/v1${path}/templates/${template.id}?count=${path.slice(1, -1)}-fields`);
    t.equal(Object.entries(count[family.template]).find(([name]) => name.endsWith('FieldCount'))?.[1], 2);
  });
}

t.test('a field of one family does not exist in another', async (t) => {
  const [family] = families;
  const template = await templateFor(family);
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'x',
    fieldType: 'int',
  });
  t.match(await service.http('GET', `/api/v1/organizations/custom-fields/${field.id}`), {
    status: 404,
    body: { error: { code: 100 } },
  });
  t.match(await service.http('GET', `/api/v1/trash/end-users/custom-fields/${field.id}`), { status: 404 });
});

t.test('every type takes what the spec allows and refuses the rest', async (t) => {
  const template = await service.template();
  const long = (length: number) => 'x'.repeat(length);
  const cases: Array<[string, unknown[], unknown[]]> = [
    ['url', ['https://a.example/b', `https://a.example/${long(230)}`], ['no url', `https://a.example/${long(240)}`, 5]],
    ['lat', [90, -90, '12.5'], [90.1, 'north', true]],
    ['long', [180, '-180'], [180.5, '']],
    [
      'datetime',
      ['2026-01-31', '2026-01-31T10:00:00Z', '2026-01-31T10:00:00.123+02:00'],
      ['2026-02-30', 'yesterday', 5],
    ],
    ['name', [long(5), long(100)], [long(4), long(101), 12345]],
    ['email', ['a@b.example'], ['a', 'a@', '@b', 'a\u200b@b.example', 'a＠b.example', `${long(250)}@b.example`]],
    ['countryCode', ['CH', ''], ['CHE']],
    ['territory', ['MA'], ['MAS']],
    ['locality', [long(100)], [long(101)]],
    ['postalCode', [long(10)], [long(11)]],
    ['int', [5, '-5', 0], [5.5, 'five', true, 1e300]],
    ['string', [long(255), ''], [long(256), 5]],
    ['boolean', [true, 'false'], ['yes', 1]],
    ['float', [1.5, '1e3', -0.1], ['1,5', 'NaN', 'Infinity', '']],
    ['text', [long(1000)], [long(1001)]],
  ];
  const shown: Record<string, unknown> = {
    lat: ['90', '-90', '12.5'],
    long: ['180', '-180'],
    int: [5, -5, 0],
    boolean: [true, false],
    float: [1.5, 1000, -0.1],
  };
  for (const [type] of cases)
    await service.create('/devices/custom-fields', 'deviceField', {
      deviceTemplateId: template.id,
      name: `f-${type}`,
      fieldType: type,
    });
  const { device } = await service.device({ deviceTemplateId: template.id });
  t.match(device, { 'f-int': null }, 'null by default');
  let { version } = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const put = (body: object) =>
    service.http('PUT', `/api/v1/devices/${device.id}`, { headers: { etag: version }, body });
  for (const [type, good, bad] of cases) {
    for (const [n, value] of good.entries()) {
      const answer = await put({ [`f-${type}`]: value });
      t.equal(answer.status, 200, `${type} ${JSON.stringify(value)}`);
      t.equal(answer.headers.get('platform-ignored-properties'), null);
      t.match(answer.body.device, { [`f-${type}`]: (shown[type] as unknown[])?.[n] ?? value });
      version = answer.body.device.version;
    }
    for (const value of bad)
      t.match(
        await put({ [`f-${type}`]: value }),
        { status: 400, body: { error: { code: 106, details: [{ path: `f-${type}` }] } } },
        `${type} ${JSON.stringify(value)}`,
      );
  }
});

t.test('default and required act at creation; a new field is null on what is there already', async (t) => {
  const template = await service.template();
  const before = await service.create('/devices', 'device', { serialNumber: 'before', deviceTemplateId: template.id });
  const field = (body: object) =>
    service.create('/devices/custom-fields', 'deviceField', { deviceTemplateId: template.id, ...body });
  await field({ name: 'size', fieldType: 'int', default: '7' });
  await field({ name: 'owner', fieldType: 'string', required: true });
  t.match((await service.ok('GET', `/api/v1/devices/${before.id}`)).device, { size: null, owner: null });
  const make = (body: object) =>
    service.http('POST', '/api/v1/devices', {
      body: { accountId: service.accountId, serialNumber: 'n', deviceTemplateId: template.id, ...body },
    });
  t.match(await make({}), { status: 400, body: { error: { code: 106, details: [{ path: 'owner' }] } } });
  t.match(await make({ owner: null }), { status: 400 });
  t.match(await make({ owner: 'Ann' }), { status: 200, body: { device: { owner: 'Ann', size: 7 } } });
  t.match(await make({ owner: 'Ann', size: 9 }), { status: 200, body: { device: { size: 9 } } });
});

t.test('renaming keeps the values, deleting hides them, recovering shows them again', async (t) => {
  const template = await service.template();
  const field = await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'old',
    fieldType: 'string',
  });
  const { device, secret } = await service.device({ deviceTemplateId: template.id, old: 'kept' });
  const path = `/api/v1/devices/custom-fields/${field.id}`;
  const read = async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  const body = { accountId: service.accountId, deviceTemplateId: template.id, name: 'new', fieldType: 'string' };
  const { deviceField } = await service.ok('PUT', path, { headers: { etag: field.version }, body });
  t.match(await read(), { new: 'kept' });
  t.notOk('old' in (await read()));
  await service.ok('DELETE', path, { headers: { etag: deviceField.version } });
  t.notOk('new' in (await read()));
  await service.ok('POST', `/api/v1/trash/devices/custom-fields/${field.id}/recover`, {
    headers: { etag: deviceField.version },
  });
  t.match(await read(), { new: 'kept' });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.subscribeAsync(service.topic(device.id, '_updates/fields'), { qos: 1 });
  const told = nextMessage(client, (_, payload) => payload.includes('"over mqtt"'));
  await client.publishAsync(service.topic(device.id, '_set/fields'), '{"state":{"new":"over mqtt"}}', { qos: 1 });
  t.same(JSON.parse((await told).text), { state: { new: 'over mqtt' } });
  t.match(await read(), { new: 'over mqtt' });
});

t.test('device templates have custom fields of their own, one set for the account', async (t) => {
  const field = await service.create('/devices/templates/custom-fields', 'deviceTemplateField', {
    name: 'approval',
    fieldType: 'string',
  });
  t.notOk('deviceTemplateId' in field);
  const template = await service.template({ approval: 'CE' });
  t.match(template, { approval: 'CE' });
  const list = await service.ok('GET', `/api/v1/devices/templates?accountId=${service.accountId}&default=true`);
  t.match(list.deviceTemplates.results[0], { approval: null });
  const fields = await service.ok('GET', `/api/v1/devices/templates/custom-fields?accountId=${service.accountId}`);
  t.match(fields.deviceTemplateFields.results, [{ id: field.id }]);
});

t.end();
