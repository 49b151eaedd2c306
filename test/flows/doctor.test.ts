/** `slipway doctor`: each trouble is found by itself, while a server is running too. */
import { X509Certificate } from 'node:crypto';
import { chmodSync, mkdirSync, openSync, readdirSync, utimesSync, writeFileSync, writeSync } from 'node:fs';
import { createServer as createSecureServer } from 'node:https';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { lookAtClock } from '../../cli/doctor/clock.ts';
import { lookAtDisk } from '../../cli/doctor/disk.ts';
import type { Finding } from '../../cli/doctor/finding.ts';
import { lookAtServer } from '../../cli/doctor/server.ts';
import { lookAtTls } from '../../cli/doctor/tls.ts';
import { migrate, registryMigrations } from '../../db/migrations/index.ts';
import { messageMigrations } from '../../db/migrations/messages.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { readConfig } from '../../src/core/config.ts';
import { certificate } from '../broker/certificate.ts';
import { claim, newGroup } from '../enrollment/devices.ts';
import { Extension, makeAuthority, makeCertificate } from '../support/certificates.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { joinWith, openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;

async function doctor(env: Record<string, string>): Promise<{ code: number; result: string; found: Finding[] }> {
  const { code, stdout, stderr } = await runCommand(['doctor', '--json'], env);
  if (stderr) throw new Error(stderr);
  const { result, findings } = JSON.parse(stdout);
  return { code, result, found: findings };
}

/** What is wrong of one check. */
const wrong = (found: Finding[], check: Finding['check']) =>
  found.flatMap((one) => (one.check === check && one.level !== 'ok' ? [`${one.level} ${one.message}`] : []));

/** The rest of a certificate that no file holds. */
const unread = { ca: undefined, files: [], keyFile: '', read: () => ({ cert: '', ca: undefined, chain: '', key: '' }) };

t.test('a service that is well is found well, while it runs', async (t) => {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const env = {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: new URL(service.server.url).port,
    SLIPWAY_MQTT_PORT: `${service.server.mqttPort}`,
  };
  // On a machine that others use, the event loop may really be blocked for a while.
  const well = await until(
    () => doctor(env),
    ({ found }) => wrong(found, 'server').length === 0,
  );
  t.equal(well.code, 0, JSON.stringify(well.found));
  t.equal(well.result, 'ok');
  t.same(
    [...new Set(well.found.map(({ check }) => check))].sort(),
    [
      'certificates',
      'clock',
      'configuration',
      'disk',
      'enrollment',
      'files',
      'firmware',
      'integrity',
      'ports',
      'schema',
      'server',
      'tls',
      'wal',
    ],
    'everything was looked at',
  );
  t.match(well.found.find(({ check }) => check === 'server')?.message, /answers within \d+ ms/);
  t.equal((await service.http('GET', `/api/v1/devices?accountId=${service.accountId}`)).status, 200);

  await service.close();
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => taken.once('listening', resolve));
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const [key] = readdirSync(join(directory, 'keys'));
  chmodSync(join(directory, 'keys', `${key}`), 0o644);
  chmodSync(directory, 0o755);
  // In the middle of the file, where there are pages of the schema and of tables.
  const messages = openSync(join(directory, 'messages.db'), 'r+');
  for (let page = 2; page < 12; page += 1) writeSync(messages, Buffer.alloc(64, 0xff), 0, 64, page * 4096);
  const ill = await doctor({
    ...env,
    SLIPWAY_MQTT_PORT: `${port}`,
    SLIPWAY_HTTPPORT: '80',
    SLIPWAY_HOST: '127.0.0.1',
    SLIPWAY_ADMIN_PASSWORD: 'a long enough secret',
    SLIPWAY_PUBLIC_URL: 'http://things.example.com',
  });
  t.equal(ill.code, 2);
  t.match(wrong(ill.found, 'ports'), [/^error No server runs on this data, but SLIPWAY_MQTT_PORT=\d+ .*EADDRINUSE/]);
  t.match(wrong(ill.found, 'files'), [/^error .* mode 755, .* chmod -R go-rwx/, /^error .*keys.* mode 644, /]);
  t.match(wrong(ill.found, 'integrity'), [/^error messages.db (is damaged|cannot be read)/]);
  t.match(wrong(ill.found, 'configuration'), [
    /^warning SLIPWAY_HTTPPORT is not a setting/,
    /^warning SLIPWAY_PUBLIC_URL begins with http/,
    /^warning SLIPWAY_ADMIN_PASSWORD is still set/,
  ]);
  t.notMatch(JSON.stringify(ill.found), /a long enough secret/);
});

t.test('a setting with which the server does not start is an error, and a new directory none', async (t) => {
  const directory = join(temporaryDirectory(t), 'new');
  const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  const wrongly = await doctor({ SLIPWAY_DATA_DIR: directory, SLIPWAY_HTTP_PORT: 'many' });
  t.equal(wrongly.code, 2);
  t.match(wrong(wrongly.found, 'configuration'), [/^error SLIPWAY_HTTP_PORT must be/]);
  const fresh = await doctor({ SLIPWAY_DATA_DIR: directory, ...ports });
  t.equal(fresh.code, 1);
  t.match(wrong(fresh.found, 'files'), [/^warning .* The first start creates it/]);
});

t.test('a certificate that ends soon, has ended, or is not for the host is found', async (t) => {
  const now = Date.now();
  const ca = await makeAuthority();
  const look = async (wanted: { from?: number; to?: number }, chain = '', publicUrl?: string) => {
    const { cert, key } = await makeCertificate({ issuer: ca, ...wanted });
    const found = lookAtTls({ tls: { ...unread, cert, key, chain: cert + chain }, publicUrl }, now);
    return wrong(found, 'tls').join('\n');
  };
  t.equal(await look({}, ca.cert), '');
  const elsewhere = await makeCertificate({ issuer: ca });
  const mqttPublicUrl = 'mqtts://mqtt.example.com:8883';
  const ofMqtt = lookAtTls({ tls: { ...unread, ...elsewhere, chain: elsewhere.cert + ca.cert }, mqttPublicUrl }, now);
  t.match(wrong(ofMqtt, 'tls'), [/is not for mqtt\.example\.com, the host of SLIPWAY_MQTT_PUBLIC_URL/]);
  t.match(await look({ to: now + 10 * day }), /^warning SLIPWAY_TLS_CERT expires in \d+ days/);
  t.match(await look({ from: now - 3 * day, to: now - day }), /^error SLIPWAY_TLS_CERT expired/);
  t.match(await look({ from: now + day }), /^error SLIPWAY_TLS_CERT is not good before/);
  t.match(await look({}, (await makeAuthority()).cert), /has not issued SLIPWAY_TLS_CERT/);
  t.match(await look({}, '', 'https://other.example.com'), /is not for other.example.com/);
  const old = await makeAuthority({ keysOf: ca, from: now - 3 * day, to: now - day });
  t.match(await look({}, old.cert), /^error The CA ".*" expired/);
});

t.test('the chain is built as a device does that has the root alone', async (t) => {
  const root = await makeAuthority({ subject: 'CN=Root' });
  const between = await makeAuthority({ subject: 'CN=Between', issuer: root });
  const look = ({ cert, key }: Awaited<ReturnType<typeof makeCertificate>>, ...more: Array<{ cert: string }>) => {
    const chain = [cert, ...more.map((one) => one.cert)].join('');
    return wrong(lookAtTls({ tls: { ...unread, cert, key, chain } }, Date.now()), 'tls').join('\n');
  };
  const own = await makeCertificate({ issuer: between });
  t.equal(look(own, between, root), '');
  t.equal(look(own, between), '', 'the root need not be sent');
  t.match(look(own, root), /^warning "CN=Root", which is sent after it, has not issued SLIPWAY_TLS_CERT/);
  t.match(look(own, root, between), /"CN=Between", which is sent after it, has not issued "CN=Root"/, 'in this order');
  const another = await makeAuthority({ subject: 'CN=Another' });
  t.match(look(own, between, another), /"CN=Another", which is sent after it, has not issued "CN=Between"/);
  const noCa = await makeCertificate({ subject: 'CN=No CA', issuer: root });
  t.match(look(await makeCertificate({ issuer: noCa }), noCa, root), /"CN=No CA".*has not issued SLIPWAY_TLS_CERT/);
  const self = await makeCertificate();
  t.equal(look(self), '', 'a device has it');

  // caIssuers: http://a
  const where = Buffer.from('301630140608 2b06010505073002 8608 687474703a2f2f61'.replaceAll(' ', ''), 'hex');
  const publicCa = new Extension('1.3.6.1.5.5.7.1.1', false, where);
  const lonely = await makeCertificate({ issuer: between, more: [publicCa] });
  t.match(look(lonely), /^warning The certificate of "CN=Between", .* is not sent: devices that know the root alone/);
  t.equal(look(lonely, between), '');
});

t.test('files of openssl: a host of MQTT, a CA that is not sent and a key of another kind are found', async (t) => {
  const shell = openssl(t);
  const asked = (name: string) => {
    const { key, csr } = shell.request({ subject: `/CN=${name}` });
    shell.write(`${name}.key`, key);
    return shell.write(`${name}.csr`, csr);
  };
  const sign = (name: string, issuer: string, extensions: string) => {
    const by = ['-CA', `${issuer}.pem`, '-CAkey', `${issuer}.key`, '-CAcreateserial', '-days', '365'];
    const more = ['-extfile', shell.write('extensions', extensions), '-out', `${name}.pem`];
    shell.run('x509', '-req', '-in', asked(name), ...by, ...more);
    return shell.read(`${name}.pem`).toString();
  };
  shell.run('req', '-x509', '-in', asked('Root'), '-key', 'Root.key', '-days', '365', '-out', 'Root.pem');
  const between = sign('Between', 'Root', 'basicConstraints=critical,CA:TRUE');
  const own = sign(
    'own',
    'Between',
    'subjectAltName=DNS:things.example.com\nauthorityInfoAccess=caIssuers;URI:http://ca.example.com/between.der',
  );
  const put = (name: string, content: string) => {
    const path = join(shell.directory, name);
    writeFileSync(path, content, { mode: 0o600 });
    return path;
  };
  const key = put('privkey.pem', shell.read('own.key').toString());
  const env = {
    ...{ SLIPWAY_DATA_DIR: temporaryDirectory(t), SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' },
    ...{ SLIPWAY_MQTTS_PORT: '0', SLIPWAY_TLS_KEY: key, SLIPWAY_PUBLIC_URL: 'https://things.example.com' },
  };
  const look = async (chain: string, more: Record<string, string> = {}) => {
    const { code, found } = await doctor({ ...env, SLIPWAY_TLS_CERT: put('fullchain.pem', chain), ...more });
    return { code, tls: wrong(found, 'tls'), configuration: wrong(found, 'configuration').join('\n') };
  };
  t.same((await look(own + between)).tls, []);
  const elsewhere = { SLIPWAY_MQTT_PUBLIC_URL: 'mqtts://mqtt.example.com:8883' };
  t.match((await look(own, elsewhere)).tls, [
    /^warning The certificate of "CN=Between".* is not sent/,
    /^warning SLIPWAY_TLS_CERT is not for mqtt\.example\.com, the host of SLIPWAY_MQTT_PUBLIC_URL/,
  ]);
  const rsa = put('rsa.pem', shell.request({ kind: 'RSA-2048' }).key);
  const other = await look(own + between, { SLIPWAY_TLS_KEY: rsa });
  t.equal(other.code, 2);
  t.match(other.configuration, /^error SLIPWAY_TLS_KEY does not go with SLIPWAY_TLS_CERT: it is the key of another/);
});

t.test(
  'a certificate that was renewed without a restart is found, and settings that are not those of the server',
  async (t) => {
    const [shown, renewed] = [await makeCertificate(), await makeCertificate()];
    const ready = createSecureServer({ cert: shown.cert, key: shown.key }, (_request, response) => response.end('{}'));
    await new Promise<void>((resolve) => ready.listen(0, '127.0.0.1', resolve));
    t.teardown(() => ready.close());
    const { port } = ready.address() as AddressInfo;
    const config = readConfig({ SLIPWAY_HTTP_PORT: `${port}` });
    const look = async (tls: typeof config.tls) => wrong(await lookAtServer({ ...config, tls }, true), 'server').join();
    const given = ({ cert, key }: typeof shown) => ({ ...unread, cert, key, chain: cert });
    // The server is in this process, which may really be held up: then it is warned of that, too.
    const lookUntil = (tls: typeof config.tls, said: RegExp) =>
      until(
        () => look(tls),
        (found) => said.test(found),
      );
    await lookUntil(given(shown), /^$/);
    await lookUntil(
      given(renewed),
      /^warning The server shows a certificate that ends on .* another one\. Its log says why it could not be read again\.$/,
    );
    t.match(await look(undefined), /^error The server does not answer: .* other settings/);
  },
);

t.test('how long the disk will do is told from what has come since the file was made', async (t) => {
  const dataDir = temporaryDirectory(t);
  const path = join(dataDir, 'messages.db');
  await migrate(path, messageMigrations);
  const file = openSqlite(path);
  const now = Date.now();
  file.prepare('UPDATE "migrations" SET "applied" = ?').run(new Date(now - 10 * day).toISOString());
  file.prepare(`INSERT INTO "mqttRetained" ("topic", "qos", "payload") VALUES (?, 1, zeroblob(10485760))`).run('t');
  file.close();
  // A megabyte a day.
  const look = (free: number, env: Record<string, string> = {}) => {
    const { messages } = readConfig({ SLIPWAY_DISK_RESERVE_BYTES: '1000000', ...env });
    const found = lookAtDisk({ dataDir, messages }, now, { free: 1_000_000 + free, whole: 1e9 });
    return found.map(({ level, message }) => `${level} ${message}`).join('\n');
  };
  t.match(look(-1), /^error .* messages are refused/);
  t.match(look(2_500_000), /^error .*that does for 2 days/);
  t.match(look(12_000_000), /^warning .*that does for 11 days/);
  t.match(look(100_000_000), /^ok .*that does for 9\d days/);
  t.match(look(12_000_000, { SLIPWAY_MESSAGES_MAX_BYTES: '20000000' }), /^ok .*by its cap or retention/);
  t.match(look(100_000, { SLIPWAY_RETENTION_DAYS: '10' }), /^ok .*by its cap or retention/);
  t.match(look(1000, { SLIPWAY_MESSAGES_MAX_BYTES: '5000000000' }), /has no effect/);
});

t.test('a data directory on a network file system is named, whatever room there is', async (t) => {
  const dataDir = temporaryDirectory(t);
  const { messages } = readConfig({});
  const wrongOf = (type: number, free = 1e12) =>
    wrong(lookAtDisk({ dataDir, messages }, Date.now(), { free, whole: 1e13, type }), 'disk');
  const said = (name: string) => new RegExp(`^warning .* network file system \\(${name}\\): the locks of SQLite`);
  t.match(wrongOf(0x6969), [said('NFS')]);
  t.match(wrongOf(0xff534d42), [said('SMB')]);
  t.match(wrongOf(0x6969, 0), [said('NFS'), /^error .* messages are refused/]);
  // ext4 and tmpfs.
  for (const type of [0xef53, 0x01021994]) t.strictSame(wrongOf(type), []);
});

t.test('a clock that is behind what was written last is found', async (t) => {
  const dataDir = temporaryDirectory(t);
  await migrate(join(dataDir, 'registry.db'), registryMigrations.slice(0, 1));
  const system = join(dataDir, 'timesync');
  const levels = (now: number) => lookAtClock(dataDir, now, system).map(({ level }) => level);
  t.same(levels(Date.now()), ['ok']);
  t.same(levels(Date.now() - day), ['error'], 'the files are of tomorrow');
  utimesSync(join(dataDir, 'registry.db'), 0, 0);
  t.match(lookAtClock(dataDir, 1000, system), [{ level: 'error', message: /before this version was installed/ }]);
  mkdirSync(system);
  t.same(levels(Date.now()), ['warning'], 'it is to be set by the network, and was not');
  writeFileSync(join(system, 'synchronized'), '');
  t.same(levels(Date.now()), ['ok']);
});

t.test('devices that have one serial number of a group since its ends are trimmed are named', async (t) => {
  const directory = temporaryDirectory(t);
  const env = { SLIPWAY_DATA_DIR: directory };
  const before = await startService(t, { directory });
  const group = await newGroup(before);
  const ids: string[] = [];
  for (const serialNumber of ['SN-1', 'SN-2', 'SN-3', 'SN-4'])
    ids.push((await claim(before, group, { serialNumber })).body.device.id);
  const [first, second, third, alone] = ids as [string, string, string, string];
  t.same(wrong((await doctor(env)).found, 'enrollment'), []);
  await before.close();
  // As the step that trims leaves rows of before.
  const registry = openSqlite(join(directory, 'registry.db'));
  const keep = registry.prepare('UPDATE "enrollments" SET "serialNumber" = ? WHERE "deviceId" = ?');
  keep.run('SN-1\r', second);
  keep.run('\ufeffSN-1', third);
  keep.run('SN-4 ', alone);
  registry.close();

  const service = await startService(t, { directory });
  const enrolled = async () => (await claim(service, group, { serialNumber: 'SN-1\r' })).body.device.id;
  t.equal(await enrolled(), first, 'the second is not found');
  const named = async () => wrong((await doctor(env)).found, 'enrollment').sort();
  const pair = (id: string) =>
    `warning Devices ${first} and ${id} both have serial number "SN-1" in enrollment group ${group.id}, and only ${first} can enroll with it. If they are two units, give that of ${id} another serial number. Delete ${id} when its unit has enrolled again, or if it has none.`;
  const single = `warning Device ${alone} has serial number "SN-4" in enrollment group ${group.id}, but would enroll as a new device. Delete ${alone} when its unit has enrolled again, or if it has none.`;
  t.same(await named(), [single, ...[second, third].map(pair)].sort());
  const { device } = await service.ok('GET', `/api/v1/devices/${second}`);
  await service.ok('DELETE', `/api/v1/devices/${second}`, { headers: { etag: device.version } });
  t.same(await named(), [single, pair(third)].sort(), 'what is done is no longer named');
});

t.test('a certificate registered before its curve was refused connects, and is named', async (t) => {
  const directory = temporaryDirectory(t);
  const env = { SLIPWAY_DATA_DIR: directory };
  const before = await startService(t, { directory });
  const device = await before.create('/devices', 'device', { serialNumber: 'X' });
  const own = { accountId: before.accountId, entityId: device.id, entityType: 'device' };
  const { cert } = await makeCertificate({ subject: 'CN=x' });
  const registered = await before.create('/access/mqtt-certificates', 'mqttCertificate', { ...own, certificate: cert });
  await before.close();
  t.same(wrong((await doctor(env)).found, 'certificates'), []);
  const shell = openssl(t);
  shell.run('ecparam', '-name', 'prime256v1', '-param_enc', 'explicit', '-genkey', '-noout', '-out', 'explicit.key');
  shell.run('req', '-x509', '-key', 'explicit.key', '-subj', '/CN=x', '-out', 'explicit.pem');
  const explicit = { cert: shell.read('explicit.pem').toString(), key: shell.read('explicit.key').toString() };
  const fingerprint = new X509Certificate(explicit.cert).fingerprint256.replaceAll(':', '').toLowerCase();
  const registry = openSqlite(join(directory, 'registry.db'));
  registry.prepare('UPDATE "certificates" SET "certificate" = ?, "fingerprint" = ?').run(explicit.cert, fingerprint);
  registry.close();

  const service = await startService(t, { directory, env: certificate(t) });
  t.equal((await joinWith(t, service.mqttsPort, explicit)).returnCode, 0);
  t.same(wrong((await doctor(env)).found, 'certificates'), [
    `warning Certificate ${registered.id} of device ${device.id} has a curve that is not named (explicit EC parameters). It still connects, but could not be registered today. Give the device another one.`,
  ]);
});

t.end();
