/** What programs written for platforms of this kind expect of HTTP itself, whatever the resource. */
import { makeCertificate } from '../support/certificates.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Entity, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

let service: Service;
let appToken: string;
t.before(async () => {
  service = await sharedService(t);
  appToken = (await service.create('/applications', 'application', { name: 'App', kind: 'endUserApp' })).appToken;
  service.secrets.add(appToken);
});

const preflight = (path: string, method: string, headers: string) =>
  fetch(service.server.url + path, {
    method: 'OPTIONS',
    headers: {
      origin: 'https://app.example.com',
      'access-control-request-method': method,
      'access-control-request-headers': headers,
    },
  });

t.test('a page of another origin may read, write and delete with the headers that clients send', async (t) => {
  const sent = [
    'authorization',
    'content-type',
    'etag',
    'accesstoken',
    'idempotency-key',
    'platform-access-token',
    'platform-csrf-token',
    'platform-mfa-token',
  ];
  for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'DELETE']) {
    const { status, headers } = await preflight('/api/v1/devices/1', method, sent.join(','));
    t.equal(status, 204);
    t.equal(headers.get('access-control-allow-origin'), '*');
    t.equal(headers.get('access-control-allow-methods'), 'GET, HEAD, POST, PUT, DELETE');
    const allowed = headers.get('access-control-allow-headers')?.split(', ') ?? [];
    t.same(
      sent.filter((name) => !allowed.includes(name)),
      [],
      'every header is allowed',
    );
  }
  const answer = await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`, {
    headers: { origin: 'https://app.example.com' },
  });
  t.match(answer.headers.get('access-control-expose-headers'), /etag.*platform-access-token/, 'as before');
});

t.test('a slash at the end is the same URL', async (t) => {
  const { accountId } = service;
  const template = await service.template({ channels: ['data'] });
  const created = await service.http('POST', '/api/v1/devices/', {
    body: { accountId, serialNumber: 'slash', deviceTemplateId: template.id },
  });
  t.equal(created.status, 200);
  const { id } = created.body.device;
  const topic = service.topic(id, 'data');
  for (const path of [
    `/api/v1/devices/${id}`,
    `/api/v1/devices?accountId=${accountId}&serialNumber=slash`,
    `/api/v1/devices/${id}/logs`,
    `/api/v4/data/${topic}?pageSize=1`,
    `/api/v4/data/${topic}/latest`,
    '/health/live',
    '/openapi.json',
  ]) {
    const slashed = path.includes('?') ? path.replace('?', '/?') : `${path}/`;
    const [plain, same] = [await service.http('GET', path), await service.http('GET', slashed)];
    t.equal(same.status, 200, slashed);
    if (!path.startsWith('/api/v4/')) t.equal(same.text, plain.text, slashed);
  }
  t.equal((await fetch(`${service.server.url}/docs`)).status, 200);
  t.equal((await fetch(`${service.server.url}/docs/`)).status, 200);
  t.equal((await service.http('POST', `/api/v4/data/${topic}/`, { body: { x: 1 } })).body.count, 1);
  t.match((await service.http('GET', `/api/v1/devices/${id}//`)).status, 404, 'one slash, not more');

  const requests = [{ method: 'GET', path: `/api/v1/devices/${id}/` }];
  t.match(await service.ok('POST', '/api/v1/batch/', { body: { requests } }), [{ device: { id } }], 'in a batch too');

  const post = (path: string) =>
    service.http('POST', path, {
      body: { accountId, serialNumber: 'once' },
      headers: { 'idempotency-key': 'with and without' },
    });
  t.equal((await post('/api/v1/devices/')).body.device.id, (await post('/api/v1/devices')).body.device.id);

  const { text } = await service.http('GET', '/metrics', { token: null });
  t.notMatch(text, /route="[^"]+\/"/, 'metrics know one route');
});

t.test('a new credential answers with the version of what it belongs to, and the next PUT needs no GET', async (t) => {
  const { accountId } = service;
  const organization = await service.organization();
  const { id } = await service.create('/devices', 'device', { serialNumber: 'first' });
  const put = async (etag: string) => {
    const answer = await service.http('PUT', `/api/v1/devices/${id}`, {
      body: { organizationId: organization.id, serialNumber: service.unique('SN') },
      headers: { etag },
    });
    t.equal(answer.status, 200);
  };
  const demandVersion = async (answer: { headers: Headers; status: number }, entityVersion: string) => {
    t.equal(answer.status, 200);
    const { device } = await service.ok('GET', `/api/v1/devices/${id}`);
    t.equal(entityVersion, device.version);
    t.equal(answer.headers.get('etag'), `"${device.version}"`);
    await put(entityVersion);
  };
  const certificate = await service.http('POST', '/api/v1/access/mqtt-certificates', {
    body: { accountId, entityId: id, entityType: 'device', certificate: (await makeCertificate()).cert },
  });
  await demandVersion(certificate, certificate.body.mqttCertificate.entityVersion);

  const { id: other } = await service.create('/devices', 'device', { serialNumber: 'second' });
  const body = { accountId, entityId: other, entityType: 'device' };
  const made = await service.http('POST', '/api/v1/access/mqtt-credentials', { body });
  const activated = (await service.ok('GET', `/api/v1/devices/${other}`)).device;
  t.equal(activated.provisioningState, 'activated');
  t.equal(made.body.mqttCredential.entityVersion, activated.version);
  t.equal(made.headers.get('etag'), `"${activated.version}"`);

  const credential = await service.http('POST', '/api/v1/access/mqtt-credentials', {
    body: { ...body, entityId: id },
  });
  await demandVersion(credential, credential.body.mqttCredential.entityVersion);
  const code = await service.http('POST', '/api/v1/association/create-association-code', { body: { deviceId: id } });
  await demandVersion(code, code.body.entityVersion);
  const associated = await service.http('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode: code.body.associationCode, organizationId: organization.id },
  });
  await demandVersion(associated, associated.body.entityVersion);
  const { version } = (await service.ok('GET', `/api/v1/devices/${id}`)).device;
  const replaced = await service.http('POST', `/api/v1/devices/${id}/replace`, {
    body: { serialNumber: 'third' },
    headers: { etag: version },
  });
  t.equal(replaced.body.device.version, replaced.body.mqttCredential.entityVersion);
  await demandVersion(replaced, replaced.body.mqttCredential.entityVersion);
});

t.test('Idempotency-Key: a registration that is sent twice makes one person and answers the same', async (t) => {
  const register = (emailAddress: string, key: string) =>
    service.http('POST', '/api/v1/auth/create-user', {
      token: null,
      body: { accountId: service.accountId, emailAddress, password: 'a long enough secret' },
      headers: { accesstoken: appToken, 'idempotency-key': key },
    });
  const [first, second] = await Promise.all([register('once@example.com', 'a'), register('once@example.com', 'a')]);
  t.equal(first.status, 200);
  t.same(second.body, first.body);
  t.equal((await register('once@example.com', 'a')).headers.get('idempotent-replayed'), 'true');
  t.equal((await register('other@example.com', 'a')).status, 400, 'the key is for one request');
  const again = await register('once@example.com', 'b');
  t.match(again, { status: 400, body: { message: 'The user already exists.' } });

  // The process ends between the commit and the answer.
  const lost = await register('lost@example.com', 'c');
  const rows = storedRows(service, 'SELECT * FROM "idempotentAnswers"');
  t.notMatch(JSON.stringify(rows), /once@example|lost@example|long enough/, 'what is kept is sealed');
  t.same((await register('lost@example.com', 'c')).body, lost.body);
});

t.test('Idempotency-Key: the set-up of a second factor that is sent twice has one secret', async (t) => {
  const { endUser, token } = await service.endUser((await service.organization()).id);
  const path = `/api/v1/users/${endUser.userId}/mfa/totp`;
  const enrol = (key: string) =>
    service.http('POST', path, { token, headers: { 'idempotency-key': key } }).then((answer) => {
      service.secrets.add(answer.body.secret);
      return answer;
    });
  const first = await enrol('mfa');
  const again = await enrol('mfa');
  t.equal(first.status, 200);
  t.same(again.body, first.body);
  t.equal(again.headers.get('idempotent-replayed'), 'true');
  t.not((await enrol('another')).body.secret, first.body.secret);
});

t.test('the names of organizations and end-users have one character at least', async (t) => {
  const organization = await service.organization({ name: 'X' });
  t.equal(organization.name, 'X');
  const { endUser } = await service.endUser(organization.id, { name: 'Y' });
  t.equal(endUser.name, 'Y');
  const put = (path: string, entity: Entity, body: object) =>
    service.http('PUT', `/api/v1${path}/${entity.id}`, { body, headers: { etag: entity.version } });
  t.match(await put('/end-users', endUser, { organizationId: organization.id, name: 'Z' }), {
    status: 200,
    body: { endUser: { name: 'Z' } },
  });
  t.match(await put('/organizations', organization, { name: '' }), { status: 400 });
  const field = { fieldType: 'name', name: 'nick', endUserTemplateId: endUser.endUserTemplateId };
  await service.create('/end-users/custom-fields', 'endUserField', field);
  const { endUser: now } = await service.ok('GET', `/api/v1/end-users/${endUser.id}`);
  t.match(
    await put('/end-users', now, { organizationId: organization.id, nick: 'Al' }),
    { status: 400, body: { error: { details: [{ path: 'nick' }] } } },
    'a custom field of the type name has 5 to 100',
  );
});

t.test('the message of an identity error says what is wrong, because apps show it', async (t) => {
  const { accountId } = service;
  const login = (body: object) => service.http('POST', '/api/v1/auth/login-user', { token: null, body });
  const failed = await login({ accountId, emailAddress: 'nobody@example.com', password: 'wrong' });
  t.match(failed, {
    status: 401,
    body: {
      statusCode: 401,
      error: 'Unauthorized',
      message: 'Unauthorized',
      attributes: { errorCode: 'InvalidCredentialsError', error: /wrong/ },
    },
  });
  const incomplete = await login({ accountId });
  t.equal(incomplete.body.message, 'emailAddress is required; password is required');
  const register = (body: object) =>
    service.http('POST', '/api/v1/auth/create-user', {
      token: null,
      headers: { accesstoken: appToken },
      body: { accountId, ...body },
    });
  const person = { emailAddress: 'taken@example.com', password: 'a long enough secret' };
  t.equal((await register(person)).status, 200);
  t.equal((await register(person)).body.message, 'The user already exists.');
  const weak = await register({ emailAddress: 'weak@example.com', password: 'short' });
  t.equal(weak.body.message, 'The password is not valid. It must have 8 to 256 characters.');
  const repeated = await register({ emailAddress: 'weak@example.com', password: 'aaaaaaaaab' });
  t.match(repeated.body.message, /^The password is not valid\. It must not repeat a character/);
});

const send = (path: string, values: Record<string, string> | string, request: object = {}) =>
  service.http('POST', path, {
    body: new URLSearchParams(values).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    ...request,
  });

t.test('a form is understood where JSON would be', async (t) => {
  const login = { emailAddress: adminEmail, password: adminPassword, accountId: service.accountId };
  t.equal((await send('/api/v1/auth/login-user', login, { token: null })).status, 200);
  const organization = await service.organization();
  const { accountId } = service;
  const endUser = {
    accountId,
    organizationId: organization.id,
    createIdmUser: 'true',
    idmUserEmail: 'form@example.com',
    idmUserPassword: 'a password in a form',
  };
  t.match(await send('/api/v1/end-users', endUser), {
    status: 200,
    body: { endUser: { organizationId: organization.id } },
  });
  const template = await service.template();
  await service.create('/devices/custom-fields', 'deviceField', {
    deviceTemplateId: template.id,
    name: 'size',
    fieldType: 'int',
  });
  const device = await send('/api/v1/devices', {
    accountId,
    serialNumber: '0007',
    latitude: '5',
    organizationId: 'null',
    size: '12',
    name: 'null',
    deviceTemplateId: template.id,
  });
  t.match(device, {
    status: 200,
    body: { device: { serialNumber: '0007', latitude: '5', organizationId: null, size: 12, name: null } },
  });
  const channel = {
    accountId,
    entityId: template.id,
    entityType: 'deviceTemplate',
    name: 'c',
    streamBridgeDelivery: '2',
  };
  t.match(await send('/api/v1/channels/templates', channel), {
    status: 200,
    body: { channelTemplate: { streamBridgeDelivery: 2 } },
  });
  t.match(await send('/api/v1/channels/templates', { ...channel, name: 'd', streamBridgeDelivery: 'two' }), {
    status: 400,
    body: { error: { code: 106 } },
  });
  t.match(await send('/api/v1/devices', { accountId, serialNumber: 'null' }), {
    status: 200,
    body: { device: { serialNumber: 'null' } },
  });
  t.match(await send('/api/v1/devices', '__proto__=x&serialNumber=1'), { status: 400 });
  t.match(await send('/api/v1/devices', ''), { status: 400 });
});

t.test('a form has at most 1,000 fields', async (t) => {
  const { accountId } = service;
  const fields = (count: number) => `&${Array.from({ length: count }, (_, at) => `f${at}=`).join('&')}`;
  const named = (name: string) => new URLSearchParams({ accountId, name }).toString();
  t.equal((await send('/api/v1/organizations', named('Full') + fields(998))).status, 200);
  t.match(await send('/api/v1/organizations', named('Too full') + fields(999)), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'body', message: 'has more than 1000 fields' }] } },
  });
});

t.test('a text that cannot be stored is named by its place, in lists and below', async (t) => {
  const place = async (more: object) => {
    const body = { accountId: service.accountId, name: 'Places', ...more };
    const { status, body: answer } = await service.http('POST', '/api/v1/organizations', { body });
    return status === 400 ? answer.error.details[0].path : status;
  };
  t.equal(await place({ a: [1, { b: ['\0'] }] }), 'a.1.b.0');
  t.equal(await place({ a: [{ '\ud800': 1 }] }), 'a.0.\ud800');
  t.equal(await place({ a: JSON.parse(`${'['.repeat(32)}${']'.repeat(32)}`) }), 200);
  t.match(await place({ a: JSON.parse(`${'['.repeat(33)}${']'.repeat(33)}`) }), /^a(\.0)+$/);
});

t.end();
