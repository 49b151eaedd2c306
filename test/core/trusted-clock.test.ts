/** A clock that jumps ahead deletes nothing: what is old enough is decided by the time that has passed. */
import { existsSync, readdirSync, renameSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { decodeProtectedHeader } from 'jose';
import { lastWritten } from '../../src/core/trusted-clock.ts';
import { rotateKeys } from '../../src/identity/sessions/tokens.ts';
import { fixtureIn } from '../broker/fixture.ts';
import { connected, leave, published, subscribed } from '../broker/level5/client.ts';
import { devices, publish, rollOut, rollout, rolloutUntil } from '../firmware/fleet.ts';
import { purgeNow } from '../support/clockwork.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const [hour, day] = [60 * 60_000, 24 * 60 * 60_000];
const real = Date.parse('2026-05-01T00:00:00Z');
let [ahead, passed, fraction] = [0, 0, 0];
/** As of a machine, the monotonic clock has parts of milliseconds. */
function monotonic(): number {
  fraction += 0.001;
  return passed + fraction;
}
const clock = { now: () => real + passed + ahead, monotonic };
const env = { SLIPWAY_RETENTION_DAYS: '30' };

const logLines: string[] = [];
let service: Service;
let deviceId: string;
let topic: string;
const points = async (): Promise<number> => {
  await purgeNow(service);
  return countStored(service, 'points', undefined, undefined, 'messages.db');
};
const attention = async () => {
  const { overview } = await service.ok('GET', `/api/v1/overview?accountId=${service.accountId}`);
  return (overview.attention as Array<{ kind: string; count: number }>).filter(({ kind }) => kind === 'clockDoubted');
};
const doubt = () => existsSync(join(service.directory, 'clock-doubt'));
const slipway = (...args: string[]) => runCommand([...args, '--data-dir', service.directory]);

t.before(async () => {
  service = await startService(t, { clock, env, logLines });
  const template = await service.template({ channels: ['data'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  deviceId = device.id;
  topic = service.topic(deviceId, 'data');
  const client = await service.connect({ deviceId, secret });
  await client.publishAsync(topic, ',x,1,', { qos: 1 });
});

t.test('a jump of 400 days deletes no point, is said on Home and by the doctor, and ends with the clock', async (t) => {
  t.equal(await points(), 1);
  ahead = 400 * day;
  await service.login();
  t.equal(await points(), 1);
  t.match(await attention(), [{ count: 400 }]);
  await service.ok('POST', `/api/v1/devices/${deviceId}/commands`, { body: { name: 'blink' } });
  t.match(
    (await slipway('doctor', '--skip-integrity')).stdout,
    /clock has jumped ahead, from 2026-05-01T.*slipway clock confirm/,
  );
  ahead = 0;
  await service.login();
  t.equal(await points(), 1);
  t.same(await attention(), []);
  t.notOk(doubt());
  const told = logLines.map((line) => JSON.parse(line).msg).filter((msg) => /^the clock /.test(msg));
  t.match(told, [/^the clock has jumped ahead: nothing is deleted/, 'the clock is right again']);
});

t.test('a clock that stays ahead is believed after a day, and what ages meanwhile goes as usual', async (t) => {
  ahead = 20 * day;
  passed += hour;
  await service.login();
  t.equal(await points(), 1);
  t.ok(doubt());
  passed += 23 * hour;
  t.equal(await points(), 1);
  passed += hour;
  t.equal(await points(), 1, 'twenty-one days old');
  t.notOk(doubt());
  t.same(await attention(), []);
});

t.test('who confirms the clock has the old deleted', async (t) => {
  ahead += 100 * day;
  await service.login();
  t.equal(await points(), 1);
  const { code, stdout, stderr } = await slipway('clock', 'confirm');
  t.equal(code, 0, stderr);
  t.match(JSON.parse(stdout), { before: /^2026-05-22/ });
  passed += 2000;
  t.equal(await points(), 0);
  t.same(await attention(), []);
});

t.test('sessions and messages of the time of a jump are judged when it is believed, and not before', async (t) => {
  ahead = passed = 0;
  const own = await startService(t, { clock, env });
  const f = await fixtureIn(own);
  const kept = { clientId: 'kept', properties: { sessionExpiry: 3600 } };
  const come = () => connected(t, f, { ...kept, clean: false });
  const away = await connected(t, f, kept);
  t.same(await subscribed(away, [[f.topic('chat'), { qos: 1 }]]), [1]);
  await leave(away);
  const sender = await connected(t, f, { clientId: 'sender' });
  await published(sender, f.topic('chat'), 'before', { properties: { messageExpiry: 600 } });
  ahead = 400 * day;
  await published(sender, f.topic('chat'), 'of the jump');
  const back = await come();
  t.same([(await back.next()).payload, (await back.next()).payload], ['before', 'of the jump'], 'nothing has expired');
  await leave(back);
  t.equal((await runCommand(['clock', 'confirm', '--data-dir', own.directory])).code, 0);
  passed += 2000;
  t.equal(own.server.ctx.ages.ahead, 0);
  t.equal((await come()).connack.sessionPresent, true, 'it left two seconds ago');
});

t.test(
  'what is due goes by the time that has passed: commands, deadlines of updates, starts of rollouts',
  async (t) => {
    ahead = passed = 0;
    const own = await startService(t, { clock, env });
    const at = (milliseconds: number) => new Date(clock.now() + milliseconds).toISOString();
    const release = async (more: object = {}) => {
      const template = await own.template();
      const [device] = await devices(own, template.id, 1);
      const target = { deviceIds: [device?.id ?? ''] };
      const made = await rollOut(own, await publish(own, template.id, '1'), { target, ...more });
      return { id: made.id, deviceId: device?.id ?? '' };
    };
    const begun = await release({ deviceDeadlineSeconds: 3600 });
    await rolloutUntil(own, begun.id, ({ counts }) => counts.pending === 1);
    const stages = [{ percent: 50, pauseSeconds: 3600 }, { percent: 100 }];
    const [soon, later] = [await release({ startAt: at(1500), stages }), await release({ startAt: at(2 * day) })];
    const path = `/api/v1/devices/${begun.deviceId}/commands`;
    const command = async (expiresAt: string) =>
      (await own.ok('POST', path, { body: { name: 'x', expiresAt } })).command.id;
    const stateOf = async (id: string) => (await own.ok('GET', `${path}/${id}`)).command.state;
    const [short, long] = [await command(at(1500)), await command(at(hour))];
    ahead = 400 * day;
    await own.login();
    passed += 2000;
    await until(
      () => stateOf(short),
      (state) => state === 'expired',
    );
    const begins = await rolloutUntil(own, soon.id, ({ state }) => state === 'running');
    t.equal(begins.stage, 1);
    t.equal(await stateOf(long), 'queued');
    t.equal((await rollout(own, later.id)).state, 'scheduled');
    t.match(await rollout(own, begun.id), { state: 'running', counts: { pending: 1 } });
    // They come to their time as on any other day.
    passed += 2 * hour;
    await until(
      () => stateOf(long),
      (state) => state === 'expired',
    );
    await rolloutUntil(own, begun.id, ({ counts }) => counts.timedOut === 1);
    // Its first stage began while the clock was ahead.
    await rolloutUntil(own, soon.id, ({ stage }) => stage === 2);
  },
);

t.test(
  'a rotation of keys by a doubted clock removes none, and the new key signs whatever the clock was',
  async (t) => {
    ahead = passed = 0;
    const own = await startService(t, { clock, env });
    const directory = join(own.directory, 'keys');
    const rotate = async (...more: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runCommand(['keys', 'rotate', ...more, '--data-dir', own.directory]);
      t.equal(code, 0, stderr);
      return JSON.parse(stdout).kid;
    };
    const keys = () => readdirSync(directory).filter((name) => name.endsWith('.json'));
    const signedBy = async () => {
      await own.login();
      return decodeProtectedHeader(own.admin).kid;
    };
    const spring = new Date(clock.now()).toISOString().replace(/[:.]/g, '-');
    for (const name of keys()) renameSync(join(directory, name), join(directory, `${spring}-first.json`));
    await rotateKeys(directory, clock);
    ahead = Date.now() - real;
    await purgeNow(own);
    t.ok(ahead > 101 * day && existsSync(join(own.directory, 'clock-doubt')));
    const second = await rotate();
    t.equal(keys().length, 3, 'the first two signed a moment ago');
    await until(signedBy, (kid) => kid === second);
    t.equal((await runCommand(['clock', 'confirm', '--data-dir', own.directory])).code, 0);
    await rotate();
    t.equal(keys().length, 2, 'those of spring are over');

    await rotateKeys(directory, { now: () => Date.now() + 400 * day });
    const next = await rotate();
    await until(signedBy, (kid) => kid === next);
    await rotate('--end-old');
    t.equal(keys().length, 1, 'also the one that is ahead');
  },
);

t.test('a start long after the last write does not believe the clock, until it is confirmed', async (t) => {
  const directory = temporaryDirectory(t);
  const plain = { now: () => Date.now() + 400 * day, monotonic: () => performance.now() };
  const first = await startService(t, { directory, env });
  await first.close();
  const last = lastWritten(directory);
  const second = await startService(t, { directory, env, clock: plain });
  t.ok(second.server.ctx.ages.ahead > 399 * day);
  t.ok(Math.abs(second.server.ctx.ages.now() - last) < hour);
  await second.close();
  const third = await startService(t, { directory, env });
  t.equal(third.server.ctx.ages.ahead, 0, 'with the clock back');
  await third.close();
  for (const name of ['registry.db', 'messages.db', 'version', 'changed'])
    if (existsSync(join(directory, name))) utimesSync(join(directory, name), 1, 1);
  t.equal((await runCommand(['clock', 'confirm', '--data-dir', directory])).code, 0);
  const fourth = await startService(t, { directory, env, clock: { ...plain, now: Date.now } });
  t.equal(fourth.server.ctx.ages.ahead, 0, 'confirmed before the start');
});

t.end();
