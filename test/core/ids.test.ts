/** Every id that is made carries the slot of its account, no matter who makes it: API, jobs, CAs, emails, command line. */
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import Sqlite from 'better-sqlite3';
import fc from 'fast-check';
import { TOTP } from 'otpauth';
import type { Test } from 'tap';
import { newAccountId, newId, newTokenId, slotOf } from '../../src/core/ids.ts';
import { certificate } from '../broker/certificate.ts';
import { connectPacket, speak } from '../broker/raw.ts';
import { makeAuthority, makeCertificate } from '../support/certificates.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { provision, rowsOf, unitsOf } from '../support/jobs.ts';
import { Mailbox } from '../support/mailbox.ts';
import { type OpenIdProvider, startProvider } from '../support/oidc.ts';
import { part } from '../support/part.ts';
import { type Request, Service, startService } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const version7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const mailbox = new Mailbox();

/** The properties of an answer or a row that hold an id of an entity, with their values; of requests and clients aside. */
function* idsIn(value: unknown, name = ''): Generator<[string, string]> {
  if (typeof value === 'string') {
    if (/(^id|Ids?)$/.test(name) && !/^(request|connection|client)Id$/.test(name) && uuid.test(value))
      yield [name, value];
    return;
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [key, one] of Object.entries(value)) yield* idsIn(one, Array.isArray(value) ? name : key);
}

/** One account as its admin sees it; keeps every id of every answer. */
class Account extends Service {
  readonly ids = new Map<string, string>();

  constructor(at: Service, accountId: string, token: string) {
    super(at.server, at.directory, at.secrets);
    this.accountId = accountId;
    this.admin = token;
  }

  override async http<const M extends string, const P extends string>(method: M, path: P, request?: Request) {
    const answer = await super.http(method, path, request);
    this.keep(`${method} ${path}`, answer.body);
    return answer;
  }

  keep(where: string, value: unknown): void {
    for (const [name, id] of idsIn(value)) this.ids.set(id, `${name} of ${where}`);
  }

  /** Runs a command against the server or its directory; the JSON lines that it prints. */
  async slipway(...args: string[]) {
    const env = { SLIPWAY_URL: this.server.url, SLIPWAY_TOKEN: this.admin };
    const { code, stdout, stderr } = await runCommand(args, env);
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${stderr}`);
    const lines = stdout.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : []));
    this.keep(args.join(' '), lines);
    return lines;
  }

  onDirectory(...args: string[]) {
    return this.slipway(...args, '--account', this.accountId, '--data-dir', this.directory);
  }
}

t.test('an id is a UUIDv7 in the slot of its account, greater than every earlier one', (t) => {
  let last = '';
  fc.assert(
    fc.property(fc.uuid(), (accountId) => {
      const id = newId(accountId);
      const isGreater = id > last;
      last = id;
      return isGreater && version7.test(id) && slotOf(id) === slotOf(accountId);
    }),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(fc.uuid(), (accountId) => {
      const token = newTokenId(accountId);
      return uuid.test(token) && token.startsWith(slotOf(accountId));
    }),
  );
  t.end();
});

t.test('a new account gets a slot of its own while one is free, then one that the fewest have', (t) => {
  const inUse = new Map<string, number>();
  const open = (allowed?: string[]) => {
    const slot = slotOf(newAccountId(inUse, allowed));
    inUse.set(slot, (inUse.get(slot) ?? 0) + 1);
    return slot;
  };
  const allowed = Array.from({ length: 16 }, (_, n) => `00${n.toString(16)}`);
  t.strictSame(allowed.map(() => open(allowed)).sort(), allowed, 'of those that are allowed');
  open(['004']);
  t.strictSame(
    new Set(Array.from({ length: 15 }, () => open(allowed))),
    new Set(allowed.filter((slot) => slot !== '004')),
    'a slot that has two is chosen last',
  );
  for (let n = allowed.length; n < 4096; n += 1) open();
  t.equal(inUse.size, 4096, 'every slot is used before one is shared');
  t.throws(() => newAccountId(inUse, []), RangeError);
  t.end();
});

/** Does what makes ids in an account, by every way in. */
async function live(t: Test, at: Account, provider: OpenIdProvider, trusted: string): Promise<void> {
  const { accountId } = at;
  const slot = slotOf(accountId);
  const template = await at.template({ channels: ['data', { name: 'sure', streamBridgeDelivery: 2 }] });
  const organization = await at.organization();
  const { endUser, email, password, token } = await at.endUser(organization.id);
  const { userId } = endUser;
  const { device, secret } = await at.device({ deviceTemplateId: template.id, organizationId: organization.id });
  const url = 'http://127.0.0.1:9/';
  await at.create('/bridges', 'bridge', { name: 'Bridge', kind: 'webhook', url });

  // Messages, their lifecycle entries, and what is refused.
  const client = await at.connect({ deviceId: device.id, secret }, { clientId: `of ${device.id}`, clean: false });
  t.teardown(() => client.endAsync(true));
  await client.subscribeAsync(at.topic(device.id, 'data'), { qos: 1 });
  for (const channel of ['data', 'sure', '_log', 'no such channel'])
    await client.publishAsync(at.topic(device.id, channel), '1', { qos: 1 });
  await at.ok('POST', `/api/v1/devices/${device.id}/logs`, { body: { message: 'posted' } });
  await at.ok('GET', `/api/v1/devices/${device.id}/logs`);
  await at.ok('POST', '/api/v1/provisioning/verify', { body: { deviceId: device.id, timeoutSeconds: 0 } });
  await at.ok('GET', `/api/v1/devices/${device.id}/refusals`);

  // A batch, and jobs.
  const requests = ['one', 'two'].map((name) => ({
    method: 'POST',
    path: '/api/v1/organizations',
    payload: { accountId, name },
  }));
  await at.ok('POST', '/api/v1/batch', { body: { requests } });
  const job = await provision(at, [{ serialNumber: 'J1' }, { serialNumber: 'J2' }]);
  at.keep('results of a job', await unitsOf(at, job.id));
  at.keep('rows of a job', await rowsOf(at, job.id));
  const bulk = await at.http('POST', '/api/v1/devices/jobs', {
    body: { action: 'regenerate', filter: { serialNumber: 'J1' } },
  });
  t.equal(bulk.status, 202);
  const { associationCode } = await at.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  await at.ok('POST', '/api/v1/association/start-association-with-code', {
    body: { associationCode, organizationId: organization.id },
  });

  // Certificates, and a device that a CA creates: its id is the CN, and it alone carries no slot.
  const own = await makeCertificate();
  await at.create('/access/mqtt-certificates', 'mqttCertificate', {
    entityId: device.id,
    entityType: 'device',
    certificate: own.cert,
  });
  const authority = await makeAuthority({ subject: `CN=${accountId}` });
  const ca = await at.create('/access/certificate-authorities', 'certificateAuthority', {
    name: 'CA',
    certificate: authority.cert,
    createDevices: true,
    deviceTemplateId: template.id,
  });
  const proof = await makeCertificate({ subject: `CN=${ca.challenge}`, issuer: authority });
  await at.ok('POST', `/api/v1/access/certificate-authorities/${ca.id}/proof`, { body: { certificate: proof.cert } });
  const { cert, key } = await makeCertificate({ subject: `CN=${randomUUID()}`, issuer: authority });
  const port = at.mqttsPort;
  const tls = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, cert, key });
  t.teardown(() => tls.destroy());
  const raw = speak(tls);
  raw.send(connectPacket({ clientId: 'created by a CA' }));
  t.match(await raw.next(), { returnCode: 0 });

  // People, programs, and tokens that stand alone.
  const invited = `invited.${slot}@example.com`;
  const person = { organizationId: organization.id, createIdmUser: true, idmUserEmail: invited };
  await at.create('/end-users', 'endUser', person);
  const newAddress = `moved.${slot}@example.com`;
  const move = { userId, newEmailAddress: newAddress };
  await at.ok('POST', '/api/v1/profile/update-email-address', { body: move, token });
  const app = { name: 'App', kind: 'backEnd', revealResetToken: true };
  const { id: appId, appToken } = await at.create('/applications', 'application', app);
  const login = { appId, appToken, accountId };
  await at.ok('POST', '/api/v1/auth/login-application', { body: login, token: null });
  const registered = await at.ok('POST', '/api/v1/auth/create-user', {
    body: { accountId, emailAddress: `registered.${slot}@example.com`, password: 'a long enough secret' },
    token: null,
    headers: { accesstoken: appToken },
  });
  const { resetToken } = await at.ok('GET', `/api/v1/users/${registered.userId}/password-reset-token`, {
    token: null,
    headers: { accesstoken: appToken },
  });
  const totp = await at.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token });
  const code = new TOTP({ secret: totp.secret }).generate();
  await at.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token, body: { code } });
  const { mfaToken } = await at.loginAs(email, password, accountId);
  const { id: providerId } = await at.create('/identity-providers', 'identityProvider', {
    name: 'Provider',
    issuer: provider.issuer,
    clientId: 'slipway',
    clientSecret: provider.clientSecret,
  });
  const sent = await at.http('GET', `/api/v1/oauth2/authorize?providerId=${providerId}`, {
    token: null,
  });
  const state = new URL(sent.headers.get('location') ?? '').searchParams.get('state');

  // The command line.
  await at.onDirectory('admin', 'create', '--email', `admin.${slot}@example.com`);
  const [made] = await at.onDirectory('app', 'create', '--name', 'Made', '--kind', 'backEnd');
  const out = join(temporaryDirectory(t), 'out');
  const place = ['--out', out, '--ca', trusted, '--broker', 'mqtt://broker.example:1883'];
  await at.slipway('provision', 'one', '--serial', 'C1', '--format', 'env', ...place);

  const tokens = { appToken, made: made.appToken, resetToken, mfaToken, state };
  for (const [name, one] of Object.entries({
    ...tokens,
    invitation: mailbox.tokenTo(invited),
    address: mailbox.tokenTo(newAddress),
  }))
    t.equal(String(one).slice(0, 3), slot, `a token begins with the slot of its account: ${name}`);
  await at.ok('GET', `/api/v1/devices?accountId=${accountId}&pageSize=100`);
  await at.ok('GET', `/api/v1/audit?accountId=${accountId}&pageSize=1000`);
}

/** Every id of every row of a file, and the account of the row where it says so. */
function* idsOfRows(
  path: string,
): Generator<{ table: string; name: string; id: string; accountId: string | undefined }> {
  const file = new Sqlite(path, { readonly: true });
  const tables = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
  for (const table of tables.pluck().all() as string[])
    for (const row of file.prepare(`SELECT * FROM "${table}"`).iterate() as Iterable<Record<string, string>>)
      for (const [name, id] of idsIn(row))
        yield { table, name, id, accountId: table === 'accounts' ? row.id : row.accountId };
  file.close();
}

t.test('API, jobs, CAs, emails and the command line make ids in the slot of the account, and no others', async (t) => {
  const tls = certificate(t);
  const env = { ...tls, SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };
  const service = await startService(t, { mail: mailbox, env });
  const first = new Account(service, service.accountId, service.admin);
  const create = ['account', 'create', '--name', 'Second', '--admin-email', 'boss@example.com'];
  const [made] = await first.slipway(...create, '--data-dir', service.directory);
  first.ids.clear();
  const { accountId, adminPassword } = made;
  const second = new Account(
    service,
    accountId,
    (await service.loginAs('boss@example.com', adminPassword, accountId)).jwt,
  );
  t.not(slotOf(second.accountId), slotOf(first.accountId), 'an account has a slot of its own');

  const provider = await startProvider(t, service);
  for (const at of [first, second]) await live(t, at, provider, tls.SLIPWAY_TLS_CERT ?? '');
  const event = `"event" = 'deviceCreatedByCertificate'`;
  const devices = storedRows(service, `SELECT "targetId" FROM "auditRecords" WHERE ${event}`);
  const created = new Set(devices.map(({ targetId }) => targetId));
  t.equal(created.size, 2);
  for (const at of [first, second]) {
    t.ok(at.ids.size > 40, `${at.ids.size} ids in answers`);
    for (const [id, where] of at.ids)
      if (!created.has(id) && slotOf(id) !== slotOf(at.accountId)) t.fail(`${where} is ${id}, of another slot`);
  }
  await service.close();
  const seen = new Set<string>();
  const slots = [first, second].map((one) => slotOf(one.accountId));
  for (const name of ['registry.db', 'messages.db'])
    for (const { table, name: column, id, accountId } of idsOfRows(join(service.directory, name))) {
      seen.add(table);
      if (created.has(id)) continue;
      const expected = accountId === undefined ? slots : [slotOf(accountId)];
      if (!expected.includes(slotOf(id))) t.fail(`${column} of a row of ${table} is ${id}, of another slot`);
    }
  const filled = `accounts accountUsers applications auditRecords bridges certificateAuthorities certificates
    channelTemplates credentials deviceTemplates devices endUserTemplates endUsers identities identityProviders jobRows
    jobs logs mailedTokens organizationTemplates organizations outbox series sessions verifications`;
  for (const table of filled.split(/\s+/)) t.ok(seen.has(table), `there are ids in ${table}`);
});

t.end();
