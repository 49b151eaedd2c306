import { purgeNow } from '../support/clockwork.ts';
import { changeStored } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
});

const path = '/api/v1/identity-providers';
const body = (more: object = {}) => ({
  accountId: service.accountId,
  name: service.unique('Provider'),
  issuer: 'https://id.example.com',
  clientId: 'slipway',
  ...more,
});
const create = async (more: object = {}) => {
  const { issuerProblem, ...made } = (await service.ok('POST', path, { body: body(more) })).identityProvider;
  return made;
};
const put = (id: string, version: string, more: object) =>
  service.http('PUT', `${path}/${id}`, { headers: { etag: version }, body: more });

t.test('a provider is made, read, listed, changed and deleted', async (t) => {
  const made = await create({ clientSecret: 'keep this to yourself', redirectUris: ['https://app.example.com/in'] });
  t.match(made, { scope: 'openid email profile', clientSecretSet: true, version: '1' });
  t.strictSame((await service.ok('GET', `${path}/${made.id}`)).identityProvider, made);
  const { results } = (await service.ok('GET', `${path}?accountId=${service.accountId}&name=${made.name}`))
    .identityProviders;
  t.strictSame(results, [made]);

  const changed = await put(made.id, made.version, { ...made, name: 'Renamed', clientSecretSet: false });
  t.match(changed, { status: 200, body: { identityProvider: { name: 'Renamed', clientSecretSet: true } } });
  t.match(changed.headers.get('platform-ignored-properties'), /clientSecretSet/);
  t.match(await put(made.id, made.version, { name: 'Late' }), { status: 412, body: { error: { code: 108 } } });
  const { version } = changed.body.identityProvider;
  const gone = await service.http('DELETE', `${path}/${made.id}`, { headers: { etag: version } });
  t.match(gone, { status: 200, body: { identityProvider: { deleted: String, clientSecretSet: false } } });
  t.match(await service.http('GET', `${path}/${made.id}`), { status: 410, body: { error: { code: 107 } } });
  await create({ name: 'Renamed' });

  const all = `/api/v1/audit?accountId=${service.accountId}&event=identityProviderChanged&targetId=${made.id}`;
  const records = (await service.ok('GET', all)).auditRecords.results.map((one) => one.details.change);
  t.strictSame(records, ['deleted', 'updated', 'created']);
});

t.test('two live providers of an account have different names', async (t) => {
  const { name } = await create();
  const second = await create();
  t.match(await service.http('POST', path, { body: body({ name }) }), { status: 400, body: { error: { code: 106 } } });
  t.match(await put(second.id, second.version, { name }), { status: 400, body: { error: { code: 106 } } });
});

t.test('an issuer is an address with https, or with http on this machine', async (t) => {
  for (const issuer of [
    'https://id.example.com/tenant',
    'http://127.0.0.1:9999',
    'http://localhost:1',
    'http://[::1]:1',
  ])
    t.equal((await create({ issuer })).issuer, issuer);
  for (const issuer of [
    'http://id.example.com',
    'http://127.0.0.1.example.com',
    'http://localhost.example.com',
    'https://id.example.com?tenant=1',
    'https://id.example.com#one',
    'https://me:secret@id.example.com',
    'https:id.example.com',
    'ftp://id.example.com',
    'file:///etc/passwd',
    'id.example.com',
    '',
  ]) {
    const refused = await service.http('POST', path, { body: body({ issuer }) });
    t.match(refused, { status: 400, body: { error: { code: 106, details: [{ path: 'issuer' }] } } }, issuer);
  }
});

t.test('browsers are sent to https, to this machine, or to an app, and to nothing that runs or reads', async (t) => {
  const fine = [
    'https://app.example.com/in?a=b',
    'http://localhost:5173/in',
    'http://127.0.0.1/',
    'com.example.app:/in',
    'com.example.app://in',
  ];
  t.strictSame((await create({ redirectUris: fine })).redirectUris, fine);
  for (const uri of [
    'javascript:alert(1)',
    'JavaScript:alert(1)',
    'java\nscript:alert(1)',
    ' javascript:alert(1)',
    'data:text/html,hello',
    'file:///etc/passwd',
    'vbscript:x',
    'myapp://in',
    'feed:https://app.example.com/in',
    'ms-msdt:/id',
    'search-ms:query=in',
    'blob:https://app.example.com/1',
    'http://app.example.com/in',
    'https://app.example.com/in#token',
    'https:/app.example.com',
    'https:app.example.com',
    'https:\\\\app.example.com',
    'https://me@app.example.com/',
    'https://app.example.com/\r\nset-cookie: a=b',
    '//app.example.com/in',
    '/in',
  ]) {
    const refused = await service.http('POST', path, { body: body({ redirectUris: [fine[0], uri] }) });
    t.match(refused, { status: 400, body: { error: { code: 106, details: [{ path: 'redirectUris' }] } } }, uri);
  }
});

t.test('the scope holds openid', async (t) => {
  t.equal((await create({ scope: 'email openid' })).scope, 'email openid');
  for (const scope of ['email', 'openidx', '', 'openid  email', 'openid\temail'])
    t.match(await service.http('POST', path, { body: body({ scope }) }), { status: 400 }, JSON.stringify(scope));
});

t.test('a secret never follows to another issuer', async (t) => {
  const made = await create({ clientSecret: 'for this issuer alone' });
  const issuer = 'https://elsewhere.example.com';
  const refused = await put(made.id, made.version, { issuer });
  t.match(refused, { status: 400, body: { error: { code: 106, details: [{ path: 'clientSecret' }] } } });
  t.strictSame((await service.ok('GET', `${path}/${made.id}`)).identityProvider, made, 'nothing has changed');
  const moved = (await put(made.id, made.version, { issuer, clientSecret: null })).body.identityProvider;
  t.match(moved, { issuer, clientSecretSet: false });
  const back = await put(made.id, moved.version, { issuer: made.issuer, clientSecret: 'another' });
  t.match(back, { status: 200, body: { identityProvider: { clientSecretSet: true } } });
});

t.test('a deletion that was interrupted is completed later', async (t) => {
  const { id, version } = await create();
  await service.ok('DELETE', `${path}/${id}`, { headers: { etag: version } });
  const { id: organizationId } = await service.organization();
  const { endUser } = await service.endUser(organizationId);
  const left = 'UPDATE "endUsers" SET "identityProviderId" = ? WHERE "id" = ?';
  await changeStored(service, left, [id, endUser.id]);
  t.equal(countStored(service, '"endUsers"', '"identityProviderId" = ?', [id]), 1);
  await purgeNow(service);
  t.equal(countStored(service, '"endUsers"', '"identityProviderId" = ?', [id]), 0);
});

t.end();
