/** A mixed fleet updates while the server is killed: what each device says, and what the rollout has of it. */
import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { temporaryDirectory } from '../../support/directory.js';
import { type Made, startService } from '../../support/service.js';
import { devices, publish } from '../fleet.js';
import { type Played, play, startKillable } from './played.js';

const ways = ['http', 'json', 'cbor'];

export interface FleetSize {
  devices: number;
  /** Devices that are never switched on. */
  absent: number;
  stages: Array<{ percent: number; pauseSeconds?: number }>;
  deviceDeadlineSeconds: number;
}

/** Proves that every device of a fleet ends in a state that is true. */
export async function proveFleet(t: Test, { devices: count, absent, stages, deviceDeadlineSeconds }: FleetSize) {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const template = await service.template();
  const made = await devices(service, template.id, count);
  const firmware = await publish(service, template.id, '2.0', { 'app.bin': randomBytes(30_000) });
  const { accountId } = service;
  await service.close();
  const server = await startKillable(t, directory, accountId);
  const { firmwareRollout } = await server.call('POST', '/firmware/rollouts', {
    ...{ accountId, firmwarePackageId: firmware.id, stages, deviceDeadlineSeconds, maxFailurePercent: 100 },
    target: { filter: { deviceTemplateId: template.id } },
  });
  const fleet: Played[] = made.slice(absent).map((device, n) => ({
    ...device,
    way: ways[n % 3] ?? '',
    ...(n % 33 === 7 && { fail: true }),
    ...(n % 5 === 1 && { losePowerAt: 40 }),
    ...(n % 7 === 2 && { disconnectAt: 60 }),
    ...(n % 11 === 3 && { slow: true }),
  }));
  const { said, ended, until } = play(t, server, accountId, fleet);
  for (const share of [0.03, 0.4]) {
    await until(Math.ceil(fleet.length * share));
    await server.kill();
  }
  await ended;
  t.equal(said.size, fleet.length, 'every device has come to an end');
  const path = `/firmware/rollouts/${firmwareRollout.id}`;
  // Those that are absent end by their deadline, a time that no event reports here.
  let rollout: Made<'firmwareRollout'>;
  do {
    ({ firmwareRollout: rollout } = await server.call('GET', path));
    if (rollout.state !== 'finished') await new Promise((resolve) => setTimeout(resolve, 200));
  } while (rollout.state !== 'finished');
  const stored = new Map<string, string>();
  for (let page = 1; stored.size < count; page += 1) {
    const { devices: rows } = await server.call('GET', `${path}/devices?pageSize=1000&page=${page}`);
    for (const { deviceId, state } of rows.results) stored.set(deviceId, state);
  }
  const wrong = fleet.filter(({ id, fail }) => {
    const expected = said.get(id) === 'gone' ? 'timedOut' : fail ? 'failed' : 'succeeded';
    return stored.get(id) !== expected;
  });
  t.same(wrong, [], 'each state is true');
  t.equal(
    made.slice(0, absent).filter(({ id }) => stored.get(id) === 'timedOut').length,
    absent,
    'absent devices timed out',
  );
  const failed = fleet.filter(({ fail }) => fail).length;
  t.ok(rollout.counts.failed <= failed, `${failed} wrong hashes`);
  return rollout;
}

/** Proves that a rollout pauses itself when too many devices of a stage fail, and that the rest is left alone. */
export async function provePause(t: Test, count: number) {
  const directory = temporaryDirectory(t);
  const service = await startService(t, { directory });
  const template = await service.template();
  const made = await devices(service, template.id, count);
  const firmware = await publish(service, template.id, '2.0');
  const { accountId } = service;
  await service.close();
  const server = await startKillable(t, directory, accountId);
  const { firmwareRollout } = await server.call('POST', '/firmware/rollouts', {
    ...{ accountId, firmwarePackageId: firmware.id, target: { filter: { deviceTemplateId: template.id } } },
    ...{ stages: [{ percent: 25, pauseSeconds: 3600 }, { percent: 100 }], maxFailurePercent: 20 },
  });
  const path = `/firmware/rollouts/${firmwareRollout.id}`;
  const { child } = play(
    t,
    server,
    accountId,
    made.map((device, n) => ({ ...device, way: ways[n % 3] ?? '', fail: true })),
  );
  let rollout: Made<'firmwareRollout'>;
  do ({ firmwareRollout: rollout } = await server.call('GET', path));
  while (rollout.state === 'scheduled' || rollout.state === 'running');
  await server.kill();
  ({ firmwareRollout: rollout } = await server.call('GET', path));
  t.match(rollout, { state: 'paused', stage: 1, reason: /have failed/ }, 'it has paused itself, also after kill -9');
  const begun = Object.values(rollout.counts as Record<string, number>).reduce((sum, one) => sum + one, 0);
  t.ok(begun <= Math.ceil(count / 4), 'the next stage has not begun');
  child.kill('SIGKILL');
  await server.call('POST', `${path}/cancel`);
  ({ firmwareRollout: rollout } = await server.call('GET', path));
  t.equal(rollout.counts.failed + rollout.counts.cancelled, begun, 'nothing is stuck');
}
