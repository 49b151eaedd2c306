import { part } from '../support/part.ts';
import type { Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const read = async (id: string, query = '') => service.http('GET', `/api/v1/devices/${id}${query}`);

t.test('a new device has every documented field, and fields that were not given are null', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'A-1', latitude: 12.5, name: 'pump' });
  t.match(device, {
    accountId: service.accountId,
    serialNumber: 'A-1',
    provisioningState: 'defined',
    connected: false,
    latitude: '12.5',
    longitude: null,
    name: 'pump',
    location: null,
    deviceVersion: null,
    purchaseDate: null,
    firmwareVersion: null,
    organizationId: null,
    version: /^[0-9a-z]{1,12}$/,
    created: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
  });
  t.equal(device.created, device.lastModified);
  const channels: string[] = device.channels.map((channel) => channel.channelTemplateName).sort();
  t.same(channels, ['_log', '_rejected', '_set/fields', '_updates/fields']);
  t.equal(device.channels[0].serviceTopic, true);
  t.ok(device.channels.every((c) => c.channel === service.topic(device.id, c.channelTemplateName)));
  const answer = await read(device.id);
  t.same(answer.body.device, device);
  t.equal(answer.headers.get('etag'), `"${device.version}"`);
});

t.test('a channel added to or deleted from the template is added to or gone from the device at once', async (t) => {
  const template = await service.template();
  const { device } = await service.device({ deviceTemplateId: template.id });
  const channel = await service.channel(template.id, 'temperature');
  const has = async () => (await read(device.id)).body.device.channels.find((c) => c.channelTemplateId === channel.id);
  t.match(await has(), {
    channelTemplateName: 'temperature',
    flags: { timeSeries: true },
    persistenceType: 'timeSeries',
  });
  const path = `/api/v1/channels/templates/${channel.id}`;
  await service.ok('DELETE', path, { headers: { etag: channel.version } });
  t.equal(await has(), undefined);
  await service.ok('POST', `/api/v1/trash/channels/templates/${channel.id}/recover`, {
    headers: { etag: channel.version },
  });
  t.ok(await has());
});

t.test('an update needs the latest version and gives a new one', async (t) => {
  const { device } = await service.device();
  const path = `/api/v1/devices/${device.id}`;
  const { device: current } = await service.ok('GET', path);
  t.match(await service.http('PUT', path, { body: {} }), { status: 400, body: { error: { code: 103 } } });
  t.match(await service.http('PUT', path, { body: {}, headers: { etag: 'NEVER!' } }), {
    status: 412,
    body: { error: { code: 103 } },
  });
  const changed = await service.ok('PUT', path, {
    body: { firmwareVersion: '1.2', longitude: '-180', purchaseDate: '2026-01-31', ...{ id: 'x', connected: true } },
    headers: { ETag: `"${current.version}"` },
  });
  t.match(changed.device, { firmwareVersion: '1.2', longitude: '-180', purchaseDate: '2026-01-31', connected: false });
  t.equal(changed.device.id, device.id);
  t.not(changed.device.version, current.version);
  const stale = await service.http('PUT', path, { body: {}, headers: { 'if-match': current.version } });
  t.match(await service.http('PUT', path, { body: {}, headers: { 'if-match': '*' } }), {
    status: 412,
    body: { error: { code: 103, details: [{ message: /^Any version, \*, is not taken/ }] } },
  });
  t.match(stale, {
    status: 412,
    body: { error: { code: 108, details: [{ version: changed.device.version, lastModifiedById: String }] } },
  });
});

t.test('what nobody sees at the ends of a serial number is no part of it, wherever it comes from', async (t) => {
  const unseen = [
    ' ',
    '\u00a0',
    '\ufeff',
    '\t',
    '\r',
    '\r\n',
    '\u0007',
    '\u009f',
    '\u3000',
    '\u200b',
    '\u2028',
    '\u001e\u0004',
    '\u00ad',
    '\u200e',
    '\u202a\u202c',
    '\u2068\u2069',
  ];
  for (const [at, text] of unseen.entries()) {
    const serialNumber = `TRIM ${at}`;
    const made = await service.create('/devices', 'device', { serialNumber: `${text}${serialNumber}${text}` });
    t.equal(made.serialNumber, serialNumber, `case ${at}`);
    const changed = { headers: { etag: made.version }, body: { serialNumber: `${text}${serialNumber} B${text}` } };
    const { device } = await service.ok('PUT', `/api/v1/devices/${made.id}`, changed);
    t.equal(device.serialNumber, `${serialNumber} B`, `case ${at}`);
    const replaced = { headers: { etag: device.version }, body: { serialNumber: `${serialNumber} C${text}` } };
    const answer = await service.ok('POST', `/api/v1/devices/${made.id}/replace`, replaced);
    t.equal(answer.device.serialNumber, `${serialNumber} C`, `case ${at}`);
    service.secrets.add(answer.mqttCredential.secret);
    const asked = encodeURIComponent(`${text}${serialNumber} C${text}`);
    const path = `/api/v1/devices?accountId=${service.accountId}&serialNumber=${asked}` as const;
    t.match((await service.ok('GET', path)).devices.results, [{ id: made.id }], `case ${at}`);
  }
  const { version, id } = await service.create('/devices', 'device', { serialNumber: 'TRIM' });
  for (const serialNumber of [
    ' ',
    '\u00a0\r\n',
    '\ufeff',
    '\u200e',
    'A\tB',
    'A\rB',
    'A\u0000B',
    'A\u0085B',
    'A\u007fB',
  ]) {
    const refusal = { status: 400, body: { error: { code: 106, details: [{ path: 'serialNumber' }] } } };
    const said = encodeURIComponent(serialNumber);
    const body = { accountId: service.accountId, serialNumber };
    t.match(await service.http('POST', '/api/v1/devices', { body }), refusal, said);
    const headers = { etag: version };
    t.match(await service.http('PUT', `/api/v1/devices/${id}`, { headers, body }), refusal, said);
    t.match(await service.http('POST', `/api/v1/devices/${id}/replace`, { headers, body }), refusal, said);
  }
});

t.test('a serial number is the same however its letters are composed', async (t) => {
  const [one, two] = ['COMPOSED \u00e9\u1e69', 'COMPOSED e\u0301s\u0307\u0323'];
  const { id, serialNumber, version } = await service.create('/devices', 'device', { serialNumber: two });
  t.equal(serialNumber, one);
  const changed = { headers: { etag: version }, body: { serialNumber: `${two} B` } };
  t.equal((await service.ok('PUT', `/api/v1/devices/${id}`, changed)).device.serialNumber, `${one} B`);
  for (const asked of [one, two]) {
    const said = encodeURIComponent(`${asked} B`);
    const path = `/api/v1/devices?accountId=${service.accountId}&serialNumber=${said}` as const;
    t.match((await service.ok('GET', path)).devices.results, [{ id }], said);
  }
});

t.test('properties of a body that are ignored are named in a header', async (t) => {
  const answer = await service.http('POST', '/api/v1/devices', {
    body: { accountId: service.accountId, serialNumber: 'I-1', serialNumbr: 'x', connected: true },
  });
  t.equal(answer.status, 200);
  t.equal(answer.headers.get('platform-ignored-properties'), 'serialNumbr, connected');
});

t.test('wrong values are refused with error 106 and the property, and no device is created', async (t) => {
  const count = async () =>
    (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&results=false`)).devices.meta.count;
  const before = await count();
  for (const [property, value] of Object.entries({
    serialNumber: 17,
    latitude: 90.5,
    longitude: 'east',
    firmwareVersion: 5,
    purchaseDate: '2026-02-30',
    name: 'x'.repeat(256),
    location: 'x'.repeat(1001),
    organizationId: 9,
  })) {
    const body = { accountId: service.accountId, serialNumber: 'W', [property]: value };
    const answer = await service.http('POST', '/api/v1/devices', { body });
    t.match(answer, { status: 400, body: { error: { code: 106, details: [{ path: property }] } } }, property);
  }
  for (const property of ['deviceTemplateId', 'organizationId']) {
    const body = { accountId: service.accountId, serialNumber: 'W', [property]: 'nothing there' };
    const answer = await service.http('POST', '/api/v1/devices', { body });
    t.match(answer, { status: 400, body: { error: { code: 102, details: [{ path: property }] } } }, property);
  }
  t.equal(await count(), before);
});

t.test('lists filter, sort and page as documented', async (t) => {
  const template = await service.template();
  const organization = await service.organization();
  const made: Made<'device'>[] = [];
  for (const n of [3, 1, 2, 5, 4])
    made.push(
      await service.create('/devices', 'device', {
        serialNumber: `List-${n}_${n % 2 ? 'odd' : 'even'}%`,
        deviceTemplateId: template.id,
        firmwareVersion: `v${n}`,
        latitude: n,
        ...(n > 3 ? { organizationId: organization.id } : {}),
      }),
    );
  const list = async (query: string) =>
    (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&deviceTemplateId=${template.id}&${query}`))
      .devices;
  const serials = async (query: string) => (await list(query)).results.map((d) => d.serialNumber.slice(5, 6)).join('');
  t.equal(await serials(''), '12345', 'serialNumber ascending by default');
  t.equal(await serials('sortOrder=desc'), '54321');
  t.equal(await serials('sortBy=created'), '31254');
  t.equal(await serials('sortBy=firmwareVersion&sortOrder=desc'), '54321');
  t.equal(await serials('serialNumber=ODD'), '135', 'partial, any case');
  t.equal(await serials(`serialNumber=${encodeURIComponent('n%')}`), '24', 'a percent sign is a character');
  t.equal(await serials('serialNumber=_o'), '135', 'an underscore is a character');
  t.equal(await serials('firmwareVersion=V2'), '2');
  t.equal(await serials('latitude=3.0'), '3', 'numbers are compared as numbers');
  t.equal(await serials(`organizationId=${organization.id}`), '45');
  t.equal(await serials('organizationId=null'), '123');
  t.equal(await serials('connected=true'), '');
  t.equal(await serials('provisioningState=defined'), '12345');
  t.equal(await serials('pageSize=2&page=2'), '34');
  t.same((await list('pageSize=2&page=3')).meta, { count: 5, page: 3, pageSize: 2, sortOrder: 'asc' });
  t.same(Object.keys(await list('results=false')), ['meta']);
  t.same(Object.keys(await list('meta=false')), ['results']);
  t.same((await list('serialNumber=nobody')).results, [], 'page 1 of nothing is an answer');

  const refused = async (query: string) =>
    service.http('GET', `/api/v1/devices?accountId=${service.accountId}&deviceTemplateId=${template.id}&${query}`);
  t.match(await refused('page=4&pageSize=2'), { status: 416, body: { error: { code: 109 } } });
  t.match(await refused('page=4&pageSize=2&results=false'), { status: 416, body: { error: { code: 109 } } });
  for (const query of [
    'page=0',
    'pageSize=0',
    'pageSize=1001',
    'sortBy=secret',
    'sortOrder=up',
    'connected=maybe',
    'latitude=x',
    'expand=friends',
    'accountId=twice',
  ])
    t.match(await refused(query), { status: 400, body: { error: { code: 106 } } }, query);
  const unknown = await refused('colour=red');
  t.equal(unknown.headers.get('platform-ignored-properties'), 'colour');
  t.match(await service.http('GET', '/api/v1/devices'), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'accountId' }] } },
  });
});

t.test('expand adds the organization and the template', async (t) => {
  const organization = await service.organization();
  const template = await service.template();
  const { device } = await service.device({ organizationId: organization.id, deviceTemplateId: template.id });
  const { device: expanded } = (await read(device.id, '?expand=organization,device-template,account')).body;
  t.match(expanded, { organization: { name: organization.name }, deviceTemplate: { id: template.id } });
  t.same(Object.keys((expanded as { account?: object }).account ?? {}), ['id', 'name', 'created']);
  t.equal(expanded.organizationId, organization.id);
});

t.test('a list with fields has only those properties, also of expanded parents, and always the id', async (t) => {
  const { id: organizationId } = await service.organization({ name: 'Chosen' });
  const { device } = await service.device({ organizationId, serialNumber: 'CHOSEN-1', name: 'kettle' });
  const { device: free } = await service.device({ serialNumber: 'CHOSEN-2' });
  const base = `/api/v1/devices?accountId=${service.accountId}&serialNumber=CHOSEN-&expand=organization`;
  const read = async (fields: string) => (await service.ok('GET', `${base}&fields=${fields}`)).devices;
  const chosen = await read('serialNumber,%20name,organization.name');
  t.strictSame(chosen.results, [
    { id: device.id, serialNumber: 'CHOSEN-1', name: 'kettle', organization: { name: 'Chosen' } },
    { id: free.id, serialNumber: 'CHOSEN-2', name: null, organization: null },
  ]);
  t.equal(chosen.meta.count, 2);
  const [whole] = (await read('organization,organization.name')).results;
  t.match(whole, { id: device.id, organization: { id: organizationId, name: 'Chosen', version: String } });
  t.equal(whole.serialNumber, undefined);
  t.match(await service.http('GET', `${base}&fields=${Array(101).fill('name')}`), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'fields' }] } },
  });
  t.equal((await read('')).results[0].serialNumber, 'CHOSEN-1', 'an empty list of names asks for everything');
  const other = await service.ok('GET', `/api/v1/organizations?accountId=${service.accountId}&name=Chosen&fields=name`);
  t.strictSame(other.organizations.results, [{ id: organizationId, name: 'Chosen' }]);
});

t.test('fields takes the custom fields of every template, and refuses a name that no result can have', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  const colour = { name: 'colour', fieldType: 'string', deviceTemplateId };
  await service.create('/devices/custom-fields', 'deviceField', colour);
  const { device } = await service.device({ serialNumber: 'FIELDS-1', deviceTemplateId, colour: 'red' });
  const base = `accountId=${service.accountId}&expand=organization`;
  const { results } = (await service.ok('GET', `/api/v1/devices?${base}&serialNumber=FIELDS-1&fields=colour`)).devices;
  t.strictSame(results, [{ id: device.id, colour: 'red' }]);
  const cases: Array<[path: string, names: string, unknown: string[]]> = [
    ['devices', 'serialNumber,locatoin,constructor,toString', ['locatoin', 'constructor', 'toString']],
    ['devices', 'organization.nme,organizations.name', ['organization.nme', 'organizations.name']],
    ['organizations', 'colour,parent.name', ['colour']],
    ['bridges', 'colour,name', ['colour']],
    ['firmware/rollouts', 'counts.failed,counts.broken', ['counts.broken']],
  ];
  for (const [path, names, unknown] of cases) {
    const details = unknown.map((name) => ({ path: 'fields', message: `'${name}' is not a property of the results` }));
    t.match(
      await service.http(
        'GET',
        `/api/v1/${path}?${path === 'devices' ? base : `accountId=${service.accountId}`}&fields=${names}`,
      ),
      { status: 400, body: { error: { code: 106, details } } },
      `${path}: ${names}`,
    );
  }
});

t.test('a deleted device keeps its version in the trash, and gets a new one when it is recovered', async (t) => {
  const { device } = await service.device();
  const { device: current } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  const etag = { headers: { etag: current.version } };
  t.match(await service.http('GET', `/api/v1/trash/devices/${device.id}`), {
    status: 404,
    body: { error: { code: 100 } },
  });
  t.match(await service.http('POST', `/api/v1/trash/devices/${device.id}/recover`, etag), { status: 404 });
  const { device: deleted } = await service.ok('DELETE', `/api/v1/devices/${device.id}`, etag);
  t.equal(deleted.version, current.version);
  t.match(await read(device.id), { status: 410, body: { error: { code: 107 } } });
  t.match(await service.http('PUT', `/api/v1/devices/${device.id}`, { ...etag, body: {} }), { status: 410 });
  t.match(await service.http('DELETE', `/api/v1/devices/${device.id}`, etag), { status: 410 });
  const trash = (await service.ok('GET', `/api/v1/trash/devices?accountId=${service.accountId}`)).devices;
  t.equal(trash.results[0].id, device.id, 'newest deletion first');
  t.equal((await service.ok('GET', `/api/v1/trash/devices/${device.id}`)).device.version, current.version);
  t.match(await service.http('POST', `/api/v1/trash/devices/${device.id}/recover`, { headers: { etag: 'zz' } }), {
    status: 412,
    body: { error: { code: 108 } },
  });
  const { device: recovered } = await service.ok('POST', `/api/v1/trash/devices/${device.id}/recover`, etag);
  t.not(recovered.version, current.version);
  t.notOk('deleted' in recovered);
  t.equal((await read(device.id)).status, 200);
});

t.test('a deleted device is recovered only if its template and organization exist', async (t) => {
  const organization = await service.organization();
  const template = await service.template();
  const device = await service.create('/devices', 'device', {
    serialNumber: 'R',
    organizationId: organization.id,
    deviceTemplateId: template.id,
  });
  await service.ok('DELETE', `/api/v1/devices/${device.id}`, { headers: { etag: device.version } });
  const recover = () =>
    service.http('POST', `/api/v1/trash/devices/${device.id}/recover`, { headers: { etag: device.version } });
  await service.ok('DELETE', `/api/v1/organizations/${organization.id}`, { headers: { etag: organization.version } });
  t.match(await recover(), { status: 400, body: { error: { code: 102, details: [{ path: 'organizationId' }] } } });
  await service.ok('POST', `/api/v1/trash/organizations/${organization.id}/recover`, {
    headers: { etag: organization.version },
  });
  await service.ok('DELETE', `/api/v1/devices/templates/${template.id}`, { headers: { etag: template.version } });
  t.match(await recover(), { status: 400, body: { error: { code: 102, details: [{ path: 'deviceTemplateId' }] } } });
});

t.test('of a hundred updates with the same version exactly one succeeds', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'race' });
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      service.http('PUT', `/api/v1/devices/${device.id}`, {
        body: { firmwareVersion: `${n}` },
        headers: { etag: device.version },
      }),
    ),
  );
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  t.equal(answers.filter(({ status, body }) => status === 412 && body.error.code === 108).length, 99);
});

t.test('an end-user sees, changes and moves devices within its reach and nothing else', async (t) => {
  const top = await service.organization();
  const below = await service.organization({ parentId: top.id });
  const elsewhere = await service.organization();
  const { token } = await service.endUser(top.id);
  const mine = (await service.device({ organizationId: below.id, serialNumber: 'mine' })).device;
  const other = (await service.device({ organizationId: elsewhere.id, serialNumber: 'other' })).device;
  const free = (await service.device({ serialNumber: 'free' })).device;
  const list = (await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`, { token })).devices;
  t.same(
    list.results.map((device) => device.id),
    [mine.id],
  );
  t.equal(list.meta.count, 1);
  const as = (method: string, id: string, body?: object, version = '1') =>
    service.http(method, `/api/v1/devices/${id}`, { token, headers: { etag: version }, ...(body && { body }) });
  for (const { id } of [other, free]) {
    t.match(await as('GET', id), { status: 404, body: { error: { code: 100 } } });
    t.match(await as('PUT', id, { name: 'x' }), { status: 404, body: { error: { code: 100 } } });
  }
  const { version } = (await as('GET', mine.id)).body.device;
  t.match(await as('PUT', mine.id, { organizationId: elsewhere.id }, version), {
    status: 400,
    body: { error: { code: 102 } },
  });
  t.match(await as('PUT', mine.id, { organizationId: top.id, name: 'kettle' }, version), { status: 200 });
  t.match(await as('DELETE', mine.id), { status: 403, body: { error: { code: 21 } } });
  const created = await service.http('POST', '/api/v1/devices', {
    token,
    body: { accountId: service.accountId, serialNumber: 'x' },
  });
  t.match(created, { status: 403, body: { error: { code: 21 } } });
  const credential = { accountId: service.accountId, entityId: mine.id, entityType: 'device' };
  t.match(await service.http('POST', '/api/v1/access/mqtt-credentials', { token, body: credential }), {
    status: 400,
    body: { error: { code: 102 } },
  });
});

t.test('the connectivity of a device names the broker, its topics and lines that hold no secret', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
  const topic = service.topic(device.id, 'readings');
  t.match(connectivity, { host: '127.0.0.1', port: service.direct.server.mqttPort, tls: false, username: device.id });
  t.match(
    connectivity.topics.find(({ channel }: { channel: string }) => channel === 'readings'),
    { topic, devicePublishes: true, service: false },
  );
  for (const line of Object.values<string>(connectivity.lines)) {
    t.ok(line.includes(topic) && line.includes('YOUR_SECRET'), line);
    t.notOk(line.includes(secret));
  }
  const path = `/api/v1/devices/${device.id}/connectivity` as const;
  const without = (await service.ok('GET', `${path}?lines=false`)).connectivity;
  const none = Object.fromEntries(Object.keys(connectivity.lines).map((name) => [name, '']));
  t.strictSame(without, { ...connectivity, lines: none }, 'the rest without the lines');
  t.strictSame((await service.ok('GET', `${path}?lines=true`)).connectivity, connectivity);
  t.match(await service.http('GET', `${path}?lines=some`), { status: 400, body: { error: { code: 106 } } });
});

t.test('devices are counted by state within the reach of the caller', async (t) => {
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  const { device, secret } = await service.device({ organizationId: organization.id });
  await service.create('/devices', 'device', { serialNumber: service.unique('SN'), organizationId: organization.id });
  await service.connect({ deviceId: device.id, secret });
  const path = `/api/v1/devices/counts?accountId=${service.accountId}`;
  const { counts } = await service.ok('GET', path, { token });
  t.equal(counts.total, 2);
  t.match(counts.states, [
    { provisioningState: 'defined', count: 1 },
    { provisioningState: 'activated', count: 1 },
  ]);
  const all = await service.ok('GET', path);
  t.ok(all.counts.total > counts.total);
});

t.end();
