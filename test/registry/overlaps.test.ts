/** Secrets that overlap (`graceSeconds`): both work until the new one has connected or the time is over. */
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { closed, present, type Service, startService } from '../support/service.ts';
import { storedRows } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const start = Date.parse('2026-03-01T00:00:00Z');
const hour = 3600;
const time = { now: start };
const clock = { now: () => time.now };
let service: Service;
t.before(async () => {
  service = await startService(t, { clock });
});
t.beforeEach(() => {
  time.now = start;
});

const regenerate = (entityId: string, more: object = {}, headers: Record<string, string> = {}) =>
  service.http('POST', '/api/v1/access/mqtt-credentials', {
    headers,
    body: { accountId: service.accountId, entityId, entityType: 'device', ...more },
  });
const secretOf = ({ body }: Awaited<ReturnType<typeof regenerate>>): string => body.mqttCredential.secret;
const stored = (entityId: string, at = service) =>
  present(storedRows(at, 'SELECT * FROM "credentials" WHERE "entityId" = ?', [entityId])[0]);
const connect = (deviceId: string, secret: string, clientId?: string) =>
  service.connect({ deviceId, secret }, clientId === undefined ? {} : { clientId });
const isRefused = (t: Test, deviceId: string, secret: string, message: string) =>
  t.rejects(connect(deviceId, secret), { code: 4 }, message);

t.test('both secrets work until the new one has connected; then the old one ends, with its connections', async (t) => {
  const { device, secret } = await service.device();
  const early = await connect(device.id, secret, 'early');
  const answer = await regenerate(device.id, { graceSeconds: hour });
  t.equal(answer.headers.get('platform-revocation'), 'connections=0; subscriptions=0');
  const { mqttCredential } = answer.body;
  t.equal(mqttCredential.previousUntil, new Date(start + hour * 1000).toISOString());
  t.notMatch(answer.text, /hash|generation/i);
  const late = await connect(device.id, secret, 'late');
  t.ok(early.connected && late.connected);
  const ended = Promise.all([closed(early), closed(late)]);
  const now = await connect(device.id, mqttCredential.secret, 'new');
  await ended;
  await isRefused(t, device.id, secret, 'the old one');
  t.match(stored(device.id), { previousHash: null, previousGeneration: null, previousUntil: null });
  t.ok(now.connected && (await connect(device.id, mqttCredential.secret)).connected);
});

t.test('a new secret that has only spoken over HTTP leaves the old one, and both may speak there', async (t) => {
  const template = await service.template({ channels: ['temperature'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const next = secretOf(await regenerate(device.id, { graceSeconds: hour }));
  const topic = service.topic(device.id, 'temperature');
  for (const password of [secret, next, secret]) {
    service.secrets.add(password);
    const basic = Buffer.from(`${device.id}:${password}`).toString('base64');
    const headers = { authorization: `Basic ${basic}`, 'content-type': 'application/octet-stream' };
    const sent = await service.http('POST', `/messaging/publish/${topic}`, { token: null, headers, body: '21' });
    t.equal(sent.status, 200);
  }
});

t.test('when the time is over the old one ends, used or not', async (t) => {
  const { device, secret } = await service.device();
  const client = await connect(device.id, secret);
  const next = secretOf(await regenerate(device.id, { graceSeconds: 60 }));
  const ended = closed(client);
  time.now = start + 59_999;
  t.ok((await connect(device.id, secret)).connected, 'a moment before');
  time.now = start + 60_000;
  await isRefused(t, device.id, secret, 'at that moment');
  await ended;
  t.ok((await connect(device.id, next)).connected);
});

t.test('a further regeneration ends the oldest, before the answer leaves', async (t) => {
  const { device, secret: first } = await service.device();
  const oldest = await connect(device.id, first);
  const second = secretOf(await regenerate(device.id, { graceSeconds: hour }));
  const ended = closed(oldest);
  const answer = await regenerate(device.id, { graceSeconds: hour });
  t.equal(answer.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await ended;
  await isRefused(t, device.id, first, 'the oldest');
  t.ok((await connect(device.id, second)).connected);
  t.ok((await connect(device.id, secretOf(answer))).connected);
});

t.test('without graceSeconds everything before ends at once, inside a window too', async (t) => {
  const { device, secret: first } = await service.device();
  const client = await connect(device.id, first);
  const second = secretOf(await regenerate(device.id, { graceSeconds: hour }));
  const ended = closed(client);
  const last = await regenerate(device.id, { graceSeconds: 0 });
  t.equal(last.headers.get('platform-revocation'), 'connections=1; subscriptions=0');
  await ended;
  for (const secret of [first, second]) await isRefused(t, device.id, secret, 'neither');
  t.notOk('previousUntil' in last.body.mqttCredential);
  t.ok((await connect(device.id, secretOf(last))).connected);
});

t.test('the old secret does not end the kept answer that holds the new one', async (t) => {
  const { device, secret } = await service.device();
  const ask = () => regenerate(device.id, { graceSeconds: hour }, { 'idempotency-key': 'rotate' });
  const next = secretOf(await ask());
  await connect(device.id, secret);
  t.equal(secretOf(await ask()), next, 'a lost answer can still be had');
  await connect(device.id, next);
  t.match(await ask(), { status: 410, body: { error: { code: 106 } } });
});

t.test('a first secret, and one that was wrong all along, gain nothing by it', async (t) => {
  const device = await service.create('/devices', 'device', { serialNumber: 'first' });
  const answer = await regenerate(device.id, { graceSeconds: hour });
  t.notOk('previousUntil' in answer.body.mqttCredential);
  await isRefused(t, device.id, 'wrong', 'a wrong one');
  const next = secretOf(await regenerate(device.id, { graceSeconds: hour }));
  await isRefused(t, device.id, 'wrong', 'still a wrong one');
  t.ok((await connect(device.id, next)).connected);
});

t.test('so many seconds it may be, and no more', async (t) => {
  const { device } = await service.device();
  for (const graceSeconds of [-1, 1.5, 604_801, '60', null])
    t.match(await regenerate(device.id, { graceSeconds }), { status: 400, body: { error: { code: 106 } } });
  t.equal((await regenerate(device.id, { graceSeconds: 604_800 })).status, 200);
});

t.test('an end-user’s own secret overlaps as well', async () => {
  const { endUser } = await service.endUser((await service.organization()).id);
  const made = { entityType: 'endUser' };
  const first = secretOf(await regenerate(endUser.id, made));
  const second = secretOf(await regenerate(endUser.id, { ...made, graceSeconds: hour }));
  const client = await connect(endUser.id, first, 'old');
  const ended = closed(client);
  await connect(endUser.id, second, 'new');
  await ended;
});

t.test('a CONNECT with the old secret that is checked while the new one connects does not stay', async (t) => {
  const { device, secret } = await service.device();
  const next = secretOf(await regenerate(device.id, { graceSeconds: hour }));
  const storm = Array.from({ length: 10 }, (_, n) => connect(device.id, secret, `old ${n}`).catch(() => undefined));
  await connect(device.id, next, 'new');
  const clients = (await Promise.all(storm)).filter((client) => client !== undefined);
  for (const client of clients) if (client.connected) await closed(client);
  await isRefused(t, device.id, secret, 'and none comes in any more');
});

t.test('a restart keeps the window, and finds one that is over', async (t) => {
  const directory = temporaryDirectory(t);
  const before = await startService(t, { clock, directory });
  const open = await before.device();
  const over = await before.device();
  const make = (entityId: string, graceSeconds: number) =>
    before.create('/access/mqtt-credentials', 'mqttCredential', { entityId, entityType: 'device', graceSeconds });
  await make(open.device.id, hour);
  await make(over.device.id, 60);
  await before.close();
  time.now = start + 60_000;
  const after = await startService(t, { clock, directory });
  t.ok((await after.connect({ deviceId: open.device.id, secret: open.secret })).connected);
  await t.rejects(after.connect({ deviceId: over.device.id, secret: over.secret }), { code: 4 });
  // The service looks for ended windows once a second, so a time is waited for.
  await until(() => stored(over.device.id, after).previousHash === null);
  t.match(stored(open.device.id, after), { previousGeneration: 1 });
});

t.end();
