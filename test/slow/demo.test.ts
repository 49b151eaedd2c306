/** `npm run demo` with `--keep`, and broken off: what it shows, how it ends, what it leaves behind. */
import { once } from 'node:events';
import { mkdirSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { signalGroup, startDemo } from '../flows/demo.ts';
import { startProcess } from '../support/process.ts';
import type { Anything } from '../support/service.ts';
import { until } from '../support/until.ts';

const json = async (response: Response) => (await response.json()) as Anything;

t.test('npm run demo -- --keep fills below any point rate, ends 0 on Ctrl-C, and can be started again', async (t) => {
  // It sends 130,000 points, which few machines would take eleven seconds for.
  const demo = startDemo(t, '--keep', { SLIPWAY_MQTT_POINT_RATE_PER_CLIENT: '12000' });
  await demo.said('Ctrl-C ends it.');
  const [, url = ''] = /Open (http\S+)\/console\//.exec(demo.output()) ?? [];
  t.equal((await fetch(`${url}/console/`)).status, 200);
  const [, emailAddress] = /email address {2}(\S+)/.exec(demo.output()) ?? [];
  const [, password] = /password {7}(\S+)/.exec(demo.output()) ?? [];
  const login = async (url: string) => {
    const headers = { 'content-type': 'application/json' };
    const { accountId } = await json(await fetch(`${url}/api/v1/auth/default-account`));
    const body = JSON.stringify({ accountId, emailAddress, password });
    return json(await fetch(`${url}/api/v1/auth/login-user`, { method: 'POST', headers, body }));
  };
  const { jwt } = await login(url);
  const read = async (path: string) =>
    json(await fetch(`${url}/api/v1${path}`, { headers: { authorization: `Bearer ${jwt}` } }));
  const { usage } = await read('/usage');
  t.ok(usage.points > 120_000, `${usage.points} points`);
  const points = usage.limits.find(({ name }: { name: string }) => name === 'accountMessagesBytes');
  t.equal(points?.limit, 0, 'new points do not remove the past day');
  const { accountId } = await read('/profile/me');
  // Of 120 devices five have left; one of a job of three rows was made, and twelve have enrolled.
  const countsNow = async () => (await read(`/devices/counts?accountId=${accountId}`)).counts;
  await until(async () => (await countsNow()).connected === 115);
  t.equal((await countsNow()).total, 511);
  // Silent devices come after a quarter of an hour.
  const kinds = [
    ...['devicesOffline', 'refusals', 'rolloutPaused', 'rolloutFailing', 'jobFailed'],
    ...['bridgeBehind', 'bridgeDeadLetters', 'certificatesExpiring', 'limit'],
  ];
  await until(async () => {
    const { attention, recent } = (await read(`/overview?accountId=${accountId}`)).overview;
    const has = (kind: string) => attention.some((row) => row.kind === kind);
    return kinds.every(has) && recent.some((row) => row.kind === 'claim');
  });
  signalGroup(demo.child, 'SIGINT');
  t.equal(await demo.ended, 0, demo.output());

  const again = startDemo(t, '--keep', {}, demo.directory);
  t.equal(await again.ended, 1);
  t.match(again.output(), /demo-data exists\. Start it with SLIPWAY_DATA_DIR=demo-data npm start, or remove it/);
  const server = await startProcess(t, join(demo.directory, 'demo-data'), {
    SLIPWAY_ADMIN_EMAIL: undefined,
    SLIPWAY_ADMIN_PASSWORD: undefined,
  });
  t.match(await login(server.url), { jwt: String }, 'as the message says');
  await server.stop('SIGTERM');
});

t.test('a demo that is interrupted or fails cleans up and says why; --keep removes only what it made', async (t) => {
  const story = startDemo(t);
  await story.said('Log in as the admin');
  story.child.kill('SIGINT');
  t.equal(await story.ended, 130);
  t.match(story.output(), /The demo was interrupted\.\n$/);
  t.same(readdirSync(story.temporary), []);

  const filling = startDemo(t, '--keep');
  await filling.said('4 products');
  signalGroup(filling.child, 'SIGINT');
  t.equal(await filling.ended, 0);
  t.match(filling.output(), /demo-data was not filled, and has been removed\.\n\nThe demo was interrupted\.\n$/);
  t.same(readdirSync(filling.directory), []);

  const busy = createServer().listen(0, '127.0.0.1');
  await once(busy, 'listening');
  t.teardown(() => busy.close());
  const port = String((busy.address() as AddressInfo).port);
  const refused = startDemo(t, '--keep', { SLIPWAY_HTTP_PORT: port }, filling.directory);
  t.equal(await refused.ended, 1);
  t.match(refused.output(), /SLIPWAY_HTTP_PORT[\s\S]*The demo failed: the server ended with 1 before it listened/);
  t.same(readdirSync(refused.directory), [], 'so that it can be started again');

  mkdirSync(join(filling.directory, 'demo-data'));
  t.equal(await startDemo(t, '--keep', {}, filling.directory).ended, 1);
  t.same(readdirSync(filling.directory), ['demo-data']);
  const unknown = startDemo(t, '--kept');
  t.equal(await unknown.ended, 2);
  t.equal(unknown.output(), 'Usage: npm run demo [-- --keep]\n');
});
