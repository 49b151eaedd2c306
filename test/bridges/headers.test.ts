/** What a webhook is sent besides messages, whose certificates a bridge trusts, and what is shown and kept of both and of its URL. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import '../support/reflection.ts';
import * as x509 from '@peculiar/x509';
import type { Test } from 'tap';
import { makeAuthority, makeCertificate } from '../support/certificates.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { type Receiver, startReceiver } from './receiver.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true', SLIPWAY_HEADER_PREFIX: 'acme' };
  service = await startService(t, { env });
});

const path = '/api/v1/bridges';
const bearer = 'Bearer t0p-secret-of-the-receiver';
const key = 'k3y-of-the-receiver';

async function create(t: Test, more: object) {
  const bridge = await service.create('/bridges', 'bridge', {
    name: service.unique('Bridge'),
    kind: 'webhook',
    ...more,
  });
  t.teardown(async () => {
    const { status, body } = await service.http('GET', `${path}/${bridge.id}`);
    if (status === 200) await service.ok('DELETE', `${path}/${bridge.id}`, { headers: { etag: body.bridge.version } });
  });
  return bridge;
}

const read = async (id: string) => (await service.ok('GET', `${path}/${id}`)).bridge;
const put = async (id: string, body: object) =>
  service.http('PUT', `${path}/${id}`, { headers: { etag: (await read(id)).version }, body });
const test = async (id: string) => (await service.ok('POST', `${path}/${id}/test`)).test;
/** What a bridge sends now. */
async function sent(id: string, { tries }: Receiver) {
  await service.ok('POST', `${path}/${id}/test`);
  const last = tries.at(-1);
  if (!last) throw new Error('nothing has come');
  return last;
}
const refusal = (at: string, message: RegExp) => ({
  status: 400,
  body: { error: { code: 106, details: [{ path: at, message }] } },
});

t.test('a webhook gets the headers of its bridge; answers have their names alone', async (t) => {
  const receiver = await startReceiver(t);
  const headers = [
    { name: 'Authorization', value: bearer },
    { name: 'X-Api-Key', value: key },
  ];
  const names = headers.map(({ name }) => ({ name }));
  const made = await create(t, { url: receiver.url, headers });
  t.strictSame(made.headers, names);
  const listed = await service.ok('GET', `${path}?accountId=${service.accountId}&name=${made.name}`);
  const answers: unknown[] = [made, listed, await read(made.id)];
  t.match((await sent(made.id, receiver)).headers, { authorization: bearer, 'x-api-key': key });

  const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'sure'), 'x', { qos: 1 });
  await receiver.received(2);
  const { headers: ofMessage } = receiver.tries.at(-1) ?? {};
  t.match(ofMessage, { authorization: bearer, 'x-api-key': key, 'webhook-id': /^msg_/, 'acme-signature': /^t=/ });

  const { secret: _, ...shown } = made;
  const changed = await put(made.id, { ...shown, name: 'Renamed' });
  t.match(changed, { status: 200, body: { bridge: { name: 'Renamed', headers: names } } });
  t.match((await sent(made.id, receiver)).headers, { authorization: bearer, 'x-api-key': key }, 'kept by a PUT of it');
  answers.push(changed.body);
  t.match(await put(made.id, { headers: [{ name: 'authorization' }, { name: 'X-New', value: 'new one' }] }), {
    status: 200,
    body: { bridge: { headers: [{ name: 'authorization' }, { name: 'X-New' }] } },
  });
  const { headers: now } = await sent(made.id, receiver);
  t.match(now, { authorization: bearer, 'x-new': 'new one' }, 'the name tells which value is kept');
  t.notOk('x-api-key' in now, 'what a PUT leaves out is gone');
  t.match(await put(made.id, { headers: [] }), { status: 200, body: { bridge: { headers: { length: 0 } } } });
  t.notOk('authorization' in (await sent(made.id, receiver)).headers);

  const audit = await service.ok('GET', `/api/v1/audit?accountId=${service.accountId}&targetId=${made.id}`);
  t.match(
    audit.auditRecords.results.map(({ details }) => details.secretChanged),
    [false, true, false, undefined],
  );
  t.notMatch(JSON.stringify([answers, audit]), /t0p-secret|k3y-of/);
  for (const file of ['registry.db', 'registry.db-wal'])
    t.notMatch(readFileSync(join(service.directory, file), 'latin1'), /t0p-secret|k3y-of/, `${file} has them sealed`);
});

t.test('values of headers are not sent to another server', async (t) => {
  const [receiver, other] = [await startReceiver(t), await startReceiver(t)];
  const made = await create(t, { url: receiver.url, headers: [{ name: 'Authorization', value: bearer }] });
  const again = refusal('headers', /given again, with values/);
  t.match(await put(made.id, { url: other.url }), again, 'those that the PUT does not name');
  t.match(
    await put(made.id, { url: other.url, headers: [{ name: 'Authorization' }] }),
    again,
    'nor those that it names',
  );
  t.match(await put(made.id, { url: receiver.url.replace('http:', 'https:') }), again, 'nor with another scheme');
  t.match(await sent(made.id, receiver), { headers: { authorization: bearer } });
  t.match(await put(made.id, { url: new URL('/elsewhere', receiver.url).href }), { status: 200 });
  t.match(await sent(made.id, receiver), { path: '/elsewhere', headers: { authorization: bearer } }, 'another path');
  const given = [{ name: 'Authorization', value: 'Bearer of the other' }];
  t.match(await put(made.id, { url: other.url, headers: given }), { status: 200 });
  t.match((await sent(made.id, other)).headers, { authorization: 'Bearer of the other' });
  t.match(await put(made.id, { url: receiver.url, headers: [] }), { status: 200 });
  t.notOk('authorization' in (await sent(made.id, receiver)).headers);
  t.equal(other.tries.length, 1);
});

t.test('names and values that a request cannot have are refused', async (t) => {
  const { url } = await startReceiver(t);
  const post = (headers: object[], more: object = {}) =>
    service.http('POST', path, {
      body: { accountId: service.accountId, name: service.unique('Bridge'), kind: 'webhook', url, headers, ...more },
    });
  for (const name of [
    ...['Host', 'Content-Length', 'content-type', 'Content-Encoding', 'Transfer-Encoding', 'Connection', 'Keep-Alive'],
    ...['TE', 'Trailer', 'Upgrade', 'Expect', 'Proxy-Authorization', 'Proxy-Connection', 'User-Agent'],
    ...['Webhook-Id', 'webhook-timestamp', 'Webhook-Signature', 'Acme-Signature'],
    ...['X Y', 'X:Y', 'X\r\nY', 'Ü', 'X\0', 'x/y', '"x"'],
  ])
    t.match(
      await post([{ name, value: 'x' }]),
      refusal('headers.0.name', /must be a name|HTTP sets it|the service sets|NUL/),
    );
  for (const value of ['a\r\nX-Other: b', 'a\nb', 'a\rb', 'a\0b', ' a', 'a ', 'ü', '\u{1f600}', '\u007f'])
    t.match(await post([{ name: 'X', value }]), refusal('headers.0.value', /visible ASCII|NUL/), JSON.stringify(value));
  t.match(await post([{ name: 'X', value: '' }]), { status: 400 });
  t.match(await post([{ name: 'X', value: 'x'.repeat(4001) }]), { status: 400 });
  t.match(await post([{ name: 'X' }]), refusal('headers.0.value', /is required/));
  const twice = [
    { name: 'x-key', value: 'a' },
    { name: 'X-Key', value: 'b' },
  ];
  t.match(await post(twice), refusal('headers.1.name', /twice/));
  t.match(await post(Array.from({ length: 11 }, (_, n) => ({ name: `X-${n}`, value: 'x' }))), { status: 400 });
  const mqtt = { kind: 'mqtt', url: 'mqtt://127.0.0.1:1883' };
  t.match(await post([{ name: 'X', value: 'x' }], mqtt), refusal('headers', /webhooks only/));

  const receiver = await startReceiver(t);
  const most = Array.from({ length: 10 }, (_, n) => ({ name: `X-${n}`, value: 'x\ty z!~' }));
  const odd = [...most.slice(1), { name: '__proto__', value: 'own' }];
  const made = await create(t, { url: receiver.url, headers: odd });
  const { headers } = await sent(made.id, receiver);
  t.equal(headers['x-9'], 'x\ty z!~');
  t.match(await read(made.id), { headers: odd.map(({ name }) => ({ name })) });
});

/** A certificate for 127.0.0.1, by a CA that nobody knows. */
async function certified() {
  const issuer = await makeAuthority();
  const names = new x509.SubjectAlternativeNameExtension([{ type: 'ip', value: '127.0.0.1' }]);
  return { issuer, ...(await makeCertificate({ subject: 'CN=here', issuer, more: [names] })) };
}

t.test('a CA is trusted by the bridge that names it, and by no other', async (t) => {
  const { issuer, cert, key } = await certified();
  const receiver = await startReceiver(t, { tls: { cert, key } });
  const reason = /unknown CA/;
  const plain = await create(t, { url: receiver.url });
  t.match(await test(plain.id), { delivered: false, reason });
  const made = await create(t, { url: receiver.url, ca: `Our CA\n${issuer.cert}` });
  t.match(await test(made.id), { delivered: true, reason: null });
  t.match(await test(plain.id), { delivered: false, reason }, 'the other one still knows public CAs alone');
  t.equal(made.ca, issuer.cert.replaceAll('\r', ''), 'shown as the certificate alone');
  const other = await makeAuthority({ subject: 'CN=Another' });
  t.match(await put(made.id, { ca: other.cert }), { status: 200 });
  t.match(await test(made.id), { delivered: false, reason });
  t.match(await put(made.id, { ca: `${other.cert}${issuer.cert}` }), { status: 200 });
  t.match(await test(made.id), { delivered: true }, 'there may be several, while one replaces the other');
  const { secret: _, ...shown } = made;
  t.match(await put(made.id, { ...shown, ca: null }), { status: 200, body: { bridge: { ca: null } } });
  t.match(await test(made.id), { delivered: false, reason });

  t.match(await put(made.id, { ca: 'x' }), refusal('ca', /PEM/));
  t.match(await put(made.id, { ca: issuer.cert.replace('MII', 'MIJ') }), refusal('ca', /PEM/));
  t.match(await put(made.id, { ca: `${issuer.cert}${key}` }), refusal('ca', /private key/));
  t.match(
    await put(made.id, { url: 'http://127.0.0.1/', ca: issuer.cert }),
    refusal('ca', /only for addresses with https/),
  );
});

t.test(
  'the CA may be the root, the intermediate one or the certificate itself, with or without those between',
  async (t) => {
    const more = [new x509.SubjectAlternativeNameExtension([{ type: 'ip', value: '127.0.0.1' }])];
    const root = await makeAuthority({ subject: 'CN=Root' });
    const middle = await makeAuthority({ subject: 'CN=Middle', issuer: root });
    const leaf = await makeCertificate({ subject: 'CN=here', issuer: middle, more });
    const own = await makeCertificate({ subject: 'CN=alone', more });
    const alone = await startReceiver(t, { tls: { cert: leaf.cert, key: leaf.key } });
    const chained = await startReceiver(t, { tls: { key: leaf.key, cert: `${leaf.cert}${middle.cert}` } });
    const selfSigned = await startReceiver(t, { tls: { cert: own.cert, key: own.key } });
    const { id } = await create(t, { url: alone.url });
    for (const [what, { url }, ca, delivered] of [
      ['the root, and the server sends the intermediate one', chained, root.cert, true],
      ['the intermediate one', chained, middle.cert, true],
      ['the intermediate one, and the server does not send it', alone, middle.cert, true],
      ['both, and the server sends none', alone, `${root.cert}${middle.cert}`, true],
      ["the server's certificate", alone, leaf.cert, true],
      ['a self-signed certificate', selfSigned, own.cert, true],
      ['the root, and nobody has the intermediate one', alone, root.cert, false],
      ['another certificate', alone, own.cert, false],
    ] as const) {
      t.match(await put(id, { url, ca }), { status: 200 });
      t.match(await test(id), delivered ? { delivered } : { delivered, reason: /unknown CA/ }, what);
    }
  },
);

t.test('another CA may let another server be the target: secrets are given again', async (t) => {
  const { issuer, cert, key } = await certified();
  const receiver = await startReceiver(t, { tls: { cert, key } });
  const headers = [{ name: 'Authorization', value: bearer }];
  const made = await create(t, { url: `${receiver.url}?key=hidden`, headers, ca: issuer.cert });
  const { cert: ca } = await makeAuthority({ subject: 'CN=Another' });
  t.match(await put(made.id, { ca }), refusal('headers', /given again, with values/));
  t.match(await put(made.id, { ca: null, headers: [] }), refusal('url', /given again, with its query/));
  t.match(await put(made.id, { ca: null, headers: [], url: made.url }), refusal('url', /given again, with its query/));
  t.match(
    await put(made.id, { ca: issuer.cert, headers: [{ name: 'Authorization' }] }),
    { status: 200 },
    'the same CA',
  );
  t.match(await sent(made.id, receiver), { path: '/hook?key=hidden', headers: { authorization: bearer } });
  t.match(await put(made.id, { ca, headers, url: `${receiver.url}?key=hidden` }), { status: 200 });
  const broker = await create(t, {
    kind: 'mqtt',
    url: 'mqtts://127.0.0.1:8883',
    credentials: { username: 'me', password: 'pass' },
  });
  t.match(await put(broker.id, { ca }), refusal('credentials', /given again/));
});

t.test('a URL is shown without its query; a PUT of what is shown keeps it', async (t) => {
  const receiver = await startReceiver(t);
  const made = await create(t, { url: `${receiver.url}?key=h1dden&more=1` });
  const shown = { url: receiver.url, urlHasHiddenPart: true };
  t.match(made, shown);
  const { status: _, ...now } = await read(made.id);
  t.match(now, shown);
  const list = await service.ok('GET', `${path}?accountId=${service.accountId}&name=${made.name}`);
  t.match(list.bridges.results, [shown]);
  const changed = await put(made.id, { ...now, name: 'Changed' });
  t.match(changed, { status: 200, body: { bridge: shown } });
  t.equal((await sent(made.id, receiver)).path, '/hook?key=h1dden&more=1');
  t.match(await put(made.id, { name: 'Again' }), { status: 200, body: { bridge: shown } });
  t.equal((await sent(made.id, receiver)).path, '/hook?key=h1dden&more=1');
  const elsewhere = new URL('/elsewhere', receiver.url).href;
  const open = { urlHasHiddenPart: false };
  t.match(await put(made.id, { url: elsewhere }), { status: 200, body: { bridge: { url: elsewhere, ...open } } });
  t.equal((await sent(made.id, receiver)).path, '/elsewhere', 'another path is another URL');
  t.match(await put(made.id, { url: `${elsewhere}?key=h1dden` }), { body: { bridge: { url: elsewhere } } });
  t.match(await put(made.id, { url: `${elsewhere}?` }), { body: { bridge: open } }, 'an empty query takes it away');
  t.notMatch((await sent(made.id, receiver)).path, 'h1dden');
  const texts = JSON.stringify([made, now, list, changed.body]);
  t.notMatch(texts, 'h1dden');
  t.match(await put(made.id, { url: `${elsewhere}?key=h1dden` }), { status: 200 });
  const { version } = await read(made.id);
  const gone = await service.ok('DELETE', `${path}/${made.id}`, { headers: { etag: version } });
  t.match(
    gone,
    { bridge: { url: elsewhere, urlHasHiddenPart: false, headers: { length: 0 } } },
    'what is deleted keeps none',
  );
});

t.end();
