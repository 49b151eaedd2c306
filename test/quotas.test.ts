/** What an account can make the service keep has a limit each: one account reaches it, another notices nothing. */

import { connected, disconnected, published, subscribed, taken, texts } from './broker/conversation.ts';
import { connectPacket, publishPacket, rawClient } from './broker/raw.ts';
import { follow, postRows } from './support/jobs.ts';
import { part } from './support/part.ts';
import { type Anything, type Made, type Service, startService } from './support/service.ts';
import { sharedService } from './support/shared.ts';
import { until } from './support/until.ts';

const t = await part(import.meta);

/** What the tests share that look at one account: each reaches the limit that it is about. */
const limits = {
  SLIPWAY_AUDIT_RECORDS_PER_ACCOUNT: '10',
  SLIPWAY_IDEMPOTENT_BYTES_PER_ACCOUNT: '3000',
  SLIPWAY_JOBS_PER_ACCOUNT: '3',
  SLIPWAY_JOB_ROWS_PER_ACCOUNT: '10',
  SLIPWAY_JOB_ROW_BYTES_PER_ACCOUNT: '1000',
  SLIPWAY_MQTT_MAX_FILTER_BYTES_PER_ACCOUNT: '2000',
  SLIPWAY_MQTT_MAX_RETAINED_BYTES_PER_ACCOUNT: '1000',
  SLIPWAY_MQTT_MAX_STORED_SESSIONS_PER_ACCOUNT: '2',
  SLIPWAY_MQTT_MAX_UNRELEASED_PER_ACCOUNT: '3',
  SLIPWAY_MQTT_MAX_WILL_BYTES_PER_ACCOUNT: '2000',
  SLIPWAY_REFUSALS_PER_ACCOUNT: '4',
  SLIPWAY_VERIFICATIONS_PER_ACCOUNT: '2',
};

const job = '/api/v1/provisioning/jobs';
const rows = (count: number, what: string) =>
  Array.from({ length: count }, (_, n) => ({ serialNumber: `${what} ${n}` }));
const dryRun = '?dryRun=true';

/** How much of a limit the account of a token uses. */
async function used(service: Service, name: string, token = service.admin): Promise<number> {
  const { usage } = await service.ok('GET', '/api/v1/usage', { token });
  return usage.limits.find((limit) => limit.name === name)?.used ?? -1;
}

const refused = (variable: string, path: string) => ({
  status: 400,
  body: { error: { code: 106, details: [{ path, message: new RegExp(variable) }] } },
});

/** A device of another account, with its channel `chat`. */
async function victimOf(
  service: Service,
): Promise<{ device: Made<'device'>; secret: string; topic: string; admin: string }> {
  const { accountId, admin } = await service.account();
  const template = await service.create('/devices/templates', 'deviceTemplate', { accountId, name: 'Victim' }, admin);
  const channel = { accountId, entityId: template.id, entityType: 'deviceTemplate', name: 'chat' };
  await service.create('/channels/templates', 'channelTemplate', channel, admin);
  const of = { accountId, deviceTemplateId: template.id, serialNumber: '1' };
  const device = await service.create('/devices', 'device', of, admin);
  const wanted = { accountId, entityId: device.id, entityType: 'device' };
  const { secret } = await service.create('/access/mqtt-credentials', 'mqttCredential', wanted, admin);
  return { device, secret, admin, topic: `slipway/v1/${accountId}/d/${device.id}/chat` };
}

/** A device of the first account with so many plain channels. */
async function attacker(service: Service, channels: number) {
  const names = Array.from({ length: channels }, (_, n) => ({ name: `c${n}`, persistenceType: 'simple' }));
  const template = await service.template({ channels: names });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  return { device, secret, topic: (channel: string) => service.topic(device.id, channel) };
}

const refusalsOf = async (service: Service, deviceId: string): Promise<string[]> =>
  (await service.ok('GET', `/api/v1/devices/${deviceId}/refusals?pageSize=50`)).refusals.results.map(
    ({ reason }) => reason,
  );

t.test('rows of jobs: dry runs give way, what is still needed does not', async (t) => {
  const service = await sharedService(t, limits);
  const other = await service.account();
  const tooMany = refused('SLIPWAY_JOB_ROWS_PER_ACCOUNT', 'rows');
  t.match(await postRows(service, rows(11, 'a'), dryRun), tooMany, 'more than would ever fit');
  const first = (await postRows(service, rows(8, 'dry'), dryRun)).body.job;
  await follow(service, first.id);
  const answers = await Promise.all(['b', 'c', 'd'].map((what) => postRows(service, rows(6, what))));
  const made = answers.filter(({ status }) => status === 202);
  t.equal(made.length, 1, 'of three at once one has room');
  for (const answer of answers.filter(({ status }) => status !== 202)) t.match(answer, tooMany);
  await follow(service, made[0]?.body.job.id ?? '');
  t.equal(await used(service, 'jobRows'), 6);
  t.equal((await service.ok('GET', `${job}/${first.id}/rows`)).rows.meta.count, 0, 'the rows of the dry run gave way');
  t.match(await service.http('GET', `${job}/${first.id}`), { body: { job: { total: 8 } } });
  t.match(await postRows(service, rows(6, 'e')), tooMany, 'results that nobody has confirmed stay');
  t.match(await postRows(service, rows(10, 'f'), '', { token: other.admin }), { status: 202 }, 'others have their own');
  await service.ok('POST', `${job}/${made[0]?.body.job.id}/results/confirm`);
  const again = await postRows(service, rows(6, 'g'));
  t.equal(again.status, 202);
  const [failed] = await follow(service, again.body.job.id);
  t.equal(failed?.total, 6);
});

t.test('bytes of these rows, and jobs that are kept: the oldest go', async (t) => {
  const service = await sharedService(t, limits);
  const long = [
    { serialNumber: 'x'.repeat(255) },
    { serialNumber: 'y'.repeat(255) },
    { serialNumber: 'z'.repeat(255) },
  ];
  t.match(
    await postRows(service, [...long, { serialNumber: 'w'.repeat(255) }], dryRun),
    refused('SLIPWAY_JOB_ROW_BYTES_PER_ACCOUNT', 'rows'),
  );
  const ids: string[] = [];
  for (let count = 0; count < 5; count += 1) {
    const { status, body } = await postRows(service, [...long, { serialNumber: 'n', template: 'none' }], dryRun);
    t.equal(status, 202);
    await follow(service, body.job.id);
    ids.push(body.job.id);
    t.ok((await used(service, 'jobRowBytes')) <= 1000);
  }
  const { jobs } = await service.ok('GET', `${job}?accountId=${service.accountId}&sortOrder=asc`);
  t.strictSame(
    jobs.results.map(({ id }) => id),
    ids.slice(2),
  );
  t.equal(await used(service, 'jobs'), 3);
  t.match(await service.http('POST', `${job}/${ids[2]}/retry`), { status: 400 }, 'its rows have gone');
});

t.test('retained messages: one too many is delivered, explained and not retained', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_MQTT_MAX_RETAINED_PER_ACCOUNT: '2' } });
  const victim = await victimOf(service);
  const own = await attacker(service, 5);
  const listener = await connected(t, service.server, own, { clientId: 'listener' });
  await subscribed(listener, [own.topic('#'), 0]);
  const client = await connected(t, service.server, own, { clientId: 'publisher' });
  // All at once: what is on its way counts.
  for (const n of [0, 1, 2, 3])
    client.send(publishPacket(own.topic(`c${n}`), 'kept', { qos: 1, retain: true, messageId: n + 1 }));
  for (const messageId of [1, 2, 3, 4]) t.match(await client.next(), { cmd: 'puback', messageId });
  client.send(publishPacket(own.topic('c4'), 'kept', { retain: true }));
  client.send({ cmd: 'pingreq' });
  t.match(await client.next(), { cmd: 'pingresp' });
  const heard: Array<{ cmd?: string; payload?: unknown; topic: string }> = [];
  while (heard.length < 8) {
    const message = (await listener.next()) as (typeof heard)[number];
    // That it has connected comes at some time.
    if (!message.topic.endsWith('/_updates/fields')) heard.push(message);
  }
  t.equal(heard.filter(({ payload }) => String(payload) === 'kept').length, 5, 'all were delivered');
  const why = heard
    .filter(({ topic }) => topic.endsWith('/_rejected'))
    .map(({ payload }) => JSON.parse(String(payload)));
  t.equal(why.length, 3);
  for (const { error } of why)
    t.match(error, { code: 106, details: [{ message: /SLIPWAY_MQTT_MAX_RETAINED_PER_ACCOUNT/ }] });
  t.equal(await used(service, 'mqttRetained'), 2);
  t.match((await refusalsOf(service, own.device.id))[0], /SLIPWAY_MQTT_MAX_RETAINED_PER_ACCOUNT/);
  const late = await connected(t, service.server, own, { clientId: 'late' });
  await subscribed(late, [own.topic('#'), 0]);
  t.match(
    [await late.next(), await late.next()].map(({ cmd }) => cmd),
    ['publish', 'publish'],
  );
  const post = (channel: string) =>
    service.http('POST', `/api/v1/messaging/publish/${own.topic(channel)}?retain=true`, {
      body: 'x',
      headers: { 'content-type': 'text/plain' },
    });
  t.match(await post('c2'), { status: 200, body: { success: true, rejection: { code: 106 } } });
  t.notOk((await post('c0')).body.rejection, 'another that replaces a retained one');
  await published(client, own.topic('c1'), '', { retain: true });
  t.equal(await used(service, 'mqttRetained'), 1);
  t.notOk((await post('c2')).body.rejection, 'a cleared one makes room');

  const honest = await connected(t, service.server, victim);
  await published(honest, victim.topic, 'mine', { retain: true });
  t.equal(await used(service, 'mqttRetained', victim.admin), 1);
  await service.close();
  const next = await startService(t, {
    directory: service.directory,
    env: { SLIPWAY_MQTT_MAX_RETAINED_PER_ACCOUNT: '2' },
  });
  t.equal(await used(next, 'mqttRetained'), 2, 'counted again after a restart');
});

t.test('bytes of retained messages', async (t) => {
  const service = await sharedService(t, limits);
  const own = await attacker(service, 2);
  const client = await connected(t, service.server, own);
  await published(client, own.topic('c0'), 'x'.repeat(600), { retain: true });
  const size = 600 + Buffer.byteLength(own.topic('c0'));
  t.equal(await used(service, 'mqttRetainedBytes'), size);
  await published(client, own.topic('c1'), 'x'.repeat(600), { retain: true });
  await published(client, own.topic('c0'), 'x'.repeat(960), { retain: true });
  t.equal(await used(service, 'mqttRetainedBytes'), size, 'neither another nor a longer one');
  await published(client, own.topic('c0'), 'x'.repeat(10), { retain: true, qos: 2 });
  t.equal(await used(service, 'mqttRetainedBytes'), size - 590);
  t.match(await refusalsOf(service, own.device.id), [/BYTES_PER_ACCOUNT/, /BYTES_PER_ACCOUNT/]);
});

t.test('stored sessions: a CONNECT that would begin one too many is refused', async (t) => {
  const service = await sharedService(t, limits);
  const victim = await victimOf(service);
  const own = await attacker(service, 1);
  const connect = async (clientId: string, clean: boolean) => {
    const client = await rawClient(t, service.server.mqttPort);
    const proof = { username: own.device.id, password: Buffer.from(own.secret) };
    client.send(connectPacket({ ...proof, clientId, clean }));
    return { client, code: ((await client.next()) as { returnCode?: number }).returnCode };
  };
  const codes = await Promise.all(['a', 'b', 'c', 'd'].map((id) => connect(id, false)));
  t.strictSame(codes.map(({ code }) => code).sort(), [0, 0, 3, 3], 'of four at once two have room');
  t.equal(await used(service, 'mqttStoredSessions'), 2);
  t.equal((await connect('clean', true)).code, 0, 'one that keeps nothing');
  const known = ['a', 'b', 'c', 'd'][codes.findIndex(({ code }) => code === 0)] ?? '';
  t.equal((await connect(known, false)).code, 0, 'one that comes back');
  t.match((await refusalsOf(service, own.device.id))[0], /SLIPWAY_MQTT_MAX_STORED_SESSIONS_PER_ACCOUNT/);
  await connected(t, service.server, victim, { clientId: 'stored', clean: false });
  t.equal((await connect(known, true)).code, 0, 'and a session that ends makes room');
  t.equal((await connect('e', false)).code, 0);
});

t.test('bytes of filters of stored sessions: one more is refused, and one that goes makes room', async (t) => {
  const service = await sharedService(t, limits);
  const victim = await victimOf(service);
  const own = await attacker(service, 6);
  const filters = Array.from({ length: 6 }, (_, n): [string, 1] => [own.topic(`c${n}`), 1]);
  const size = Buffer.byteLength(own.topic('c0')) + 400;
  const client = await connected(t, service.server, own, { clientId: 'stored', clean: false });
  t.strictSame(await subscribed(client, ...filters), [1, 1, 1, 1, 128, 128]);
  t.equal(await used(service, 'mqttFilterBytes'), 4 * size);
  t.strictSame(await subscribed(client, ...filters.slice(0, 2)), [1, 1], 'those that are there');
  t.match((await refusalsOf(service, own.device.id))[0], /SLIPWAY_MQTT_MAX_FILTER_BYTES_PER_ACCOUNT/);
  const clean = await connected(t, service.server, own, { clientId: 'clean' });
  t.strictSame(await subscribed(clean, ...filters), [1, 1, 1, 1, 1, 1], 'a session that is not stored keeps none');
  const other = await connected(t, service.server, victim, { clientId: 'stored', clean: false });
  t.strictSame(await subscribed(other, [victim.topic, 1]), [1]);
  client.send({ cmd: 'unsubscribe', messageId: 9, unsubscriptions: [own.topic('c0'), own.topic('c5')] });
  t.match(await client.next(), { cmd: 'unsuback' });
  t.equal(await used(service, 'mqttFilterBytes'), 3 * size);
  t.strictSame(await subscribed(client, ...filters.slice(4)), [1, 128]);
  await disconnected(client);
  t.equal(await used(service, 'mqttFilterBytes'), 4 * size);
  await connected(t, service.server, own, { clientId: 'stored', clean: true });
  t.equal(await used(service, 'mqttFilterBytes'), 0, 'gone with the session');
});

t.test('bytes of wills: a CONNECT with one more is refused', async (t) => {
  const service = await sharedService(t, limits);
  const victim = await victimOf(service);
  const own = await attacker(service, 1);
  const willOn = (topic: string, length: number) => ({
    will: { topic, payload: Buffer.alloc(length, 'x'), qos: 1 as const, retain: false },
  });
  const topic = own.topic('c0');
  const size = Buffer.byteLength(topic) + 900 + 300;
  const connect = async (clientId: string, length: number) => {
    const client = await rawClient(t, service.server.mqttPort);
    const proof = { username: own.device.id, password: Buffer.from(own.secret) };
    client.send(connectPacket({ ...proof, clientId, ...willOn(topic, length) }));
    return { client, code: ((await client.next()) as { returnCode?: number }).returnCode };
  };
  const first = await connect('first', 900);
  t.equal(first.code, 0);
  t.equal(await used(service, 'mqttWillBytes'), size);
  t.equal((await connect('second', 900)).code, 3);
  t.match((await refusalsOf(service, own.device.id))[0], /SLIPWAY_MQTT_MAX_WILL_BYTES_PER_ACCOUNT/);
  t.equal((await connect('first', 900)).code, 0, 'in the place of its own');
  t.equal(await used(service, 'mqttWillBytes'), size);
  const other = { ...victim, topic: () => victim.topic };
  await connected(t, service.server, other, { clientId: 'other', ...willOn(victim.topic, 900) });
  t.equal((await connect('first', 1)).code, 0);
  t.equal((await connect('second', 900)).code, 0, 'a shorter one makes room');
});

t.test(
  'filters of a stored session are as long as topics can be: a longer one matches nothing and is refused',
  async (t) => {
    const service = await sharedService(t);
    const client = await service.connect({ jwt: service.admin }, { clientId: 'stored', clean: false });
    const filter = (length: number) => `slipway/v1/${service.accountId}/d/+/${'x'.repeat(length)}`;
    t.equal((await client.subscribeAsync(filter(100), { qos: 1 }))[0]?.qos, 1);
    for (const length of [101, 60_000])
      await t.rejects(client.subscribeAsync(filter(length), { qos: 1 }), `${length} characters`);
  },
);

t.test('bytes in the queues of stored sessions: the longest queue of the account loses its oldest', async (t) => {
  const env = { SLIPWAY_MQTT_MAX_QUEUE_BYTES_PER_ACCOUNT: '16000' };
  const service = await startService(t, { env });
  const victim = await victimOf(service);
  const [own, small] = [await attacker(service, 1), await attacker(service, 1)];
  const publish = async (who: typeof own, topic: string, payloads: string[]) => {
    const keeper = await connected(t, service.server, who, { clientId: 'keeper', clean: false });
    await subscribed(keeper, [topic, 1]);
    await disconnected(keeper);
    const client = await connected(t, service.server, who);
    for (const payload of payloads) await published(client, topic, payload);
  };
  await publish({ ...victim, topic: () => victim.topic }, victim.topic, ['mine'.padEnd(1000)]);
  await publish(small, small.topic('c0'), ['small']);
  await publish(
    own,
    own.topic('c0'),
    Array.from({ length: 20 }, (_, n) => `${n}`.padEnd(1000)),
  );
  const use = await used(service, 'mqttQueueBytes');
  t.ok(use > 14_000 && use <= 16_000, `${use} bytes`);
  const heard = async (who: typeof own, last: string) => {
    const keeper = await connected(t, service.server, who, { clientId: 'keeper', clean: false });
    return texts(await taken(keeper, (messages) => texts(messages).at(-1)?.trim() === last)).map((text) => text.trim());
  };
  t.strictSame(await heard(small, 'small'), ['small'], 'a short queue keeps what it has');
  const kept = await heard(own, '19');
  t.ok(kept.length >= 7 && kept.length < 10, 'the newest are kept');
  t.strictSame(kept, Array.from({ length: 20 }, (_, n) => `${n}`).slice(-kept.length));
  t.equal(await used(service, 'mqttQueueBytes'), 0);
  await service.close();
  const next = await startService(t, { directory: service.directory, env });
  const token = (await next.http('GET', '/metrics', { token: null })).text;
  t.match(token, /slipway_limit_highest_use\{limit="mqttQueueBytes"\} 1\d\d\d$/m, 'the neighbour has its own still');
});

t.test('QoS 2 messages without PUBREL: who sends one too many is disconnected', async (t) => {
  const service = await sharedService(t, limits);
  const victim = await victimOf(service);
  const own = await attacker(service, 1);
  const client = await connected(t, service.server, own, { clientId: 'stored', clean: false });
  const send = (messageId: number) => client.send(publishPacket(own.topic('c0'), 'x', { qos: 2, messageId }));
  for (const messageId of [1, 2, 3]) {
    send(messageId);
    t.match(await client.next(), { cmd: 'pubrec', messageId });
  }
  t.equal(await used(service, 'mqttUnreleased'), 3);
  send(4);
  await client.closed;
  t.match((await refusalsOf(service, own.device.id))[0], /SLIPWAY_MQTT_MAX_UNRELEASED_PER_ACCOUNT/);
  await published(await connected(t, service.server, victim), victim.topic, 'x', { qos: 2 });
  const back = await connected(t, service.server, own, { clientId: 'stored', clean: false });
  back.send({ cmd: 'pubrel', messageId: 2 });
  t.match(await back.next(), { cmd: 'pubcomp', messageId: 2 });
  t.equal(await used(service, 'mqttUnreleased'), 2, 'kept over the end of a connection, and released');
  await published(back, own.topic('c0'), 'x', { qos: 2, messageId: 9 });
});

/** All of a list, oldest first. */
async function all(
  service: Service,
  path: string,
  plural: 'auditRecords' | 'verifications',
  accountId: string,
  token: string,
): Promise<Array<{ id: string; event?: string }>> {
  const query = `accountId=${accountId}&sortOrder=asc&pageSize=1000`;
  const answer: Anything = await service.ok('GET', `${path}?${query}`, { token });
  return answer[plural].results;
}

t.test(
  'audit records, verifications and refusals: the oldest of the same account go, and the work goes on',
  async (t) => {
    const service = await sharedService(t, limits);
    const victim = await victimOf(service);
    const { accountId, admin } = service;
    const own = await attacker(service, 1);
    const audit = (of: string, token: string) => all(service, '/api/v1/audit', 'auditRecords', of, token);
    // That a token is used is written in the background.
    for (const [of, token] of [
      [accountId, admin],
      [victim.device.accountId, victim.admin],
    ] as const)
      await until(async () => (await audit(of, token)).some(({ event }) => event === 'tokenUsed'));
    const before = await audit(victim.device.accountId, victim.admin);
    for (let n = 0; n < 12; n += 1) await service.credential(own.device.id);
    const records = await audit(accountId, admin);
    t.equal(records.length, 10);
    t.equal(records.filter(({ event }) => event === 'credentialCreated').length, 10);
    t.equal(await used(service, 'auditRecords'), 10);
    t.strictSame(await audit(victim.device.accountId, victim.admin), before);

    const verify = (deviceId: string, token?: string) =>
      service.ok('POST', '/api/v1/provisioning/verify', {
        body: { deviceId, timeoutSeconds: 0 },
        ...(token && { token }),
      });
    await verify(victim.device.id, victim.admin);
    const ids: string[] = [];
    for (let n = 0; n < 4; n += 1) ids.push((await verify(own.device.id)).verification.id);
    const path = '/api/v1/provisioning/verifications';
    const kept = await all(service, path, 'verifications', accountId, admin);
    t.strictSame(
      kept.map(({ id }) => id),
      ids.slice(2),
    );
    t.equal((await all(service, path, 'verifications', victim.device.accountId, victim.admin)).length, 1);

    const honest = await connected(t, service.server, victim);
    await published(honest, `${victim.topic}/none`, 'x');
    const secret = await service.credential(own.device.id);
    const client = await connected(t, service.server, { ...own, secret });
    for (let n = 0; n < 7; n += 1) await published(client, own.topic(`none${n}`), 'x');
    t.equal((await refusalsOf(service, own.device.id)).length, 4);
    t.equal(await used(service, 'refusals'), 4);
    t.equal(await used(service, 'refusals', victim.admin), 1);
  },
);

t.test(
  'answers kept for Idempotency-Keys: beyond the bytes of the account they are not kept, except secrets',
  async (t) => {
    const service = await sharedService(t, limits);
    const other = await service.account();
    const template = await service.template();
    const create = (
      key: string,
      token = service.admin,
      accountId = service.accountId,
      deviceTemplateId = template.id,
    ) =>
      service.http('POST', '/api/v1/devices', {
        token,
        headers: { 'idempotency-key': key },
        body: { accountId, serialNumber: key, ...(accountId === service.accountId && { deviceTemplateId }) },
      });
    let answer = await create('0');
    for (let n = 1; n < 8 && !answer.headers.has('platform-idempotency'); n += 1) answer = await create(`${n}`);
    t.equal(answer.headers.get('platform-idempotency'), 'not-kept');
    t.ok((await used(service, 'idempotentBytes')) <= 3000);
    const { device } = answer.body;
    const again = await create(device.serialNumber);
    t.equal(again.body.device.id, device.id, 'what was made is read back');
    const secret = () =>
      service.http('POST', '/api/v1/access/mqtt-credentials', {
        headers: { 'idempotency-key': 'secret' },
        body: { accountId: service.accountId, entityId: device.id, entityType: 'device' },
      });
    const first = await secret();
    t.notOk(first.headers.has('platform-idempotency'));
    t.strictSame((await secret()).body, first.body);
    const theirs = await create('0', other.admin, other.accountId);
    t.notOk(theirs.headers.has('platform-idempotency'), 'others have their own');
  },
);

t.end();
