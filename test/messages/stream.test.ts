import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { mock } from 'node:test';
import { type Fixture, fixture, sibling, versionOf } from '../broker/fixture.ts';
import { metric } from '../broker/metrics.ts';
import { type Events, openStream } from '../support/events.ts';
import { interceptLogs, interceptPoints } from '../support/faults.ts';
import { part } from '../support/part.ts';
import type { Entity, Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

/** Streams that are open. */
const streamsOf = (service: Service) => metric({ service }, 'slipway_streams');
/** Waits until so many are, of the service that most tests share. */
const streams = (count: number, service = f.service) => until(async () => (await streamsOf(service)) === count);

const header = 'platform-revocation';
/** The heartbeat is asked for by ticking; everything else keeps the real time. */
mock.timers.enable({ apis: ['setInterval'] });
t.teardown(() => mock.timers.reset());

let f: Fixture;
t.before(async () => {
  f = await fixture(t);
});

const publish = (topic: string, body: string, query = '') =>
  f.service.ok('POST', `/api/v1/messaging/publish/${topic}${query}`, {
    body,
    headers: { 'content-type': 'text/plain' },
  });
const refusal = (topics: string, options = {}) =>
  openStream(t, f.service, topics, options).then(
    (events) => events.close(),
    (error: Error) => error.message,
  );
const put = async (path: string, body: object) => {
  const answer = await f.service.ok('GET', `/api/v1${path}`);
  const { version } = Object.values(answer)[0] as Entity;
  const moved = await f.service.http('PUT', `/api/v1${path}`, { body, headers: { etag: version } });
  t.equal(moved.status, 200, moved.text);
  return moved.headers.get(header);
};
/** What arrives before a message that is published now. */
const before = async (events: Events, topic: string, text: string) => {
  await publish(topic, text);
  const arrived = await events.until(({ data }) => data.payload === text);
  // Where a device stands is a change of its fields.
  const said = arrived.filter(({ data }) => !data.topic?.endsWith('/_updates/fields'));
  return said.map(({ data }) => data.payload).slice(0, -1);
};

t.test('each message arrives once, in order, as text or base64, with an id', async (t) => {
  const events = await openStream(t, f.service, `${f.topic('chat')},${f.topic('+')},#`);
  t.match(events.headers.get('content-type'), /^text\/event-stream/);
  t.equal(events.headers.get('cache-control'), 'no-store');
  for (const text of ['one', 'two\nlines', 'drei ü']) await publish(f.topic('chat'), text);
  const device = await f.service.connect(f.who);
  await events.until(({ data }) => data.topic === f.topic('_updates/fields'));
  await device.publishAsync(f.topic('chat'), Buffer.from([0xff, 0]), { qos: 0 });
  const last = await events.next();
  t.match(last, { event: 'message', data: { topic: f.topic('chat'), payloadBase64: '/wA=' } });
  t.match(last.id, /^[\w-]{32}\.\d+$/);
  t.notOk('payload' in last.data);
  t.equal(last.data.time, new Date(last.data.time).toISOString());
  events.close();
  const again = await openStream(t, f.service, f.topic('chat'));
  const sent = ['a', 'b\nc', 'd'];
  for (const text of sent) await publish(f.topic('chat'), text);
  const heard = [await again.next(), await again.next(), await again.next()];
  t.same(
    heard.map(({ data }) => data.payload),
    sent,
  );
  const places = heard.map(({ id }) => String(id).split('.')[0]);
  t.equal(new Set(places).size, 3, 'ids do not show whether anybody has stored something meanwhile');
});

t.test('a reader gets only messages in its reach; a filter that can match nothing is refused', async (t) => {
  const organization = await f.service.organization();
  const { token } = await f.service.endUser(organization.id);
  const inside = await f.service.device({
    deviceTemplateId: f.device.deviceTemplateId,
    organizationId: organization.id,
  });
  const topic = f.service.topic(inside.device.id, 'chat');
  const events = await openStream(t, f.service, '#', { token });
  await publish(f.topic('chat'), 'outside');
  await publish(topic, 'inside');
  t.match((await events.next()).data, { topic, payload: 'inside' }, 'and nothing of the other device');

  t.match(await refusal(f.topic('chat'), { token }), /^404 .*"code":100/);
  t.match(await refusal(`${topic},${f.topic('chat')}`, { token }), /^404/, 'one is enough');
  t.match(await refusal('$SYS/#'), /^404/);
  t.match(await refusal(f.topic('nothing')), /^404/);
  for (const filter of ['a#', 'a/+b', '\0', ',', '']) t.match(await refusal(filter), /^400 .*"code":106/, filter);
  t.match(await refusal(Array.from({ length: 201 }, (_, at) => `${at}`).join()), /^400 .*1 to 200/);
  t.match(await refusal('#', { after: 'nonsense' }), /^400 .*Last-Event-ID/);
  t.match(await refusal('#', { token: 'nonsense' }), /^401/);
});

t.test('streams end before the response that takes the permission away', async (t) => {
  const [one, two] = [await f.service.organization(), await f.service.organization()];
  const { device } = await sibling(f);
  const { endUser, email, password, token } = await f.service.endUser(one.id);
  await put(`/devices/${device.id}`, { organizationId: one.id });
  const topic = f.service.topic(device.id, 'chat');
  const named = await openStream(t, f.service, topic, { token });
  const wide = await openStream(t, f.service, '#', { token });
  await publish(topic, 'before');
  for (const events of [named, wide]) t.same(await events.payloads(1), ['before']);

  t.equal(await put(`/devices/${device.id}`, { organizationId: two.id }), 'connections=1; subscriptions=1');
  await named.closed;
  t.match(await refusal(topic, { token }), /^404/);
  await publish(topic, 'moved away');
  await put(`/devices/${device.id}`, { organizationId: one.id });
  t.same(await before(wide, topic, 'back'), [], 'silence through the wildcard');

  t.equal(await put(`/end-users/${endUser.id}`, { organizationId: two.id }), 'connections=0; subscriptions=0');
  await publish(topic, 'moved itself');
  await put(`/end-users/${endUser.id}`, { organizationId: one.id });
  t.same(await before(wide, topic, 'back again'), []);

  const logout = await f.service.http('POST', '/api/v1/sessions/logout', { token });
  t.equal(logout.headers.get(header), 'connections=1; subscriptions=1');
  await wide.closed;
  const { jwt } = await f.service.loginAs(email, password);
  const last = await openStream(t, f.service, '#', { token: jwt });
  const { version } = (await f.service.ok('GET', `/api/v1/end-users/${endUser.id}`)).endUser;
  const removed = await f.service.http('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: version } });
  t.equal(removed.headers.get(header), 'connections=1; subscriptions=1');
  await last.closed;
});

t.test('deleting a device or a channel removes the filters that name it', async (t) => {
  const { device } = await sibling(f);
  const channel = await f.service.channel(f.device.deviceTemplateId, { name: 'short', persistenceType: 'simple' });
  const events = await openStream(
    t,
    f.service,
    `${f.service.topic(device.id, 'chat')},${f.topic('short')},${f.topic('chat')}`,
  );
  const remove = async (path: string, version: string) =>
    (await f.service.http('DELETE', path, { headers: { etag: version } })).headers.get(header);
  const device1 = await remove(`/api/v1/devices/${device.id}`, await versionOf(f.service, device.id));
  t.equal(device1, 'connections=0; subscriptions=1');
  const channel1 = await remove(`/api/v1/channels/templates/${channel.id}`, channel.version);
  t.equal(channel1, 'connections=0; subscriptions=1');
  t.same(await before(events, f.topic('chat'), 'still there'), []);
});

t.test('a reader that reconnects gets stored messages it missed once, in order, before live ones', async (t) => {
  const other = await sibling(f);
  const topics = `${f.topic('temperature')},${other.topic('+')},${f.topic('_log')}`;
  const first = await openStream(t, f.service, topics);
  await first.line(/^id: /);
  t.ok(first.lastId, 'an id is there before the first message');
  await publish(f.topic('temperature'), '1700000000000,t,1,');
  await publish(f.topic('temperature'), ',t,2,');
  const [, second] = [await first.next(), await first.next()];
  first.close();
  await first.closed;

  await publish(f.topic('temperature'), `${Date.now()},t,3,x,y`);
  await publish(other.topic('temperature'), JSON.stringify([{ n: 'a,b', v: 4, vs: 'four' }]));
  await publish(f.topic('temperature'), ',t,5,', '?qos=0');
  await publish(f.topic('_log'), JSON.stringify({ message: 'm', code: 'c', custom: { k: 1 } }));
  await publish(other.topic('chat'), 'simple: nothing is promised');
  const again = await openStream(t, f.service, topics, { after: second.id });
  await publish(f.topic('temperature'), ',t,6,');
  const events = await again.until(({ data }) => data.payload === ',t,6,');
  const texts = events.map(({ data }) => data.payload.replace(/^\d{13}/, '').replace(/"t":[\d.]+/, '"t":0'));
  t.same(texts.slice(0, 3), [',t,3,x,y', '[{"n":"a,b","t":0,"v":4,"vs":"four"}]', ',t,5,']);
  t.match(JSON.parse(texts[3] ?? ''), { message: 'm', severity: 'info', code: 'c', custom: { k: 1 } });
  t.same(texts.slice(4), [',t,6,']);
  t.same(
    events.map(({ data }) => data.replayed),
    [true, true, true, true, undefined],
    'those that were missed are marked',
  );
  t.equal(events[1]?.data.topic, other.topic('temperature'));

  // Who breaks off in the middle of what was missed gets the rest.
  const rest = await openStream(t, f.service, topics, { after: events[1]?.id ?? '' });
  t.match(await rest.payloads(3), [/,t,5,$/, /,t,6,$/, /"m"/], 'points, and then log entries');
  t.same(await before(rest, f.topic('temperature'), ',t,7,'), []);
});

t.test('points long past or ahead are sent again too; log entries of the service are not', async (t) => {
  const own = await sibling(f);
  const topics = `${own.topic('temperature')},${own.topic('_log')}`;
  const first = await openStream(t, f.service, topics);
  await publish(own.topic('temperature'), '4000000000000,t,1,');
  const { id } = await first.next();
  first.close();
  await publish(own.topic('temperature'), '1600000000000,t,2,\n1500000000000,t,3,\n3000000000000,t,4,');
  await (await f.service.connect(own.who)).endAsync();
  const entries = async () => (await f.service.ok('GET', `/api/v1/devices/${own.device.id}/logs`)).logs.results;
  await until(async () => (await entries()).length >= 2);
  t.match(await entries(), [{ byService: true }, { byService: true }]);
  const forged = { severity: 'lifecycle', message: 'connected', custom: { connected: true, clientId: 'x' } };
  await publish(own.topic('_log'), JSON.stringify({ ...forged, byService: true }));
  t.match(
    await entries(),
    [{ ...forged, byService: false }, {}, {}],
    'an entry of a device is not taken for one of the service',
  );
  const again = await openStream(t, f.service, topics, { after: id });
  const [two, three, four, entry, ...more] = await before(again, own.topic('temperature'), ',t,5,');
  t.same([two, three, four], ['1600000000000,t,2,', '1500000000000,t,3,', '3000000000000,t,4,']);
  t.match(JSON.parse(entry ?? ''), { ...forged, custom: { connected: true, byService: true } });
  t.same(more, [], 'the entries of the service itself are not published');
});

t.test('a reader that reconnects at any message of a burst misses none, gets none twice', async (t) => {
  const device = await f.service.connect(f.who);
  const count = 1500;
  const got: number[] = [];
  let after = '';
  const begin = await openStream(t, f.service, f.topic('temperature'));
  await begin.line(/^id: /);
  after = begin.lastId;
  begin.close();
  // A few at a time, so that some are on their way to the disk whenever the reader comes back.
  const send = async (at: number) => device.publishAsync(f.topic('temperature'), `,storm,${at},`, { qos: 1 });
  const storm = async () => {
    for (let at = 0; at < count; at += 10) await Promise.all(Array.from({ length: 10 }, (_, next) => send(at + next)));
  };
  const sending = storm();
  for (let take = 1; got.length < count; take = (take * 7) % 101) {
    const events = await openStream(t, f.service, f.topic('temperature'), { after });
    for (let taken = 0; taken < take && got.length < count; taken += 1) {
      const { id, data } = await events.next();
      after = id;
      got.push(Number(data.payload.split(',')[2]));
    }
    events.close();
  }
  await sending;
  t.same(
    got,
    Array.from({ length: count }, (_, at) => at),
  );
});

t.test('the same holds when some of the messages are published over HTTP', async (t) => {
  const device = await f.service.connect(f.who);
  const topics = `${f.topic('temperature')},${f.topic('_log')}`;
  const count = 200;
  const post = (path: string, body: string, type: string) =>
    f.service.ok('POST', path, { body, headers: { 'content-type': type } });
  const ways = [
    (name: string) =>
      post(`/api/v1/devices/${f.device.id}/logs`, JSON.stringify({ message: name }), 'application/json'),
    (name: string) => device.publishAsync(f.topic('_log'), JSON.stringify({ message: name }), { qos: 1 }),
    (name: string) => post(`/api/v4/data/${f.topic('temperature')}`, `,${name},1,`, 'text/csv'),
    (name: string) => device.publishAsync(f.topic('temperature'), `,${name},1,`, { qos: 1 }),
  ];
  const storm = async (way: number) => {
    for (let at = way; at < count; at += ways.length) await ways[way]?.(`wave${at}`);
  };
  const begin = await openStream(t, f.service, topics);
  await begin.line(/^id: /);
  let after = begin.lastId;
  begin.close();
  const sending = Promise.all(ways.map((_, way) => storm(way)));
  const got: string[] = [];
  for (let take = 1; got.length < count; take = (take * 7) % 23) {
    const events = await openStream(t, f.service, topics, { after });
    for (let taken = 0; taken < take && got.length < count; taken += 1) {
      const { id, data } = await events.next();
      after = id;
      got.push(/wave\d+/.exec(data.payload)?.[0] ?? data.payload);
    }
    events.close();
  }
  await sending;
  t.equal(new Set(got).size, count, 'each of them once');
  const rest = await openStream(t, f.service, topics, { after });
  t.same(await before(rest, f.topic('temperature'), ',t,last,'), []);
});

t.test('messages of one transaction are sent in its order, from MQTT and from HTTP', async (t) => {
  const other = await sibling(f);
  const topics = `${f.topic('temperature')},${other.topic('temperature')},${f.topic('_log')}`;
  const [one, two] = [await f.service.connect(f.who), await f.service.connect(other.who)];
  const begin = await openStream(t, f.service, topics);
  await begin.line(/^id: /);
  const held: Array<() => void> = [];
  const hold = (store: () => void) => void held.push(store);
  const restores = [interceptPoints(t, f.service, hold), interceptLogs(t, f.service, hold)];
  const sent = [
    () => f.service.ok('POST', `/api/v1/devices/${f.device.id}/logs`, { body: { message: 'posted' } }),
    () => publish(f.topic('temperature'), ',t,1,'),
    () => one.publishAsync(f.topic('temperature'), ',t,2,', { qos: 2 }),
    () => two.publishAsync(other.topic('temperature'), ',t,3,', { qos: 1 }),
  ];
  const answers: Array<Promise<unknown>> = [];
  for (const send of sent) {
    answers.push(send());
    await until(() => held.length >= answers.length);
  }
  for (const restore of restores) restore();
  for (const store of held) store();
  await Promise.all(answers);
  const events = await begin.until(({ data }) => data.payload === ',t,3,');
  const texts = events.map(({ data }) => data.payload);
  t.match(texts, [/posted/, ',t,1,', ',t,2,', ',t,3,'], 'as they are stored');
  for (const [at, { id }] of events.entries()) {
    const again = await openStream(t, f.service, topics, { after: id });
    const left = await before(again, f.topic('temperature'), `,at,${at},`);
    t.equal(left.filter((text) => /,t,/.test(text)).length, events.length - 1 - at, `broken off after ${texts[at]}`);
    again.close();
  }
});

t.test('a reader that missed more than is kept gets one gap event', async (t) => {
  const first = await openStream(t, f.service, f.topic('temperature'));
  await first.line(/^id: /);
  const after = first.lastId;
  first.close();
  const rows = Array.from({ length: 4000 }, (_, at) => `,many,${at},`).join('\n');
  for (let time = 0; time < 3; time += 1) await publish(f.topic('temperature'), rows);
  const again = await openStream(t, f.service, f.topic('temperature'), { after });
  const gap = await again.next();
  t.match(gap, { event: 'gap', data: { since: /^\d{4}-/ } });
  t.same(await before(again, f.topic('temperature'), ',t,1,'), []);
  const caughtUp = await openStream(t, f.service, f.topic('temperature'), { after: gap.id });
  const [later, ...more] = await before(caughtUp, f.topic('temperature'), ',t,2,');
  t.match(later, /^\d+,t,1,$/);
  t.same(more, [], 'the gap is behind');
});

t.test('an event id of an earlier version is answered with a gap that begins at its time', async (t) => {
  const events = await openStream(t, f.service, f.topic('temperature'), { after: '17-4-1769851800000' });
  t.match(await events.next(), { event: 'gap', data: { since: '2026-01-31T09:30:00.000Z' } });
});

t.test('an idle stream gets a heartbeat every 15 seconds, with a current event id', async (t) => {
  const events = await openStream(t, f.service, f.topic('chat'));
  await events.line(/^id: /);
  const [idle] = [events.lastId];
  await f.service.ok('POST', `/api/v1/messaging/publish/${f.topic('temperature')}`, { body: '{"t":1}' });
  mock.timers.tick(14_999);
  t.notOk(events.lines.some((line) => line.startsWith(':')));
  mock.timers.tick(1);
  await events.line(/^: heartbeat/);
  await publish(f.topic('chat'), 'x');
  await events.next();
  const ids = events.lines.filter((line) => line.startsWith('id: '));
  t.not(ids[1], `id: ${idle}`, 'so a reader that reconnects skips messages that it has not asked for');
});

t.test('reading a stream is use of its session', async (t) => {
  const clock = { now: () => Date.now() };
  const { service, topic } = await fixture(t, {}, { clock });
  const logIn = async () => (await service.loginAs('admin@example.com', 'correct horse battery')).jwt;
  const [reading, resting] = [await logIn(), await logIn()];
  const events = await openStream(t, service, topic('chat'), { token: reading });
  const pass = (minutes: number) => {
    const later = clock.now() + minutes * 60_000;
    clock.now = () => later;
  };
  pass(19);
  mock.timers.tick(15_000);
  await events.line(/^: heartbeat/);
  pass(19);
  const ask = async (token: string) => (await service.http('GET', '/api/v1/profile/me', { token })).status;
  t.same([await ask(reading), await ask(resting)], [200, 401]);
});

t.test('the token cookie opens a stream; a batch and HEAD do not', async (t) => {
  const url = `/api/v1/stream?topics=${encodeURIComponent('#')}`;
  const cookie = `platform-access-token=${f.service.admin}`;
  const aborter = new AbortController();
  const response = await fetch(f.service.server.url + url, { headers: { cookie }, signal: aborter.signal });
  t.equal(response.status, 200);
  aborter.abort();
  const body = { requests: [{ method: 'GET', path: url }] };
  t.match(await f.service.ok('POST', '/api/v1/batch', { body }), [{ error: { code: 106 } }]);
  t.equal((await fetch(f.service.server.url + url, { method: 'HEAD', headers: { cookie } })).status, 405);
});

t.test('a reader that does not read is disconnected; others get their messages', async (t) => {
  await streams(0);
  const reading = await openStream(t, f.service, f.topic('chat'));
  const request = httpRequest(`${f.service.server.url}/api/v1/stream?topics=${encodeURIComponent(f.topic('chat'))}`, {
    headers: { authorization: `Bearer ${f.service.admin}` },
  });
  request.on('error', () => {});
  const [response] = (await once(request.end(), 'response')) as [IncomingMessage];
  response.on('error', () => {});
  const device = await f.service.connect(f.who);
  const payload = 'x'.repeat(100_000);
  let sent = 0;
  for (; (await streamsOf(f.service)) === 2 && sent < 500; sent += 1) {
    await device.publishAsync(f.topic('chat'), payload, { qos: 1 });
    await reading.next();
  }
  t.equal(await streamsOf(f.service), 1, `after ${sent} messages`);
  t.ok(Number(await metric(f, 'slipway_mqtt_shed_messages_total')) > 0);
  t.same(await before(reading, f.topic('chat'), 'last'), []);
  request.destroy();
});

t.test(
  'readers that come back and do not read keep no more than 32 MiB of what they missed for their account',
  async (t) => {
    const shed = () => metric(f, 'slipway_mqtt_shed_messages_total');
    await streams(0);
    const topics = f.topic('_log');
    const first = await openStream(t, f.service, topics);
    await first.line(/^id: /);
    const after = first.lastId;
    first.close();
    const entries = Array.from({ length: 500 }, () => ({ message: 'x'.repeat(300) }));
    for (let n = 0; n < 19; n += 1)
      await f.service.ok('POST', `/api/v1/devices/${f.device.id}/logs`, { body: entries });
    const before = await shed();
    const headers = { authorization: `Bearer ${f.service.admin}`, 'last-event-id': after };
    const url = `${f.service.server.url}/api/v1/stream?topics=${encodeURIComponent(topics)}`;
    const deaf = Array.from({ length: 30 }, () =>
      httpRequest(url, { headers })
        .on('error', () => {})
        .end(),
    );
    const answers = await Promise.all(deaf.map(async (one) => (await once(one, 'response')) as [IncomingMessage]));
    for (const [answer] of answers) answer.on('error', () => {});
    await until(async () => (await shed()) !== before);
    for (const one of deaf) one.destroy();
    await streams(0);
    const reading = await openStream(t, f.service, topics, { after });
    t.equal((await reading.payloads(9500)).length, 9500, 'one that reads gets all of it');
    reading.close();
  },
);

t.test('streams of one caller are limited, and end with the session and the service', async (t) => {
  const clock = { now: () => Date.now() };
  const logLines: string[] = [];
  const limited = await fixture(t, { SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL: '2' }, { clock, logLines });
  const { service, topic } = limited;
  const organization = await service.organization();
  const { email, password } = await service.endUser(organization.id);
  const { jwt } = await service.ok('POST', '/api/v1/auth/login-user', {
    body: { emailAddress: email, password, accountId: service.accountId, renewalType: 'short' },
    token: null,
  });
  const [one, two] = [
    await openStream(t, service, '#', { token: jwt }),
    await openStream(t, service, '#', { token: jwt }),
  ];
  await t.rejects(openStream(t, service, '#', { token: jwt }), { message: /^429/ });
  one.close();
  await streams(1, service);
  const third = await openStream(t, service, '#', { token: jwt });
  const staying = await openStream(t, service, topic('chat'));
  const later = Date.now() + 31 * 60_000;
  clock.now = () => later;
  mock.timers.tick(1000);
  await Promise.all([two.closed, third.closed]);
  t.equal(await streamsOf(service), 1, 'the session of the admin lasts longer');
  await service.close();
  await staying.closed;
  t.notMatch(logLines.join(''), 'cut off', 'nobody waits for it');
});

t.end();
