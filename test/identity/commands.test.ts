/** The commands that work on the data directory, while a server is running. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Test } from 'tap';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { adminEmail, closed, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

async function slipway(service: Service, ...args: string[]) {
  const { code, stdout, stderr } = await runCommand([...args, '--data-dir', service.directory]);
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${stderr}`);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}

/** The server looks for changes every half second; nobody tells when it has. */
async function eventually(t: Test, what: string, check: () => Promise<boolean>): Promise<void> {
  for (let waited = 0; waited <= 20_000; waited += 50) {
    if (await check()) {
      t.pass(what);
      return;
    }
    await delay(50);
  }
  t.fail(what);
}

const devices = (service: Service, token: string, accountId = service.accountId) =>
  service.http('GET', `/api/v1/devices?accountId=${accountId}`, { token });

/** The service of the tests that need nothing of their own in it. */
let shared: Service;
t.before(async () => {
  shared = await startService(t);
});

t.test('accounts and admins are made and listed, and work at once', async (t) => {
  const service = await startService(t);
  const [made] = await slipway(service, 'account', 'create', '--name', 'Second', '--admin-email', 'boss@example.com');
  const list = await slipway(service, 'account', 'list');
  t.match(list, [
    { accountId: service.accountId, name: 'My company', created: /Z$/ },
    { accountId: made.accountId, name: 'Second' },
  ]);
  const account = ['--account', made.accountId];
  const [admin] = await slipway(service, 'admin', 'create', ...account, '--email', 'deputy@example.com');
  const { jwt } = await service.loginAs('deputy@example.com', admin.adminPassword, made.accountId);
  t.equal((await devices(service, jwt, made.accountId)).status, 200);
  const { auditRecords } = await service.ok(
    'GET',
    `/api/v1/audit?accountId=${made.accountId}&event=accountUserCreated`,
    {
      token: jwt,
    },
  );
  t.match(auditRecords.results, [{ actorId: null, details: { by: 'command line' } }]);
});

t.test('the operator sees what every account stores; an account sees only itself', async (t) => {
  const env = { SLIPWAY_MESSAGES_MAX_BYTES: '104857600' };
  const service = await startService(t);
  const template = await service.template({ channels: ['data'] });
  const device = await service.create('/devices', 'device', { serialNumber: 'S', deviceTemplateId: template.id });
  await service.create('/devices', 'device', { serialNumber: 'T', deviceTemplateId: template.id });
  await slipway(service, 'account', 'create', '--name', 'Second', '--admin-email', 'boss@example.com');
  for (let rows = 0; rows < 3; rows += 1)
    await service.ok('POST', `/api/v4/data/${service.topic(device.id, 'data')}`, {
      body: ',t,1,some text',
      headers: { 'content-type': 'text/csv' },
    });
  await service.ok('POST', `/api/v1/devices/${device.id}/logs`, { body: { message: 'a log entry' } });

  const { code, stdout, stderr } = await runCommand(['usage', '--data-dir', service.directory], env);
  t.equal(code, 0, stderr);
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const { usage } = await service.ok('GET', '/api/v1/usage');
  t.ok(usage.messagesBytes > 0);
  t.strictSame(lines[0], {
    accountId: service.accountId,
    name: 'My company',
    messagesBytes: usage.messagesBytes,
    share: 1,
    shareBytes: 104857600,
    points: 3,
    logs: 1,
    devices: 2,
  });
  t.match(lines[1], { name: 'Second', messagesBytes: 0, share: 0, points: 0, logs: 0, devices: 0 });
  t.equal(lines.length, 2);
  t.notOk(JSON.stringify(usage).includes('Second'));

  await service.close();
  const [stopped] = await slipway(service, 'usage');
  t.match(stopped, { points: 3, shareBytes: null }, 'also without a server and without a cap');
});

t.test('an admin who is locked out gets a new password; the former sessions end, MQTT too', async (t) => {
  const service = await startService(t);
  const client = await service.connect({ jwt: service.admin });
  const ended = closed(client);
  t.match(await slipway(service, 'admin', 'list'), [{ adminEmail }]);
  const [reset] = await slipway(service, 'admin', 'reset-password', '--email', adminEmail);
  t.equal((await devices(service, service.admin)).status, 401, 'at once');
  await ended;
  const { jwt } = await service.loginAs(adminEmail, reset.adminPassword);
  t.equal((await devices(service, jwt)).status, 200);
});

t.test('an application is made and revoked; a connection of it ends', async (t) => {
  const service = shared;
  const [made] = await slipway(service, 'app', 'create', '--name', 'Back', '--kind', 'backEnd');
  t.match(await slipway(service, 'app', 'list'), [{ appId: made.appId, name: 'Back', kind: 'backEnd' }]);
  const login = () => service.http('POST', '/api/v1/auth/login-application', { token: null, body: made });
  const { jwt } = (await login()).body;
  t.equal((await devices(service, jwt)).status, 200);
  const client = await service.connect({ jwt });
  const ended = closed(client);
  await slipway(service, 'app', 'revoke', '--id', made.appId);
  t.equal((await devices(service, jwt)).status, 401);
  t.equal((await login()).status, 401);
  await ended;
});

t.test('a station is made with its limits, and listed with them', async (t) => {
  const service = shared;
  const { id } = await service.template();
  const expiresAt = '2999-01-01T00:00:00.000Z';
  const limits = ['--device-template', id, '--max-devices', '2', '--expires-at', expiresAt];
  const [made] = await slipway(service, 'app', 'create', '--name', 'Line', '--kind', 'station', ...limits);
  const { jwt } = (await service.http('POST', '/api/v1/auth/login-application', { token: null, body: made })).body;
  await service.create('/devices', 'device', { serialNumber: 'by a station' }, jwt);
  const [listed] = await slipway(service, 'app', 'list');
  t.match(listed, { appId: made.appId, kind: 'station', maxDevices: 2, madeDevices: 1, expiresAt });
});

t.test('keys rotate: the new one signs, the old one verifies, unless it is ended', async (t) => {
  const service = await startService(t);
  const kids = async (): Promise<string[]> =>
    (await service.ok('GET', '/.well-known/jwks.json', { token: null })).keys.map(({ kid }) => String(kid));
  const login = async () => (await service.loginAs(adminEmail, 'correct horse battery')).jwt as string;
  const kidOf = (jwt: string) => JSON.parse(Buffer.from(jwt.split('.')[0] ?? '', 'base64url').toString()).kid;
  const [old] = await kids();
  const [{ kid }] = await slipway(service, 'keys', 'rotate');
  const { auditRecords } = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&event=keysRotated`);
  t.match(auditRecords.results, [{ actorId: null, details: { kid, oldEnded: false } }]);
  await eventually(t, 'the server has noticed', async () => (await kids()).includes(kid));
  t.strictSame(await kids(), [old, kid]);
  t.equal(kidOf(await login()), kid);
  t.equal((await devices(service, service.admin)).status, 200, 'a token of the old key');
  const [last] = await slipway(service, 'keys', 'rotate', '--end-old');
  await eventually(t, 'the old keys are gone', async () => (await kids()).length === 1);
  t.strictSame(await kids(), [last.kid]);
  t.equal((await devices(service, service.admin)).status, 401);
  t.equal((await devices(service, await login())).status, 200);
  t.equal(readdirSync(join(service.directory, 'keys')).filter((file) => file.endsWith('.json')).length, 1);
});

t.test('a directory without a registry is refused and stays as it was, except a first account', async (t) => {
  const directory = join(temporaryDirectory(t), 'mistyped');
  for (const args of [
    'account list',
    'keys rotate',
    'admin reset-password --email a@example.com',
    'app list',
    'usage',
  ]) {
    const { code, stderr } = await runCommand([...args.split(' '), '--data-dir', directory]);
    t.equal(code, 2, args);
    t.match(stderr, /There is no registry in .*mistyped/, args);
  }
  t.notOk(existsSync(directory));
  const made = ['account', 'create', '--name', 'First', '--admin-email', 'a@example.com', '--data-dir', directory];
  t.equal((await runCommand(made)).code, 0);
});

t.test('what cannot be done is said in a sentence, with exit code 2', async (t) => {
  const service = shared;
  const run = (...args: string[]) => runCommand([...args, '--data-dir', service.directory]);
  for (const [args, sentence] of [
    ['admin create', /--email is missing/],
    ['admin create --email nobody', /email must be an email address/],
    ['admin create --email a@example.com --password short', /password must have 8 to 256 characters/],
    ['admin create --email a@example.com --account x', /There is no account x/],
    ['admin reset-password --email a@example.com', /There is no admin a@example.com/],
    ['app create --name x --kind toaster', /--kind must be one of endUserApp, backEnd, station/],
    ['app create --name x --kind station', /deviceTemplateId is required for a station/],
    ['app create --name x --kind station --max-devices many', /--max-devices must be a number/],
    ['app revoke --id x', /does not exist/],
    ['keys turn', /There is no command keys turn/],
    ['account list --nothing', /nothing/],
  ] as const) {
    const { code, stderr } = await run(...args.split(' '));
    t.equal(code, 2, args);
    t.match(stderr, sentence, args);
  }
});

t.end();
