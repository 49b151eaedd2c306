/** A unit that the command has made connects with what is in its flash file, and with nothing less. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import mqtt, { type IClientOptions } from 'mqtt';
import { trustAnyCertificate } from '../broker/certificate.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { type MadeUnit, Station, serials } from './command.ts';

const t = await part(import.meta);

let service: Service;
/** Where openssl has made what docs/factory.md says: a CA, the server's certificate, and a CA of the units. */
let desk: string;
t.before(async () => {
  desk = temporaryDirectory(t);
  const page = readFileSync('docs/factory.md', 'utf8');
  const blocks = [...page.matchAll(/^```(?:sh|console)\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text);
  const [server = '', program = ''] = ['-out server.pem', '# certify.sh'].map((has) =>
    blocks.find((block) => block.includes(has)),
  );
  const [units = ''] = blocks.flatMap((block) => block.match(/^openssl .* -out units-ca\.pem$/m) ?? []);
  const here = server.replaceAll('CN=things.example.com', 'CN=localhost');
  const names = here.replace('DNS:things.example.com', 'DNS:localhost,IP:127.0.0.1');
  execFileSync('sh', ['-ec', `${names}\n${units}`], { cwd: desk, stdio: 'ignore' });
  writeFileSync(join(desk, 'certify.sh'), program.replaceAll('units-ca.', `${desk}/units-ca.`), { mode: 0o755 });
  // For what the test itself asks over HTTP: units and the command trust the CA that they are given.
  trustAnyCertificate(t);
  service = await startService(t, {
    env: { SLIPWAY_TLS_CERT: join(desk, 'server.pem'), SLIPWAY_TLS_KEY: join(desk, 'server.key') },
  });
  const path = '/access/certificate-authorities';
  const certificate = readFileSync(join(desk, 'units-ca.pem'), 'utf8');
  const ca = await service.create(path, 'certificateAuthority', { name: 'Units CA', certificate });
  // The program signs what a unit is called; here that is the challenge.
  const proof = execFileSync('sh', [join(desk, 'certify.sh'), ca.challenge, ''], { cwd: desk, encoding: 'utf8' });
  const signed = proof.slice(0, proof.indexOf('-----BEGIN PRIVATE KEY'));
  await service.ok('POST', `/api/v1${path}/${ca.id}/proof`, { body: { certificate: signed } });
});

/** Connects as firmware does that has this file and nothing else, and publishes. */
async function boot(unit: MadeUnit, other: Partial<IClientOptions> = {}): Promise<void> {
  const { broker, deviceId: username, secret: password, ca, certificate: cert, privateKey: key } = unit;
  const identity = { username, password, ...(ca && { ca }), ...(cert && { cert, key }) };
  const client = await mqtt.connectAsync(broker, {
    ...identity,
    rejectUnauthorized: true,
    reconnectPeriod: 0,
    ...other,
  });
  await client.publishAsync(service.topic(username, '_log'), '{"message":"on"}', { qos: 1 });
  await client.endAsync();
}

const none = { password: '' };
const refused = /Bad username or password/;

t.test('over TCP, with its secret', async (t) => {
  const station = new Station(t, service);
  const broker = ['--broker', `mqtt://127.0.0.1:${service.server.mqttPort}`];
  const { code, stderr } = await station.provision(station.csv(serials(1, 'TCP')), '--ca', `${desk}/ca.pem`, ...broker);
  t.equal(code, 0, stderr);
  const [unit] = station.units() as [MadeUnit];
  t.match(unit.broker, /^mqtt:/);
  await boot(unit);
  await t.rejects(boot(unit, none), refused);
});

t.test('over TLS, where it trusts the CA that it was given; and so does the command', async (t) => {
  const station = new Station(t, service);
  const csv = station.csv(serials(1, 'TLS'));
  t.match(await station.provision(csv), { code: 2, stderr: /certificate.*see --ca/ });
  const { code, stderr } = await station.provision(csv, '--ca', `${desk}/ca.pem`);
  t.equal(code, 0, stderr);
  const [unit] = station.units() as [MadeUnit];
  t.match(unit.broker, /^mqtts:/);
  t.equal(unit.ca, readFileSync(`${desk}/ca.pem`, 'utf8'));
  t.equal(unit.certificate, undefined);
  await boot(unit);
  await t.rejects(boot(unit, { ca: readFileSync(`${desk}/units-ca.pem`) }), /certificate|signature/);
});

t.test('with the client certificate that --certify has made for it, many units and one', async (t) => {
  const station = new Station(t, service);
  const certify = ['--ca', `${desk}/ca.pem`, '--certify', `${desk}/certify.sh`];
  t.equal((await station.provision(station.csv(serials(2, 'CERT')), ...certify)).code, 0);
  const one = ['provision', 'one', '--serial', 'CERT-0003', '--format', 'esp-nvs-csv', '--out', station.out];
  const { code, stderr } = await station.run(...one, ...certify);
  t.equal(code, 0, stderr);
  const units = [...station.units(), station.unitIn('CERT-0003.csv')] as [MadeUnit, MadeUnit, MadeUnit];
  for (const unit of units) {
    await boot(unit);
    await boot(unit, none);
    await t.rejects(boot(unit, { ...none, cert: '', key: '' }), refused, 'the certificate alone lets it in');
  }
  const [first, second] = units;
  const swapped = { ...none, cert: second.certificate ?? '', key: second.privateKey ?? '' };
  await t.rejects(boot(first, swapped), refused, 'and only that of the unit');
});

t.end();
