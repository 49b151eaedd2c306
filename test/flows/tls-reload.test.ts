/** A certificate that is renewed while devices are connected. */
import { chmodSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { connect } from 'node:tls';
import mqtt from 'mqtt';
import { loadConfig } from '../../src/core/config.ts';
import { reloadTls } from '../../src/process/tls-reload.ts';
import { trustAnyCertificate } from '../broker/certificate.ts';
import { makeAuthority, makeCertificate } from '../support/certificates.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { startProcess } from '../support/process.ts';
import { refusedStart } from '../support/refused-start.ts';
import { present, startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

t.test('a renewed certificate is shown to new connections of HTTP and MQTT, and open ones go on', async (t) => {
  trustAnyCertificate(t);
  const service = await startService(t);
  const template = await service.template({ channels: ['series'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  await service.close();
  const directory = temporaryDirectory(t);
  for (const name of ['live', 'archive']) mkdirSync(join(directory, name));
  const live = join(directory, 'live');
  const [certFile, keyFile] = [join(live, 'fullchain.pem'), join(live, 'privkey.pem')];
  const ca = await makeAuthority();
  const renewal = async () => {
    const { cert, key } = await makeCertificate({ issuer: ca });
    return { cert: cert + ca.cert, key };
  };
  const [first, second, third, fourth] = [await renewal(), await renewal(), await renewal(), await renewal()];
  let written = 0;
  /** As certbot does: what is in use is a link to the newest of the archive. */
  const put = (file: string, text: string, mode = 0o600) => {
    written += 1;
    const kept = join(directory, 'archive', `${written}.pem`);
    writeFileSync(kept, text);
    chmodSync(kept, mode);
    symlinkSync(kept, `${file}.new`);
    renameSync(`${file}.new`, file);
  };
  put(certFile, first.cert);
  put(keyFile, first.key);
  const server = await startProcess(t, service.directory, {
    SLIPWAY_TLS_CERT: certFile,
    SLIPWAY_TLS_KEY: keyFile,
    SLIPWAY_MQTTS_PORT: '0',
  });
  const [, mqtts = ''] = /MQTT over TLS \S+:(\d+)/.exec(server.output()) ?? [];
  const httpPort = new URL(server.url).port;

  /** The fingerprint of what a port shows to a new connection. */
  const shown = (port: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect({ port: Number(port), host: '127.0.0.1' }, () => {
        resolve(socket.getPeerCertificate().fingerprint256.replaceAll(':', '').toLowerCase());
        socket.destroy();
      });
      socket.on('error', reject);
    });
  const both = async () => [await shown(httpPort), await shown(mqtts)];
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  /** One request on the connection that is kept; whether it was the one of before. */
  const ask = () =>
    new Promise<boolean>((resolve, reject) => {
      const asked = request(`${server.url}/health/live`, { agent }, (response) => {
        response.resume().on('end', () => resolve(asked.reusedSocket));
      });
      asked.on('error', reject).end();
    });
  const client = await mqtt.connectAsync(`mqtts://127.0.0.1:${mqtts}`, {
    username: device.id,
    password: secret,
    reconnectPeriod: 0,
    rejectUnauthorized: false,
  });
  t.teardown(() => client.end(true));
  let closed = false;
  client.on('close', () => {
    closed = true;
  });
  const say = () => client.publishAsync(service.topic(device.id, 'series'), ',n,1,', { qos: 1 });
  await ask();
  const before = await both();
  t.equal(before[0], before[1]);

  put(certFile, second.cert);
  server.child.kill('SIGHUP');
  t.strictSame(await both(), before, 'a certificate without its key changes nothing');
  put(keyFile, second.key);
  server.child.kill('SIGHUP');
  const isOther = (than: string[]) => (now: string[]) => now.every((one, at) => one !== than[at]);
  const renewed = await until(both, isOther(before));
  t.equal(renewed[0], renewed[1]);
  await say();
  t.ok(await ask(), 'the HTTP connection is the one of before');
  t.notOk(closed, 'and so is the MQTT connection');

  put(certFile, third.cert);
  put(keyFile, third.key);
  const again = await until(both, isOther(renewed));
  t.equal(again[0], again[1], 'found without a signal');

  const refusals = () => server.output().split('the former one stays in use').length;
  const refused = refusals();
  put(keyFile, openssl(t).request({ kind: 'RSA-2048' }).key);
  server.child.kill('SIGHUP');
  await until(() => refusals() > refused);
  t.strictSame(await both(), again, 'a key of another kind changes nothing');
  t.notMatch(server.output(), /other users can read the new TLS key/);
  put(certFile, fourth.cert);
  put(keyFile, fourth.key, 0o644);
  await until(both, isOther(again));
  await until(() => /other users can read the new TLS key: run chmod 600/.test(server.output()));
  await say();
  t.notOk(closed);
  client.end(true);
  t.equal(await server.stop('SIGTERM'), 0);
});

t.test('a start with a key of another kind beside the certificate is refused', async (t) => {
  const directory = temporaryDirectory(t);
  const [certFile, keyFile] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  writeFileSync(certFile, (await makeCertificate()).cert, { mode: 0o600 });
  writeFileSync(keyFile, openssl(t).request({ kind: 'RSA-2048' }).key, { mode: 0o600 });
  const files = { SLIPWAY_TLS_CERT: certFile, SLIPWAY_TLS_KEY: keyFile };
  const wrong = await refusedStart(directory, files);
  t.match(wrong, /^SLIPWAY_TLS_KEY does not go with SLIPWAY_TLS_CERT: it is the key of another/);
});

t.test('a renewed key is read again when its user or its mode has changed', async (t) => {
  const directory = temporaryDirectory(t);
  const files = { SLIPWAY_TLS_CERT: join(directory, 'cert.pem'), SLIPWAY_TLS_KEY: join(directory, 'key.pem') };
  const { cert, key } = await makeCertificate();
  writeFileSync(files.SLIPWAY_TLS_CERT, cert);
  writeFileSync(files.SLIPWAY_TLS_KEY, key, { mode: 0o600 });
  const { tls } = loadConfig({ SLIPWAY_DATA_DIR: directory, ...files });
  let failures = 0;
  const fail = () => {
    failures += 1;
  };
  const log = { info: () => {}, warn: () => {}, error: fail };
  const reload = reloadTls(present(tls), { log: log as never, apply: () => t.fail('it does not fit') });
  t.teardown(() => reload.stop());
  writeFileSync(files.SLIPWAY_TLS_KEY, (await makeCertificate()).key);
  await until(() => failures === 1);
  // As chown does: what is in the file, and when it was written, stay.
  chmodSync(files.SLIPWAY_TLS_KEY, 0o400);
  await until(() => failures === 2);
});

t.end();
