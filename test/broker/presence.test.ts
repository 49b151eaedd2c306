/** What a connection reports its device: from where it comes, where that is, and what it is called. */

import { renameSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { pino } from 'pino';
import type { Test } from 'tap';
import { Positions } from '../../src/core/network/positions.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { type DnsServer, startDns } from '../support/dns.ts';
import { watchStatements } from '../support/faults.ts';
import { geoDatabase } from '../support/mmdb.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { disconnected } from './conversation.ts';
import { type Fixture, fixture, sibling, versionOf } from './fixture.ts';
import { connectPacket, type RawClient, speak } from './raw.ts';

const t = await part(import.meta);

const [minute, hour] = [60_000, 60 * 60_000];
const berlin = [52.52, 13.405] as [number, number];
let now = Date.parse('2026-05-01T00:00:00Z');
let dns: DnsServer;
let f: Fixture;
const logLines: string[] = [];
/** Every state that `_updates/fields` tells the admin, by device. */
const told = new Map<string, object[]>();

t.before(async () => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'geo.mmdb');
  writeFileSync(file, geoDatabase({ '127.0.0.2': berlin, '127.0.0.4': berlin, '127.0.0.6': undefined }));
  dns = await startDns(t);
  const env = { SLIPWAY_GEOIP_DATABASE: file, SLIPWAY_DNS_SERVERS: dns.address };
  f = await fixture(t, env, { clock: { now: () => now }, logLines });
  const admin = await f.service.connect({ jwt: f.service.admin });
  admin.on('message', (topic, payload) => {
    const id = topic.split('/').at(-3) ?? '';
    told.set(id, [...(told.get(id) ?? []), JSON.parse(payload.toString()).state]);
  });
  await admin.subscribeAsync(f.service.topic('+', '_updates/fields'));
});

/** A connection of a device from an address of this machine. */
async function from(t: Test, address: string, { service, device, secret }: Fixture, clientId = 'raw') {
  const socket = connect({ port: service.server.mqttPort, host: '127.0.0.1', localAddress: address });
  t.teardown(() => socket.destroy());
  const client = speak(socket);
  client.send(connectPacket({ username: device.id, password: Buffer.from(secret), clientId }));
  t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
  return client;
}

async function leave(client: RawClient): Promise<void> {
  client.socket.destroy();
  await client.closed;
}

/** Lets time pass in which the admin is there: one that rests for twenty minutes hears no more. */
async function pass(milliseconds: number): Promise<void> {
  for (let left = milliseconds; left > 0; left -= 15 * minute) {
    now += Math.min(left, 15 * minute);
    await f.service.ok('GET', '/api/v1/profile/me');
  }
}

const read = async ({ device }: Fixture) => (await f.service.ok('GET', `/api/v1/devices/${device.id}`)).device;

/** All that has been told of a device, one change over the other. */
const known = ({ device }: Fixture) => Object.assign({}, ...(told.get(device.id) ?? []));
const connected = (one: Fixture, externalIp: string) =>
  until(() => known(one).connected === true && known(one).externalIp === externalIp);
const named = (one: Fixture, name: string | null) => until(() => known(one).reverseDns === name);

t.test(
  'a connection tells address, position and name, and changes neither version nor what people have set',
  async (t) => {
    dns.names.set('127.0.0.2', 'gateway.example.com');
    const one = await sibling(f);
    const set = { latitude: '1', longitude: '2' };
    await f.service.ok('PUT', `/api/v1/devices/${one.device.id}`, {
      body: set,
      headers: { etag: await versionOf(f.service, one.device.id) },
    });
    const { version, lastModified, lastModifiedById } = await read(one);
    now += 1000;
    await from(t, '127.0.0.2', one);
    await named(one, 'gateway.example.com');
    const found = {
      connected: true,
      externalIp: '127.0.0.2',
      geoIpLatitude: '52.52',
      geoIpLongitude: '13.405',
      reverseDns: 'gateway.example.com',
    };
    t.match(await read(one), { ...found, ...set, version, lastModified, lastModifiedById });
    t.match(known(one), found, 'subscribers of _updates/fields hear all of it');
  },
);

t.test('a new address without an answer takes position and name of the old one away', async (t) => {
  dns.names.set('127.0.0.2', 'gateway.example.com');
  const one = await sibling(f);
  const first = await from(t, '127.0.0.2', one);
  await connected(one, '127.0.0.2');
  await leave(first);
  await until(() => known(one).connected === false);
  await named(one, 'gateway.example.com');
  t.match(await read(one), { connected: false, geoIpLatitude: '52.52', reverseDns: 'gateway.example.com' });
  await from(t, '127.0.0.3', one);
  await connected(one, '127.0.0.3');
  const nothing = { externalIp: '127.0.0.3', geoIpLatitude: null, geoIpLongitude: null, reverseDns: null };
  t.match(await read(one), nothing);
  t.match(known(one), nothing);
});

t.test('an address without a position in the database has none', async (t) => {
  const one = await sibling(f);
  await from(t, '127.0.0.6', one);
  await connected(one, '127.0.0.6');
  t.match(await read(one), { geoIpLatitude: null, geoIpLongitude: null, reverseDns: null });
});

t.test('a name with characters that a host name cannot have is ignored', async (t) => {
  dns.names.set('127.0.0.7', '<script>alert(1)</script>.example.com');
  dns.names.set('127.0.0.8', 'honest.example.com');
  const [one, marker] = [await sibling(f), await sibling(f)];
  await from(t, '127.0.0.7', one);
  await connected(one, '127.0.0.7');
  await from(t, '127.0.0.8', marker);
  await named(marker, 'honest.example.com');
  t.match(await read(one), { reverseDns: null });
});

t.test('a name that comes late is not that of the next address, and the former one is gone at once', async (t) => {
  dns.names.set('127.0.0.2', 'gateway.example.com');
  dns.names.set('127.0.0.4', 'late.example.com');
  dns.names.set('127.0.0.5', 'known.example.com');
  const [one, other] = [await sibling(f), await sibling(f)];
  await leave(await from(t, '127.0.0.5', other));
  await named(other, 'known.example.com');
  await leave(await from(t, '127.0.0.2', one));
  await named(one, 'gateway.example.com');
  const answerNothing = dns.hold();
  const client = await from(t, '127.0.0.10', one);
  await connected(one, '127.0.0.10');
  t.match(await read(one), { externalIp: '127.0.0.10', reverseDns: null });
  await leave(client);
  answerNothing();
  const release = dns.hold();
  await leave(await from(t, '127.0.0.4', one));
  await from(t, '127.0.0.5', one);
  release();
  // Where the service has waited too long for the name, it asks again after a minute.
  now += minute;
  await from(t, '127.0.0.4', other);
  await named(other, 'late.example.com');
  await named(one, 'known.example.com');
  t.match(await read(one), { externalIp: '127.0.0.5', reverseDns: 'known.example.com', geoIpLatitude: null });
});

t.test('a name may take more than a second, also where others have come at once', async (t) => {
  dns.names.set('127.0.0.11', 'slow.example.com');
  const one = await sibling(f);
  const isNamed = () => known(one).reverseDns === 'slow.example.com';
  for (let tries = 0; tries < 10 && !isNamed(); tries += 1) {
    // After a minute the service asks again, should it have given up on a slow machine.
    now += minute;
    const release = dns.hold();
    const asked = performance.now();
    await leave(await from(t, '127.0.0.11', one));
    await until(() => performance.now() - asked > 1300);
    release();
    await until(() => isNamed() || performance.now() - asked > 4000);
  }
  t.ok(isNamed());
});

t.test('a name is asked for once an hour', async (t) => {
  dns.names.set('127.0.0.9', 'first.example.com');
  const one = await sibling(f);
  const count = () => dns.asked.filter((address) => address === '127.0.0.9').length;
  await leave(await from(t, '127.0.0.9', one));
  await named(one, 'first.example.com');
  dns.names.set('127.0.0.9', 'second.example.com');
  const two = await sibling(f);
  await pass(hour - 1);
  await leave(await from(t, '127.0.0.9', two));
  await named(two, 'first.example.com');
  t.equal(count(), 1, 'the answer is kept');
  now += 1;
  await leave(await from(t, '127.0.0.9', one));
  await named(one, 'second.example.com');
  t.equal(count(), 2);
});

t.test('a storm from many addresses is asked for a few at a time, and presence does not wait for it', async (t) => {
  const before = dns.asked.length;
  const release = dns.hold();
  const devices = [await sibling(f), await sibling(f)];
  const come = (n: number) => from(t, `127.0.1.${n + 1}`, devices[n % 2] as Fixture, `client ${n}`);
  const begun = performance.now();
  await Promise.all(Array.from({ length: 18 }, (_, n) => come(n)));
  for (const n of [18, 19]) await come(n);
  const [one, last] = devices as [Fixture, Fixture];
  await connected(last, '127.0.1.20');
  await connected(one, '127.0.1.19');
  const asked = dns.asked.length - before;
  // The service waits two seconds for an answer, and asks for others then.
  const times = 1 + Math.floor((performance.now() - begun) / 2000);
  t.ok(asked <= 8 * times, `${asked} questions in ${times} times two seconds`);
  dns.names.set('127.0.1.20', 'twentieth.example.com');
  release();
  await named(last, 'twentieth.example.com');
  t.equal(dns.asked.length - before, 20, 'each has its turn');
});

t.test('the log has one entry when the first connection of a device begins and one when its last ends', async (t) => {
  const one = await sibling(f);
  const entries = async () =>
    (await f.service.ok('GET', `/api/v1/devices/${one.device.id}/logs?severity=lifecycle`)).logs.results.map(
      ({ message, custom }) => [message, custom],
    );
  const first = await from(t, '127.0.0.2', one, 'first');
  const second = await from(t, '127.0.0.3', one, 'second');
  await disconnected(first);
  await disconnected(second);
  let found: unknown[] = [];
  await until(async () => {
    found = await entries();
    return found.length >= 2;
  });
  t.strictSame(found, [
    ['disconnected', { connected: false, clientId: 'second', address: '127.0.0.3' }],
    ['connected', { connected: true, clientId: 'first', address: '127.0.0.2' }],
  ]);
});

t.test('a takeover leaves the device connected', async (t) => {
  const one = await sibling(f);
  const first = await from(t, '127.0.0.2', one, 'same');
  await from(t, '127.0.0.3', one, 'same');
  await first.closed;
  await connected(one, '127.0.0.3');
  t.match(await read(one), { connected: true, externalIp: '127.0.0.3' });
});

t.test('what the registry could not take is written when it can, alike devices together', async (t) => {
  const siblings = await Promise.all(Array.from({ length: 6 }, () => sibling(f)));
  const [leaving, coming] = [siblings.slice(0, 3), siblings.slice(3)];
  const address = (n: number) => `127.0.2.${n + 1}`;
  const clients = await Promise.all(leaving.map((one, n) => from(t, address(n), one)));
  for (const [n, one] of leaving.entries()) await connected(one, address(n));
  const file = new Sqlite(join(f.service.directory, 'registry.db'));
  t.teardown(() => file.close());
  const failures = () => logLines.filter((line) => line.includes('presence could not be written')).length;
  const before = failures();
  file.exec(`CREATE TRIGGER "refusing" BEFORE INSERT ON "devicePresence" BEGIN SELECT RAISE(ABORT, 'no'); END`);
  for (const client of clients) await leave(client);
  await until(() => failures() > before);
  await Promise.all(coming.map((one, n) => from(t, address(n), one)));
  // All that is waiting is tried again together.
  const all = failures();
  await until(() => failures() > all);
  for (const one of leaving) t.match(await read(one), { connected: true }, 'as it was');
  const statements = watchStatements(t, f.service);
  file.exec('DROP TRIGGER "refusing"');
  await until(
    () =>
      leaving.every((one) => known(one).connected === false) && coming.every((one) => known(one).connected === true),
  );
  for (const one of leaving) t.match(await read(one), { connected: false });
  for (const [n, one] of coming.entries()) t.match(await read(one), { connected: true, externalIp: address(n) });
  const written = statements.filter(({ sql }) => sql.startsWith('INSERT INTO "devicePresence"'));
  t.equal(written.length, 2, 'one statement for those that have left, and one for those that have come');
});

t.test('a geo database that is replaced is read again, and a broken one leaves the former', async (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'geo.mmdb');
  const replace = (content: Buffer) => {
    writeFileSync(`${file}.new`, content);
    renameSync(`${file}.new`, file);
  };
  const lines: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
  replace(geoDatabase({ '192.0.2.7': berlin }));
  const positions = await Positions.open(file, log);
  t.teardown(() => positions.close());
  t.same(positions.of('192.0.2.7'), { latitude: '52.52', longitude: '13.405' });
  t.equal(positions.of('192.0.2.8'), undefined);
  t.equal(positions.of('c000:207::1'), undefined, 'not the IPv4 address that has these bits');
  t.equal(positions.of('no address'), undefined);
  replace(Buffer.from('half a download'));
  await until(() => lines.some((line) => line.includes('the former one is kept')));
  t.same(positions.of('192.0.2.7'), { latitude: '52.52', longitude: '13.405' });
  replace(geoDatabase({ '192.0.2.7': [-33.86, 151.2] }));
  await until(() => positions.of('192.0.2.7')?.latitude === '-33.86');
  t.same(positions.of('192.0.2.7'), { latitude: '-33.86', longitude: '151.2' });
});

t.test('a geo database that is missing or none stops the start with a sentence that names it', async (t) => {
  const directory = temporaryDirectory(t);
  writeFileSync(join(directory, 'text.mmdb'), 'no database');
  writeFileSync(join(directory, 'zeros.mmdb'), Buffer.alloc(4096));
  writeFileSync(join(directory, 'half.mmdb'), geoDatabase({ '192.0.2.7': berlin }).subarray(0, 200));
  for (const name of ['missing.mmdb', 'text.mmdb', 'zeros.mmdb', 'half.mmdb'])
    await t.rejects(
      startService(t, { env: { SLIPWAY_GEOIP_DATABASE: join(directory, name) } }),
      { name: 'ConfigError', message: /^SLIPWAY_GEOIP_DATABASE cannot be used: / },
      name,
    );
});

t.end();
