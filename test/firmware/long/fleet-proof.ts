/** A mixed fleet updates while the server is killed: what each device says, and what the rollout has of it. */
import type { Test } from 'tap';
import type { Made } from '../../support/service.ts';
import { type Ground, type Group, type Played, play } from './played.ts';

const ways = ['http', 'json', 'cbor'];

export interface FleetPlan {
  /** Devices that are never switched on. */
  absent: number;
  stages: Array<{ percent: number; pauseSeconds?: number }>;
  deviceDeadlineSeconds: number;
}

/** Proves that every device of a fleet ends in a state that is true. */
export async function proveFleet(
  t: Test,
  { server, accountId }: Ground,
  { templateId, devices: made, firmware }: Group,
  { absent, stages, deviceDeadlineSeconds }: FleetPlan,
) {
  const { firmwareRollout } = await server.call('POST', '/firmware/rollouts', {
    ...{ accountId, firmwarePackageId: firmware.id, stages, deviceDeadlineSeconds, maxFailurePercent: 100 },
    target: { filter: { deviceTemplateId: templateId } },
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
  for (let page = 1; stored.size < made.length; page += 1) {
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
export async function provePause(
  t: Test,
  { server, accountId }: Ground,
  { templateId, devices: made, firmware }: Group,
) {
  const { firmwareRollout } = await server.call('POST', '/firmware/rollouts', {
    ...{ accountId, firmwarePackageId: firmware.id, target: { filter: { deviceTemplateId: templateId } } },
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
  // The next look is not at once: it would take the processor from the server.
  for (;;) {
    ({ firmwareRollout: rollout } = await server.call('GET', path));
    if (rollout.state !== 'scheduled' && rollout.state !== 'running') break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await server.kill();
  ({ firmwareRollout: rollout } = await server.call('GET', path));
  t.match(rollout, { state: 'paused', stage: 1, reason: /have failed/ }, 'it has paused itself, also after kill -9');
  const begun = Object.values(rollout.counts as Record<string, number>).reduce((sum, one) => sum + one, 0);
  t.ok(begun <= Math.ceil(made.length / 4), 'the next stage has not begun');
  child.kill('SIGKILL');
  await server.call('POST', `${path}/cancel`);
  ({ firmwareRollout: rollout } = await server.call('GET', path));
  t.equal(rollout.counts.failed + rollout.counts.cancelled, begun, 'nothing is stuck');
}
