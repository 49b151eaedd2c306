/** What people see before, during and after a rollout: a preview, why devices fail, the way back, and the past of one device. */
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { until } from '../support/until.ts';
import { asDevice, type Device, devices, offerTo, publish, rollOut, rollout, rolloutUntil, update } from './fleet.ts';

const t = await part(import.meta);

let service: Service;
/** On its clock tests go on. */
let withClock: Service;
let now = Date.parse('2026-03-01T00:00:00Z');
t.before(async () => {
  service = await sharedService(t);
  withClock = await startService(t, { clock: { now: () => now } });
});

const post = (of: Service, path: string, body: object = {}) =>
  of.http('POST', `/api/v1/firmware/rollouts${path}`, { body: { accountId: of.accountId, ...body } });

/** Rolls a package out to devices, each of which ends as it is told; the rollout. */
async function bring(of: Service, firmware: Awaited<ReturnType<typeof publish>>, fleet: readonly Device[]) {
  const { id } = await rollOut(of, firmware, { target: { deviceIds: fleet.map((one) => one.id) } });
  await rolloutUntil(of, id, ({ counts }) => counts.pending === fleet.length);
  return id;
}

const says = (of: Service, device: Device, firmwareVersion: string, message?: string, code?: number) =>
  asDevice(of, device, 'POST', '/firmware/status', { state: 'failed', firmwareVersion, message, code });

t.test('a preview says whom a rollout takes, what they run and when they begin; it makes nothing', async (t) => {
  const service = withClock;
  const [template, other] = [await service.template(), await service.template()];
  const [above, elsewhere] = [await service.organization(), await service.organization()];
  const below = await service.organization({ parentId: above.id });
  const old = await devices(service, template.id, 6, { firmwareVersion: '1.0', organizationId: above.id });
  const newer = await devices(service, template.id, 3, { firmwareVersion: '1.1', organizationId: below.id });
  const unknown = await devices(service, template.id, 1, { organizationId: below.id });
  await devices(service, template.id, 2, { firmwareVersion: '1.0', organizationId: elsewhere.id });
  await devices(service, other.id, 4, { firmwareVersion: '1.0', organizationId: below.id });
  const firmware = await publish(service, template.id, '2.0');
  const [online] = old as [Device];
  await service.connect({ deviceId: online.id, secret: online.secret });
  await until(async () => (await service.ok('GET', `/api/v1/devices/${online.id}`)).device.connected);
  const stages = [{ percent: 5 }, { percent: 50 }, { percent: 100 }];
  const all = [...old, ...newer, ...unknown].map(({ id }) => id);
  const refused = [{ reason: 'Devices of another device template do not get it.', count: 4 }];
  const versions = [
    { firmwareVersion: '1.0', count: 6 },
    { firmwareVersion: '1.1', count: 3 },
    { firmwareVersion: null, count: 1 },
  ];
  const [ten, eight] = [
    [1, 4, 5],
    [1, 3, 4],
  ].map((counts) => counts.map((devices) => ({ devices })));
  const cases: Array<[target: object, preview: object]> = [
    [{ organizationId: above.id }, { devices: 10, versions, refused, offline: 9, stages: ten }],
    [{ deviceIds: [...all, online.id] }, { devices: 10, versions, refused: [], offline: 9, stages: ten }],
    [
      { filter: { firmwareVersion: '1.0' } },
      { devices: 8, versions: [{ firmwareVersion: '1.0', count: 8 }], refused, offline: 7, stages: eight },
    ],
    [
      { filter: { firmwareVersion: '1.0*', deviceTemplateId: template.id } },
      { devices: 8, versions: [{ firmwareVersion: '1.0', count: 8 }], refused: [], offline: 7, stages: eight },
    ],
    [
      { filter: { firmwareVersion: '1*0' } },
      { devices: 8, versions: [{ firmwareVersion: '1.0', count: 8 }], refused, offline: 7, stages: eight },
    ],
    [
      { filter: { firmwareVersion: '7' } },
      { devices: 0, versions: [], refused: [], offline: 0, stages: [0, 0, 0].map((devices) => ({ devices })) },
    ],
  ];
  const listed = async () =>
    (await service.ok('GET', `/api/v1/firmware/rollouts?accountId=${service.accountId}`)).firmwareRollouts.meta?.count;
  for (const [target, preview] of cases) {
    const body = { firmwarePackageId: firmware.id, target, stages };
    const answer = await post(service, '/preview', body);
    t.strictSame([answer.status, answer.body], [200, { preview }], JSON.stringify(target));
  }
  t.equal(await listed(), 0);
  for (const [target, { stages: shown }] of cases.slice(0, 5) as Array<[object, { stages: { devices: number }[] }]>) {
    const begins = [{ percent: 5, pauseSeconds: 60 }, { percent: 50, pauseSeconds: 60 }, { percent: 100 }];
    const { id } = await rollOut(service, firmware, { target, stages: begins });
    let sum = 0;
    for (const [at, { devices }] of shown.entries()) {
      sum += devices;
      await rolloutUntil(service, id, ({ stage, counts }) => stage === at + 1 && counts.pending === sum);
      now += 60_000;
    }
    await post(service, `/${id}/cancel`);
  }
});

t.test('a rollout says why devices fail, how fast it goes and when its next stage begins', async (t) => {
  const service = await withClock.inNewAccount();
  const template = await service.template();
  const fleet = await devices(service, template.id, 20);
  const firmware = await publish(service, template.id, '2.0');
  const { id } = await rollOut(service, firmware, {
    target: { filter: { deviceTemplateId: template.id } },
    stages: [{ percent: 50, pauseSeconds: 600 }, { percent: 100 }],
    maxFailurePercent: 100,
  });
  const first = await rolloutUntil(service, id, ({ counts }) => counts.pending === 10);
  const begun = Date.parse(String(first.stageBegun));
  t.match(await rollout(service, id), {
    failures: { length: 0 },
    perMinute: 0,
    stageEndsAt: new Date(begun + 600_000).toISOString(),
  });
  const path = `/api/v1/firmware/rollouts/${id}/devices`;
  const { devices: taken } = await service.ok('GET', `${path}?pageSize=100`);
  const members = taken.results.flatMap(({ deviceId }) => fleet.filter((one) => one.id === deviceId));
  const [a, b, c, d, e, f, g, h] = members as [Device, Device, Device, Device, Device, Device, Device, Device];
  for (const one of [a, b, c, d, e, f, g, h]) await offerTo(service, one);
  await says(service, h, '2.0', 'no room');
  now += 1000;
  await says(service, g, '2.0', undefined, 7);
  for (const one of [c, e]) {
    now += 1000;
    await says(service, one, '2.0', 'no room');
  }
  for (const one of [a, b]) await update(service, one);
  const serialOf = async ({ id: one }: Device) =>
    (await service.ok('GET', `/api/v1/devices/${one}`)).device.serialNumber;
  const time = new Date(now).toISOString();
  t.match(await rollout(service, id), {
    failures: [
      { message: 'no room', count: 3, newest: { deviceId: e.id, serialNumber: await serialOf(e), time } },
      { message: 'code 7', count: 1, newest: { deviceId: g.id } },
    ],
    perMinute: 2,
  });

  const order = async (query: string) =>
    (await service.ok('GET', `${path}?${query}`)).devices.results.map(({ deviceId }) => deviceId);
  const failed = [c, e, g, h].map((one) => one.id);
  const others = members.map((one) => one.id).filter((one) => !failed.includes(one));
  t.strictSame(await order('sort=failedFirst&pageSize=100'), [...failed, ...others]);
  t.strictSame(await order('sort=failedFirst&pageSize=3&page=2'), [...failed, ...others].slice(3, 6));
  t.strictSame(await order('sort=failedFirst&state=failed'), failed);
  t.strictSame(
    await order('pageSize=100'),
    members.map((one) => one.id),
  );
  for (const sort of ['newest', '', 'failedfirst'])
    t.match(await service.http('GET', `${path}?sort=${sort}`), { status: 400, body: { error: { code: 106 } } }, sort);

  await post(service, `/${id}/pause`);
  t.equal((await rollout(service, id)).stageEndsAt, new Date(begun + 600_000).toISOString());
  await post(service, `/${id}/resume`);
  now = begun + 600_000;
  await rolloutUntil(service, id, ({ stage, counts }) => stage === 2 && counts.pending + counts.offered === 14);
  t.match(await rollout(service, id), { stageEndsAt: null, perMinute: 0, failures: [{ count: 3 }, { count: 1 }] });
});

t.test('of many reasons to fail the twenty most frequent are told, and a retry takes them away', async (t) => {
  const template = await service.template();
  const fleet = await devices(service, template.id, 23);
  const firmware = await publish(service, template.id, '2.0');
  const { id } = await rollOut(service, firmware, {
    target: { deviceIds: fleet.map((one) => one.id) },
    maxFailurePercent: 100,
  });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 23);
  for (const [at, one] of fleet.entries()) {
    await offerTo(service, one);
    await says(service, one, '2.0', `because of ${at < 2 ? 'the battery' : at}`);
  }
  const { failures } = await rollout(service, id);
  t.match(failures[0], { message: 'because of the battery', count: 2, newest: { deviceId: fleet[1]?.id } });
  t.equal(failures.length, 20);
  await post(service, `/${id}/retry`);
  t.match(await rollout(service, id), { failures: { length: 0 }, counts: { failed: 0 } });
});

t.test('rollouts are listed newest first, unless the query asks for another order', async (t) => {
  const own = await service.inNewAccount();
  const template = await own.template();
  const firmware = await publish(own, template.id, '2.0');
  const startAt = new Date(Date.now() + 3_600_000).toISOString();
  const made: string[] = [];
  for (let n = 0; n < 3; n += 1)
    made.push((await rollOut(own, firmware, { target: { filter: { deviceTemplateId: template.id } }, startAt })).id);
  const ids = async (query = '') =>
    (await own.ok('GET', `/api/v1/firmware/rollouts?accountId=${own.accountId}${query}`)).firmwareRollouts.results.map(
      ({ id }) => id,
    );
  t.strictSame(await ids(), made.toReversed());
  t.strictSame(await ids('&pageSize=2&page=2'), made.slice(0, 1));
  t.strictSame(await ids('&sortBy=created&sortOrder=asc'), made);
  t.strictSame(await ids('&sortOrder=asc'), made);
});

t.test('where no further rollout has room, one that is under way makes room for the way back', async (t) => {
  const full = await startService(t, { env: { SLIPWAY_FIRMWARE_ROLLOUTS: '1' } });
  const template = await full.template();
  const fleet = await devices(full, template.id, 1);
  const id = await bring(full, await publish(full, template.id, '2.0'), fleet);
  const answer = await post(full, `/${id}/revert`);
  t.match(answer, { status: 200, body: { firmwareRollout: { target: { revertOf: id } } } });
  t.match((await full.ok('GET', `/api/v1/firmware/rollouts/${id}`)).firmwareRollout, { state: 'cancelled' });
});

t.test('going back brings each device what it ran before, and names those that cannot go back', async (t) => {
  const template = await service.template();
  const [one, two, three, four, five, six, seven] = (await devices(service, template.id, 7)) as [
    ...[Device, Device, Device, Device, Device, Device, Device],
  ];
  const a = await publish(service, template.id, '1.0');
  const b = await publish(service, template.id, '1.1');
  const gone = await publish(service, template.id, '1.2');
  const c = await publish(service, template.id, '2.0');
  for (const [firmware, fleet] of [
    [a, [one, two, five]],
    [b, [three, six]],
    [gone, [four]],
  ] as const) {
    await bring(service, firmware, fleet);
    for (const device of fleet) await update(service, device);
  }
  // Of the seventh nobody knows what it ran before; the fifth fails, and the sixth never asks.
  const id = await bring(service, c, [one, two, three, four, five, six, seven]);
  for (const device of [one, two, three, four, seven]) await update(service, device);
  await update(service, five, 'failed');
  // The second was set back by hand.
  const done = { state: 'succeeded', firmwareVersion: '1.0' };
  await asDevice(service, two, 'POST', '/firmware/status', done);
  const { version } = (await service.ok('GET', `/api/v1/firmware/packages/${gone.id}`)).firmwarePackage;
  await service.ok('DELETE', `/api/v1/firmware/packages/${gone.id}`, { headers: { etag: version } });

  const onThreads: string[] = [];
  const { readers } = service.server.ctx;
  const read = readers.read.bind(readers);
  readers.read = (lane, query) => {
    onThreads.push(query.sql);
    return read(lane, query);
  };
  const answer = await post(service, `/${id}/revert`);
  readers.read = read;
  const counted = onThreads.filter((text) => /count\(\*\).*"firmwareDeliveries"/s.test(text));
  t.equal(counted.length, 1, 'what devices go back to is counted on a thread');
  t.match(answer, {
    status: 200,
    body: {
      firmwareRollout: {
        target: { revertOf: id },
        stages: [{ percent: 100 }],
        refused: [
          { reason: /gone, or retired/, count: 1 },
          { reason: /Nothing is known/, count: 1 },
        ],
      },
    },
  });
  t.match(await rollout(service, id), { state: 'cancelled', counts: { cancelled: 1 } }, 'it goes no further');
  const back = answer.body.firmwareRollout.id;
  await rolloutUntil(service, back, ({ counts }) => counts.pending === 2);
  for (const device of [two, four, five, six, seven]) t.same(await offerTo(service, device), { files: [] });
  const kept = (await service.ok('GET', `/api/v1/firmware/packages/${b.id}`)).firmwarePackage;
  t.match(
    await service.http('DELETE', `/api/v1/firmware/packages/${b.id}`, { headers: { etag: kept.version } }),
    { status: 400, body: { error: { code: 104 } } },
    'a package to which devices go back is needed',
  );
  t.match(await offerTo(service, one), { packageId: a.id, firmwareVersion: '1.0' });
  t.match(await offerTo(service, three), { packageId: b.id, firmwareVersion: '1.1' });
  t.match((await service.ok('GET', `/api/v1/devices/${three.id}/firmware`)).firmware, { firmwareVersion: '1.1' });
  for (const device of [one, three]) t.match(await update(service, device), { status: 200 });
  t.match(await rollout(service, back), { state: 'finished', counts: { succeeded: 2 } });
  t.equal((await service.ok('GET', `/api/v1/devices/${three.id}`)).device.firmwareVersion, '1.1');
  const past = (await service.ok('GET', `/api/v1/devices/${three.id}/firmware/history`)).history;
  t.match(past, {
    meta: { count: 3, sortOrder: 'desc' },
    results: [
      { rolloutId: back, firmwarePackageId: b.id, firmwareVersion: '1.1', formerVersion: '2.0', state: 'succeeded' },
      { rolloutId: id, firmwarePackageId: c.id, firmwareVersion: '2.0', formerVersion: '1.1', state: 'succeeded' },
      { firmwarePackageId: b.id, firmwareVersion: '1.1', formerVersion: null, state: 'succeeded' },
    ],
  });

  const forth = (await post(service, `/${back}/revert`)).body.firmwareRollout;
  await rolloutUntil(service, forth.id, ({ counts }) => counts.pending === 2);
  for (const device of [one, three]) t.match(await offerTo(service, device), { packageId: c.id }, 'and forth again');
  await post(service, `/${forth.id}/cancel`);
  const none = (await post(service, `/${forth.id}/revert`)).body.firmwareRollout;
  t.match(await rolloutUntil(service, none.id, ({ state }) => state === 'finished'), {
    reason: 'No device has matched the target.',
    refused: { length: 0 },
  });
});

t.test('one device is updated by itself; its past says what was offered and what it said', async (t) => {
  const [template, other] = [await service.template(), await service.template()];
  const home = await service.organization();
  const { token } = await service.endUser(home.id);
  const more = { organizationId: home.id, firmwareVersion: '1.0' };
  const [device, beside] = (await devices(service, template.id, 2, more)) as [Device, Device];
  const firmware = await publish(service, template.id, '2.0');
  const foreign = await publish(service, other.id, '2.0');
  const path = `/api/v1/devices/${device.id}/firmware`;
  for (const [packageId, details] of [
    [foreign.id, [{ path: 'packageId' }]],
    [device.id, [{ path: 'packageId' }]],
  ] as const)
    t.match(await service.http('POST', path, { body: { packageId } }), {
      status: 400,
      body: { error: { code: 102, details } },
    });
  t.match(await service.http('POST', path, { body: {} }), { status: 400, body: { error: { code: 106 } } });
  t.same((await service.ok('GET', `${path}/history`)).history.results, []);

  const made = await service.ok('POST', path, { body: { packageId: firmware.id } });
  t.match(made.firmwareRollout, { target: { deviceIds: [device.id] }, firmwarePackageId: firmware.id });
  await rolloutUntil(service, made.firmwareRollout.id, ({ counts }) => counts.pending === 1);
  await offerTo(service, device);
  await says(service, device, '2.0', 'no room', 5);
  const again = await service.ok('POST', path, { body: { packageId: firmware.id } });
  await rolloutUntil(service, again.firmwareRollout.id, ({ counts }) => counts.pending === 1);
  await update(service, device);
  t.same(await offerTo(service, beside), { files: [] });
  const { history } = await service.ok('GET', `${path}/history`, { token });
  t.match(history.results, [
    { rolloutId: again.firmwareRollout.id, state: 'succeeded', firmwareVersion: '2.0', formerVersion: '1.0' },
    { rolloutId: made.firmwareRollout.id, state: 'failed', message: 'no room', code: 5 },
  ]);
  t.equal((await service.ok('GET', `${path}/history?pageSize=1&page=2`)).history.results[0]?.state, 'failed');

  const refused = async (path: string, body: object) =>
    t.match(await service.http('POST', `/api/v1${path}`, { token, body }), {
      status: 403,
      body: { error: { code: 21 } },
    });
  const { accountId } = service;
  await refused(`/devices/${device.id}/firmware`, { packageId: firmware.id });
  await refused(`/firmware/rollouts/${again.firmwareRollout.id}/revert`, {});
  const target = { deviceIds: [device.id] };
  await refused('/firmware/rollouts/preview', { accountId, firmwarePackageId: firmware.id, target });
  const stranger = await service.endUser((await service.organization()).id);
  t.match(await service.http('GET', `${path}/history`, { token: stranger.token }), { status: 404 });
});

t.end();
