/** The resource: who may lead messages where, and what of it can be seen. */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import os from 'node:os';
import { join } from 'node:path';
import { mock } from 'node:test';
import { Webhook } from '../../src/bridges/targets/webhook.ts';
import { lookupPublic, NotPublic } from '../../src/core/network/outbound.ts';
import { metric } from '../broker/metrics.ts';
import { part } from '../support/part.ts';
import type { Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const path = '/api/v1/bridges';
const url = 'https://hooks.example.com/T0KEN-IN-THE-PATH?key=ANOTHER-ONE';
const body = (more: object = {}) => ({
  accountId: service.accountId,
  name: service.unique('Bridge'),
  kind: 'webhook',
  url,
  ...more,
});
const remove = async ({ id }: { id: string }) => {
  const { version } = (await service.ok('GET', `${path}/${id}`)).bridge;
  return service.http('DELETE', `${path}/${id}`, { headers: { etag: version } });
};
const put = (id: string, version: string, more: object) =>
  service.http('PUT', `${path}/${id}`, { headers: { etag: version }, body: more });

t.test(
  'a bridge is made, read, listed, changed and deleted; its secret is shown by the answer that made it',
  async (t) => {
    service.secrets.add('T0KEN-IN-THE-PATH');
    const made = (await service.ok('POST', path, { body: body() })).bridge;
    const { secret, ...shown } = made;
    t.match(made, { kind: 'webhook', url: url.replace(/\?.*/, ''), urlHasHiddenPart: true, version: '1' });
    t.ok(secret.length >= 40, 'made, because none was given');
    const { status, ...read } = (await service.ok('GET', `${path}/${made.id}`)).bridge;
    t.strictSame(read, shown);
    t.match(status, { pending: 0, deadLetters: 0, dropped: 0, lastDelivered: null, lastFailure: null });
    const all = await service.ok('GET', `${path}?accountId=${service.accountId}&name=${made.name}`);
    t.strictSame(all.bridges.results, [shown]);

    const given = 'chosen by the caller'.replaceAll(' ', '-');
    const chosen = (await service.ok('POST', path, { body: body({ secret: given }) })).bridge;
    t.notOk('secret' in chosen, 'a secret that was given is not repeated');
    const renamed = await put(made.id, made.version, { ...shown, name: 'Renamed', secret: given });
    t.match(renamed, { status: 200, body: { bridge: { name: 'Renamed', version: '2' } } });
    t.notOk('secret' in renamed.body.bridge);
    t.match(await put(made.id, made.version, { name: 'Late' }), { status: 412, body: { error: { code: 108 } } });
    const again = (await put(made.id, '2', { secret: null })).body.bridge;
    t.ok(again.secret.length >= 40 && again.secret !== secret, 'null makes a new one');

    t.match(await remove(made), { status: 200, body: { bridge: { deleted: String } } });
    t.match(await service.http('GET', `${path}/${made.id}`), { status: 410, body: { error: { code: 107 } } });
    t.match(await service.http('GET', `${path}/${made.id}/dead-letters`), { status: 410 });
    const records = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${made.id}`);
    t.strictSame(
      records.auditRecords.results.map(({ event, details }) => [event, details.change, details.host]),
      ['deleted', 'updated', 'updated', 'created'].map((change) => ['bridgeChanged', change, 'hooks.example.com']),
    );
    t.notMatch(JSON.stringify(records), /T0KEN|ANOTHER-ONE/, 'of the address only the host is told');
    for (const file of ['registry.db', 'registry.db-wal']) {
      const bytes = readFileSync(join(service.directory, file));
      for (const text of [secret, given, again.secret, 'T0KEN-IN-THE-PATH', 'ANOTHER-ONE'])
        t.notOk(bytes.includes(text), `${file} holds no secret and no address`);
    }
    await remove(chosen);
  },
);

t.test('an address is public and https, and holds no password', async (t) => {
  for (const wrong of [
    'http://hooks.example.com/',
    'https://me:secret@hooks.example.com/',
    'https://me@hooks.example.com/',
    'https://hooks.example.com/#fragment',
    'https://127.0.0.1/',
    'https://127.1/',
    'https://2130706433/',
    'https://0x7f.0.0.1/',
    'https://0.0.0.0/',
    'https://10.1.2.3/',
    'https://172.16.0.1/',
    'https://192.168.1.1/',
    'https://100.64.0.1/',
    'https://169.254.169.254/latest/meta-data',
    'https://224.0.0.1/',
    'https://[::1]/',
    'https://[::]/',
    'https://[::ffff:127.0.0.1]/',
    'https://[::ffff:a9fe:a9fe]/',
    'https://[64:ff9b::7f00:1]/',
    'https://[2002:7f00:1::]/',
    'https://[fd00:ec2::254]/',
    'https://[fe80::1]/',
    'https://[fec0::1]/',
    'https://168.63.129.16/machine',
    'https://[::ffff:168.63.129.16]/',
    'ftp://hooks.example.com/',
    'https:hooks.example.com',
    'https://hooks.example.com/\nx',
    'hooks.example.com',
    '',
  ]) {
    const refused = await service.http('POST', path, { body: body({ url: wrong }) });
    t.match(refused, { status: 400, body: { error: { code: 106, details: [{ path: 'url' }] } } }, wrong);
  }
  const made = (await service.ok('POST', path, { body: body({ url: 'https://8.8.8.8/in' }) })).bridge;
  const refused = await put(made.id, made.version, { url: 'https://10.0.0.1/' });
  t.match(
    refused,
    { status: 400, body: { error: { details: [{ path: 'url', message: /SLIPWAY_ALLOW_PRIVATE_TARGETS/ }] } } },
    'nor by a change',
  );
  const plain = await put(made.id, made.version, { url: 'http://8.8.8.8/' });
  t.match(plain.body.error.details, [{ path: 'url', message: /SLIPWAY_ALLOW_PRIVATE_TARGETS/ }]);
  await remove(made);
});

t.test('a bridge without its client library is refused with what to install; one that is there waits', async (t) => {
  const kafka = body({ kind: 'kafka', url: 'kafkas://kafka.example.com' });
  const made = (await service.ok('POST', path, { body: kafka })).bridge;
  const hooks = registerHooks({
    resolve: (name, context, next) => {
      if (name.startsWith('@platformatic/')) throw Object.assign(new Error(name), { code: 'ERR_MODULE_NOT_FOUND' });
      return next(name, context);
    },
  });
  t.teardown(() => hooks.deregister());
  const message = /not installed: run `npm install @platformatic\/kafka`/;
  t.match(await service.http('POST', path, { body: { ...kafka, name: 'Another' } }), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'kind', message }] } },
  });
  t.match(await put(made.id, made.version, { name: 'Renamed' }), { status: 200 });
  t.match(await service.ok('POST', `${path}/${made.id}/test`), { test: { delivered: false, reason: message } });
  await remove(made);
});

t.test('no connection is made to an address that is not public, by whatever name', async (t) => {
  let connections = 0;
  const server = createServer(() => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const target = `https://localhost:${port}/`;
  const pending = async () => Number(await metric({ service }, 'slipway_bridge_pending_messages{kind="webhook"}'));
  const before = await pending();
  const made = (await service.ok('POST', path, { body: body({ url: target }) })).bridge;
  const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'sure'), 'x', { qos: 1 });
  let status = {} as Made<'bridge'>['status'];
  await until(async () => {
    status = (await service.ok('GET', `${path}/${made.id}`)).bridge.status;
    return status.lastFailure !== null;
  });
  t.match(status, { pending: 1, lastFailureReason: /^not a public address.*SLIPWAY_ALLOW_PRIVATE_TARGETS/ });
  t.equal(await pending(), before + 1);
  const own = `{bridge="${made.id}",kind="webhook"}`;
  t.equal(await metric({ service }, `slipway_bridge_queue_messages${own}`), 1);
  t.ok(Number(await metric({ service }, `slipway_bridge_lag_seconds${own}`)) >= 0);
  t.ok(Date.parse(status.oldestPending) <= Date.parse(status.lastFailure));
  t.equal(connections, 0);
  await remove(made);
  t.equal(await pending(), before);
  t.notMatch((await service.http('GET', '/metrics', { token: null })).text, made.id);

  // An address that was allowed when the bridge was made.
  const around = { clock: { now: () => 0 }, headerPrefix: 'x', timeout: 1000, allowPrivate: false };
  for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]']) {
    const webhook = new Webhook({ url: new URL(`http://${host}:${port}/`), credentials: { secret: 's' } }, around);
    t.match(await webhook.send([]), [{ result: 'retry', reason: /^not a public address/ }]);
    webhook.close();
  }
  t.equal(connections, 0);
});

t.test('nor to an address of this machine, whatever it is by then', async (t) => {
  const around = { clock: { now: () => 0 }, headerPrefix: 'x', timeout: 50, allowPrivate: false };
  const hosts = ['8.8.4.4', '[2001:4860:4860::8844]', '[::ffff:8.8.4.4]'];
  const webhooks = hosts.map(
    (host) => new Webhook({ url: new URL(`https://${host}:9/`), credentials: { secret: 's' } }, around),
  );
  t.teardown(() => {
    for (const webhook of webhooks) webhook.close();
  });
  const address = { netmask: '', mac: '', internal: false, cidr: null };
  const own = {
    eth0: [
      { ...address, family: 'IPv4', address: '8.8.4.4' },
      { ...address, family: 'IPv6', address: '2001:4860:4860:0:0::8844', scopeid: 0 },
      { ...address, family: 'IPv6', address: 'fe80::1%eth0', scopeid: 2 },
    ],
  } as ReturnType<typeof os.networkInterfaces>;
  const { mock: had } = mock.method(os, 'networkInterfaces', () => own);
  t.teardown(() => had.restore());
  for (const webhook of webhooks)
    t.match(await webhook.send([]), [{ result: 'retry', reason: /^not a public address/ }]);
  for (const host of hosts)
    t.match(await service.http('POST', path, { body: body({ url: `https://${host}/` }) }), { status: 400 }, host);
  const found = await new Promise((resolve) => lookupPublic('8.8.4.4', { all: true }, resolve));
  t.type(found, NotPublic, 'a name that leads there neither');
});

t.test('an account has five bridges of different names', async (t) => {
  const made = [];
  for (let count = 0; count < 5; count += 1) made.push((await service.ok('POST', path, { body: body() })).bridge);
  t.match(await service.http('POST', path, { body: body() }), { status: 400, body: { error: { code: 106 } } });
  t.match(await put(made[0]?.id ?? '', '1', { name: made[1]?.name }), { status: 400, body: { error: { code: 106 } } });
  for (const one of made) await remove(one);
});

t.test('invalid secrets, unknown kinds and invalid times are refused', async (t) => {
  for (const wrong of [{ secret: 'short' }, { secret: 'with a blank, and long' }, { kind: 'kafka' }, { name: '' }])
    t.match(await service.http('POST', path, { body: body(wrong) }), { status: 400, body: { error: { code: 106 } } });
  const made = (await service.ok('POST', path, { body: body() })).bridge;
  for (const wrong of [
    { from: '2026-01-02', to: '2026-01-01' },
    { from: '2026-01-01', to: '2026-01-01' },
    { from: 'yesterday', to: '2026-01-01' },
    { from: '2026-01-01' },
  ])
    t.match(await service.http('POST', `${path}/${made.id}/replay`, { body: wrong }), { status: 400 });
  t.match(await service.http('GET', `${path}/${made.id}/dead-letters?pageSize=101`), { status: 400 });
  t.match(await service.http('GET', `${path}/${made.id}/dead-letters?page=2`), { status: 416 });
  await remove(made);
});

t.end();
