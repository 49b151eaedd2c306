import type { Test } from 'tap';
import { WebSocket } from 'ws';
import { interceptChecks } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { unlessBehindProxy } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { type Fixture, fixture, fixtureIn, rawConnected, sibling, stored } from './fixture.ts';
import { hits, metric } from './metrics.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

const t = await part(import.meta);

/** A connection that says, as a trusted proxy may, that it comes from `address`. */
async function from(t: Test, { service }: Fixture, address: string): Promise<RawClient> {
  const client = await rawClient(t, service.server.mqttPort);
  const version = address.includes(':') ? 6 : 4;
  client.send(Buffer.from(`PROXY TCP${version} ${address} ${version === 6 ? '::1' : '127.0.0.1'} 50000 1883\r\n`));
  return client;
}

/** The answer to a CONNECT of the fixture's device. */
async function answer(client: RawClient, { device, secret }: Fixture, more: object = {}): Promise<number> {
  client.send(connectPacket({ username: device.id, password: Buffer.from(secret), ...more }));
  const { cmd, returnCode } = (await client.next()) as { cmd: string; returnCode: number };
  if (cmd !== 'connack') throw new Error(`${cmd} instead of CONNACK`);
  return returnCode;
}

const asProxy = unlessBehindProxy('the test is the proxy in front of the cell, and gives the addresses itself');
const wrong = { password: Buffer.from('wrong') };
const trusting = { SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' };

t.test('connections', asProxy, async (t) => {
  const f = await fixture(t, {
    ...trusting,
    SLIPWAY_MQTT_MAX_CONNECTIONS: '6',
    SLIPWAY_MQTT_MAX_CONNECTIONS_PER_ADDRESS: '3',
    SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE: '2',
    SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '2',
  });
  const sockets = (count: number) => until(async () => (await metric(f, 'slipway_mqtt_sockets')) === count);

  await t.test(
    'one address has so many sockets, half-open ones too, and a closed one gives its place back',
    async (t) => {
      const first = await from(t, f, '203.0.113.1');
      for (let n = 0; n < 2; n += 1) await from(t, f, '203.0.113.1');
      await sockets(3);
      await (await from(t, f, '203.0.113.1')).closed;
      t.equal(await hits(f, 'max_connections_per_address'), 1);
      t.equal(await answer(await from(t, f, '203.0.113.2'), f), 0, 'another address has its own');
      first.socket.destroy();
      await sockets(3);
      t.equal(await answer(await from(t, f, '203.0.113.1'), f), 0);
    },
  );

  await sockets(0);
  await t.test('a network of IPv6 counts as one address', async (t) => {
    for (let n = 1; n <= 3; n += 1) await from(t, f, `2001:db8::${n}`);
    await sockets(3);
    await (await from(t, f, '2001:db8:0:0:ffff::1')).closed;
    t.equal(await answer(await from(t, f, '2001:db8:0:1::1'), f), 0);
    t.equal(await hits(f, 'max_connections_per_address'), 2);
  });

  await sockets(0);
  await t.test(
    'a network of 48 bits fails ten times as often as an address before its secrets are not tried',
    async (t) => {
      const attempt = async (address: string, more = {}) => answer(await from(t, f, address), f, more);
      let hashed = 0;
      const restore = interceptChecks(t, f.service, (verify) => {
        hashed += 1;
        return verify();
      });
      for (let n = 0; n < 20; n += 1) t.equal(await attempt(`2001:db8:48:${n}::1`, wrong), 4);
      t.equal(hashed, 40, 'two for each guess');
      t.equal(await attempt('2001:db8:48:ffff::1', wrong), 4);
      t.equal(hashed, 40, 'nothing is hashed for an address of this network any more');
      t.equal(await attempt('2001:db8:49::1', wrong), 4);
      t.equal(hashed, 42, 'the next network');
      restore();
    },
  );

  await sockets(0);
  await t.test('there are so many sockets in all, WebSockets among them', async (t) => {
    const url = f.service.webSocket();
    const webSocket = new WebSocket(url, ['mqtt']);
    await new Promise((resolve) => webSocket.once('open', resolve));
    for (let n = 1; n <= 5; n += 1) await from(t, f, `203.0.113.${n}`);
    await sockets(6);
    await (await rawClient(t, f.service.server.mqttPort)).closed;
    const refused = new WebSocket(url, ['mqtt']);
    const body = await new Promise((resolve) =>
      refused.once('unexpected-response', (_, response) => {
        t.equal(response.statusCode, 503);
        response.once('data', (text) => resolve(`${text}`));
      }),
    );
    t.equal(body, 'over the limit max_connections');
    t.equal(await hits(f, 'max_connections'), 2);
    webSocket.terminate();
    await sockets(5);
    t.equal(await answer(await from(t, f, '203.0.113.9'), f), 0);
  });

  await sockets(0);
  await t.test(
    'a principal has a maximum of connections; a client that reconnects with its client id does not count twice',
    async (t) => {
      const other = await sibling(f);
      t.equal(await answer(await from(t, f, '203.0.113.1'), f, { clientId: 'a' }), 0);
      const second = await from(t, f, '203.0.113.2');
      t.equal(await answer(second, f, { clientId: 'b' }), 0);
      const third = await from(t, f, '203.0.113.3');
      t.equal(await answer(third, f, { clientId: 'c' }), 3);
      await third.closed;
      t.equal(await hits(f, 'max_connections_per_device'), 1);
      t.equal(await answer(await from(t, f, '203.0.113.4'), f, { clientId: 'b' }), 0);
      await second.closed;
      t.equal(await answer(await from(t, f, '203.0.113.5'), other), 0, 'another principal has its own');
      const nameless = await from(t, f, '203.0.113.6');
      t.equal(await answer(nameless, f, { clientId: '' }), 3, 'one without an id takes nobody over');
      await nameless.closed;
    },
  );
});

t.test('past the connect rate of an address its sockets wait for their turn, and others do not', asProxy, async (t) => {
  const f = await fixture(t, {
    ...trusting,
    SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '20',
    SLIPWAY_MQTT_CONNECT_RATE_PER_ADDRESS: '1',
  });
  const begun = performance.now();
  const [first, second] = [await from(t, f, '203.0.113.1'), await from(t, f, '203.0.113.1')];
  t.equal(await answer(first, f, { clientId: '' }), 0);
  t.equal(await answer(second, f, { clientId: '' }), 0);
  t.ok(performance.now() - begun > 950, 'one a second');
  const waited = async () => (await hits(f, 'connect_rate_per_address')) ?? 0;
  const before = await waited();
  // At once, from an address of their own: behind one that came a second ago the first would not wait.
  const many = await Promise.all(Array.from({ length: 18 }, () => from(t, f, '203.0.113.4')));
  await until(async () => (await waited()) === before + 17);
  // It has its turn after those, in about 18 seconds.
  const client = await from(t, f, '203.0.113.4');
  const last = answer(client, f, { clientId: '' }).then(() => 'last');
  last.catch(() => {});
  await until(async () => (await waited()) === before + 18);
  const other = from(t, f, '203.0.113.2').then(async (client) => `${await answer(client, f)}`);
  t.equal(await Promise.race([other, last]), '0');
  for (const { socket } of [...many, client]) socket.destroy();
  const tooMany = await Promise.all(Array.from({ length: 30 }, () => from(t, f, '203.0.113.3')));
  let closed = 0;
  for (const one of tooMany) void one.closed.then(() => (closed += 1));
  // Which of them are the last is not known here.
  const asked = performance.now();
  await until(() => closed >= 5);
  t.ok(performance.now() - asked < 15_000, 'who would wait longer than the deadline is closed at once');
  for (const { socket } of tooMany) socket.destroy();
});

t.test('rates', asProxy, async (t) => {
  let ahead = 0;
  const logLines: string[] = [];
  const clock = { now: () => Date.now() + ahead };
  const f = await fixture(
    t,
    {
      ...trusting,
      SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '4',
      SLIPWAY_MQTT_CONNECT_RATE_PER_ADDRESS: '10',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '5',
      SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '2',
      SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '100',
    },
    { clock, logLines },
  );

  await t.test('past the wrong secrets of a principal from an address nothing is hashed for it there', async (t) => {
    let hashed = 0;
    let held = Promise.resolve();
    interceptChecks(t, f.service, async (verify) => {
      hashed += 1;
      await held;
      return verify();
    });
    const device = await sibling(f);
    const attempt = async (address: string, more = {}) => answer(await from(t, f, address), device, more);
    for (let n = 0; n < 2; n += 1) t.equal(await attempt('203.0.113.4', wrong), 4);
    // Two for each guess: there may be a former secret in force.
    t.equal(hashed, 4);
    t.equal(await attempt('203.0.113.4', wrong), 4);
    t.equal(await attempt('203.0.113.4'), 4, 'nor is the right one, which nobody has proven yet');
    t.equal(hashed, 4);
    t.equal(await hits(f, 'failed_connects_per_principal'), 2);
    t.equal(await attempt('203.0.113.5'), 0, 'elsewhere the device gets in');
    t.equal(await attempt('203.0.113.4'), 0, 'and now, having proven its secret, here too');
    t.equal(await attempt('203.0.113.4', wrong), 4, 'but nobody else does');
    ahead += 60_001;
    const sockets = async () => Number(await metric(f, 'slipway_mqtt_sockets'));
    const calm = await rawConnected(t, f);
    // Its own, and the last one of the device: those that were refused have gone.
    const left = 2;
    /** CONNECTs of which none is answered before all have come. */
    const atOnce = async (connect: () => Promise<number>) => {
      await until(async () => (await sockets()) === left);
      let release = () => {};
      held = new Promise((resolve) => {
        release = resolve;
      });
      const answers = Promise.all(Array.from({ length: 8 }, connect));
      await until(async () => (await sockets()) === left + 8);
      for (let n = 0; n < 5; n += 1) {
        calm.send({ cmd: 'pingreq' });
        await calm.next();
      }
      release();
      return answers;
    };
    hashed = 0;
    const guesses = await atOnce(() => attempt('203.0.113.8', wrong));
    t.same([guesses, hashed], [Array(8).fill(4), 4], 'not even when they come all at once');
    const busy = await sibling(f);
    const logins = await atOnce(async () => answer(await from(t, f, '203.0.113.9'), busy, { clientId: '' }));
    t.same(logins, Array(8).fill(0), 'and many right ones at once are no guesses');
    const late = await sibling(f);
    t.equal(await answer(await from(t, f, '203.0.113.4'), late), 0);
  });

  await t.test('past the failures of an address they are answered late there, successes at once', async (t) => {
    ahead += 60_001;
    const before = (await hits(f, 'failed_connects_per_address')) ?? 0;
    for (let n = 0; n < 5; n += 1)
      t.equal(await answer(await from(t, f, '203.0.113.6'), f, { ...wrong, username: `x${n}` }), 4);
    t.equal(await hits(f, 'failed_connects_per_address'), before);
    const failing = answer(await from(t, f, '203.0.113.6'), f, { ...wrong, username: 'y' });
    // Together: the late answer waits for two seconds.
    const others = Promise.all([
      from(t, f, '203.0.113.6').then((client) => answer(client, f)),
      from(t, f, '203.0.113.7').then((client) => answer(client, f, wrong)),
    ]);
    t.same(await Promise.race([failing, others]), [0, 4], 'the right secret, and a wrong one from elsewhere');
    t.equal(await failing, 4, 'it is answered in the end');
    t.equal(await hits(f, 'failed_connects_per_address'), before + 1);
  });

  await t.test(
    'a client past the publish rate is slowed down: nothing is lost, and others notice nothing',
    async (t) => {
      const other = await sibling(f);
      const [fast, calm] = [await rawConnected(t, f, { clientId: 'fast' }), await rawConnected(t, other)];
      const sent = Array.from({ length: 300 }, (_, n) => n + 1);
      const begun = performance.now();
      fast.send(...sent.map((n) => publishPacket(f.topic('temperature'), `${n}`, { qos: 1, messageId: n })));
      const acknowledged: Array<number | undefined> = [];
      const all = (async () => {
        while (acknowledged.length < sent.length) acknowledged.push((await fast.next()).messageId);
      })();
      calm.send(publishPacket(other.topic('temperature'), '1', { qos: 1, messageId: 1 }));
      t.match(await calm.next(), { cmd: 'puback' });
      t.ok(acknowledged.length < 300);
      await all;
      const took = performance.now() - begun;
      t.ok(took > 1900, `a hundred at once and a hundred a second: ${Math.round(took)} ms`);
      t.same(acknowledged, sent, 'each is acknowledged, in order');
      t.equal((await stored(f)).length, 300);
      t.equal(await hits(f, 'publish_rate_per_client'), 1, 'once for the whole row');

      fast.send(...sent.map((n) => publishPacket(f.topic('temperature'), `${n}`, { qos: 1, messageId: n })));
      await fast.next();
      ahead += 30_001;
      await fast.closed;
      t.ok(((await hits(f, 'publish_rate_per_client')) ?? 0) >= 2, 'anyone who stays over it for long is disconnected');
      t.ok(logLines.some((line) => /"limit":"publish_rate_per_client"/.test(line)));
      calm.send({ cmd: 'pingreq' });
      t.match(await calm.next(), { cmd: 'pingresp' });
    },
  );

  await until(async () => (await metric(f, 'slipway_mqtt_sockets')) === 0);
  t.pass('anyone who has left, before its turn or after, holds no place');
});

const inCell = unlessBehindProxy('HAProxy ends connections without a CONNECT before they reach the cell');
t.test('every other limit is counted under its name, and lets others through', inCell, async (t) => {
  let ahead = 0;
  const clock = { now: () => Date.now() + ahead };
  const f = await fixture(
    t,
    {
      // Of those that are let in, none may need longer on a busy machine.
      SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '2',
      SLIPWAY_MQTT_MAX_PACKET_BYTES_BEFORE_CONNECT: '1000',
      SLIPWAY_MQTT_MAX_PAYLOAD_BYTES: '1000',
      SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '2',
      SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '1',
      SLIPWAY_MQTT_MAX_TOPIC_LEVELS: '8',
      SLIPWAY_MQTT_MAX_KEEPALIVE_SECONDS: '60',
      SLIPWAY_MQTT_MAX_QUEUE: '2',
      SLIPWAY_MQTT_SESSION_EXPIRY_HOURS: '1',
    },
    { clock },
  );
  const port = f.service.server.mqttPort;
  const calm = await rawConnected(t, f, { clientId: 'calm' });
  const once = async (limit: Parameters<typeof hits>[1]) => t.equal(await hits(f, limit), 1, limit);

  await (await rawClient(t, port)).closed;
  await once('connect_timeout_seconds');

  const large = await rawClient(t, port);
  large.send(connectPacket({ username: 'x'.repeat(1000) }));
  await large.closed;
  await once('max_packet_bytes_before_connect');

  const webSocket = new WebSocket(f.service.webSocket(), ['mqtt']);
  webSocket.on('error', () => {});
  webSocket.once('open', () => webSocket.send(Buffer.alloc(600_000, 0x10)));
  await new Promise((resolve) => webSocket.once('close', resolve));
  t.equal(await hits(f, 'max_packet_bytes_before_connect'), 2);

  for (const [count, length] of [1001, 9000].entries()) {
    const heavy = await rawConnected(t, f, { clientId: 'heavy' });
    heavy.send(publishPacket(f.topic('chat'), Buffer.alloc(length), { qos: 1, messageId: 1 }));
    await heavy.closed;
    t.equal(await hits(f, 'max_payload_bytes'), count + 1);
  }

  const deep = await rawConnected(t, f, { clientId: 'deep' });
  deep.send(publishPacket(f.topic('a/b/c/d'), 'x'));
  await deep.closed;
  await once('max_topic_levels');

  const stubborn = await rawConnected(t, f, { clientId: 'stubborn' });
  stubborn.send(...Array(3).fill(publishPacket(f.topic('nothing'), 'x')));
  await stubborn.closed;
  await once('refusals_per_minute');

  const greedy = await rawConnected(t, f, { clientId: 'greedy' });
  greedy.send(subscribePacket(1, [f.topic('chat'), 0]));
  t.match(await greedy.next(), { granted: [0] });
  greedy.send(subscribePacket(2, [f.topic('temperature'), 0]));
  t.match(await greedy.next(), { granted: [0x80] });
  await once('max_subscriptions');

  t.equal(await hits(f, 'max_keepalive_seconds'), 0);
  await rawConnected(t, f, { clientId: 'asleep', keepalive: 600 });
  await once('max_keepalive_seconds');

  const keeper = await rawConnected(t, f, { clientId: 'keeper', clean: false });
  keeper.send(subscribePacket(1, [f.topic('chat'), 1]));
  t.match(await keeper.next(), { granted: [1] });
  keeper.send({ cmd: 'disconnect' });
  await keeper.closed;
  for (let messageId = 1; messageId <= 3; messageId += 1) {
    calm.send(publishPacket(f.topic('chat'), 'x', { qos: 1, messageId }));
    t.match(await calm.next(), { cmd: 'puback', messageId });
  }
  await once('max_queue');
  ahead += 3_600_001;
  await until(async () => Number(await hits(f, 'session_expiry_hours')) > 0);
  await once('session_expiry_hours');

  calm.send({ cmd: 'pingreq' });
  t.match(await calm.next(), { cmd: 'pingresp' });
});

t.test('by default a device has 20 connections and a user 200', async (t) => {
  const f = await fixtureIn(await sharedService(t));
  const user = { username: 'Auth:JWT', password: Buffer.from(f.service.admin) };
  const open = async (count: number, login: object) => {
    let refused = 0;
    for (let n = 0; n < count; n += 1) {
      const client = await rawClient(t, f.service.server.mqttPort);
      if ((await answer(client, f, { ...login, clientId: `${n}` })) === 3) refused += 1;
    }
    return refused;
  };
  t.equal(await open(21, {}), 1);
  t.equal(await open(201, user), 1);
});

t.end();
