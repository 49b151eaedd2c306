import { fileURLToPath } from 'node:url';
import type { Ok } from '../support/answers.ts';
import { part } from '../support/part.ts';
import { runToEnd } from '../support/process.ts';
import { accountUser, role } from '../support/roles.ts';
import { closed, present, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { countStored } from '../support/stored.ts';
import { ask, basic, claim, connectOnce, derived, newGroup, path } from './devices.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t, { SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0' });
});

const refusal = (message: RegExp) => ({ status: 403, body: { error: { code: 21, message } } });
const unproven = { status: 401, body: { error: { code: 30, message: 'The credentials are wrong.' } } };
const etag = (version: string) => ({ headers: { etag: version } });

t.test('a device with the claim secret gets an identity that connects', async (t) => {
  const organization = await service.organization();
  const group = await newGroup(service, { organizationId: organization.id });
  const answer = await claim(service, group, {
    serialNumber: 'AC:DE:48:00',
    firmwareVersion: '1.2',
    fields: { location: 'Hall 3' },
  });
  t.equal(answer.status, 200, answer.text);
  const { device, credential, broker, channels } = answer.body;
  t.match(device, { serialNumber: 'AC:DE:48:00', accountId: service.accountId });
  t.same(Object.keys(credential).sort(), ['secret', 'username']);
  t.equal(credential.username, device.id);
  t.match(broker, { host: '127.0.0.1', topicRoot: service.topicRoot, ports: { mqtt: service.server.mqttPort } });
  t.equal(broker.ports.http, Number(new URL(service.server.url).port));
  t.notOk('mqtts' in broker.ports);
  t.same(channels, { readings: service.topic(device.id, 'readings') }, 'without service channels');
  t.equal(answer.headers.get('cache-control'), 'no-store');
  const { device: stored } = await service.ok('GET', `/api/v1/devices/${device.id}`);
  t.match(stored, { organizationId: organization.id, firmwareVersion: '1.2', location: 'Hall 3' });
  t.match(stored, { provisioningState: 'activated', deviceTemplateId: group.deviceTemplateId, createdById: group.id });
  await connectOnce(service, answer.body);
  const { enrollmentGroup } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}`);
  t.equal(enrollmentGroup.enrolledCount, 1);
  t.equal(enrollmentGroup.version, group.version, 'the count is no change of the group');
});

t.test('a proof that is missing or wrong and an unknown group look alike', async (t) => {
  const group = await newGroup(service);
  const keys = await newGroup(service, { proof: 'derivedKey' });
  const body = { serialNumber: 'W-1' };
  const attempts: Array<Record<string, string>> = [
    {},
    basic(group.id, 'wrong'),
    basic(group.id),
    basic('00000000-0000-7000-8000-000000000000', present(group.claimSecret)),
    basic('nothing', 'nothing'),
    basic(keys.id, derived(present(keys.groupKey), 'W-1')),
    basic(`${keys.id}/W-2`, derived(present(keys.groupKey), 'W-1')),
    basic(`${keys.id}/W-1`, derived('another', 'W-1')),
    { authorization: 'Bearer nothing' },
  ];
  for (const headers of attempts) {
    const answer = await service.http('POST', path, { token: null, headers, body });
    t.match(answer, unproven);
    t.match(answer.headers.get('www-authenticate'), /^Basic /);
  }
  t.equal(countStored(service, 'devices', `"serialNumber" LIKE 'W-%' AND "accountId" = '${service.accountId}'`), 0);
});

t.test('what nobody sees at the ends of a serial number is no part of it', async (t) => {
  const group = await newGroup(service);
  const first = await claim(service, group, { serialNumber: 'END-1' });
  const again = await claim(service, group, { serialNumber: '\u00a0END-1\r\n' });
  t.match(again, { status: 200, body: { device: { id: first.body.device.id, serialNumber: 'END-1' } } }, again.text);
  const keys = await newGroup(service, { proof: 'derivedKey' });
  const known = await ask(service, keys, 'END-2');
  const { id } = known.body.device;
  const key = derived(present(keys.groupKey), 'END-2');
  for (const headers of [
    basic(`${keys.id}/END-2\r`, key),
    basic(`${keys.id}/END-2 `, derived(present(keys.groupKey), 'END-2 ')),
  ]) {
    const answer = await service.http('POST', path, { token: null, headers, body: { serialNumber: ' END-2' } });
    t.match(answer, { status: 200, body: { device: { id, serialNumber: 'END-2' } } }, answer.text);
  }
  for (const serialNumber of ['END\t3', ' \u00a0'])
    t.match(await claim(service, group, { serialNumber }), { status: 400, body: { error: { code: 106 } } });
  const listed = `/api/v1/enrollment-groups/${group.id}/devices?serialNumber=${encodeURIComponent('END-1\t')}` as const;
  t.match((await service.ok('GET', listed)).devices.results, [{ deviceId: first.body.device.id }]);
});

t.test('a serial number is the same however its letters are composed', async (t) => {
  const [one, two] = ['COMPOSED-\u00e9', 'COMPOSED-e\u0301'];
  const group = await newGroup(service);
  const first = await claim(service, group, { serialNumber: two });
  const again = await claim(service, group, { serialNumber: one });
  t.match(again, { status: 200, body: { device: { id: first.body.device.id, serialNumber: one } } }, again.text);
  const keys = await newGroup(service, { proof: 'derivedKey' });
  const { id } = (await ask(service, keys, one)).body.device;
  const headers = basic(`${keys.id}/${two}`, derived(present(keys.groupKey), two));
  const answer = await service.http('POST', path, { token: null, headers, body: { serialNumber: two } });
  t.match(answer, { status: 200, body: { device: { id, serialNumber: one } } }, 'the key of the form that was given');
});

t.test('a derived key is that of one serial number, colons and slashes included', async (t) => {
  const group = await newGroup(service, { proof: 'derivedKey' });
  for (const serialNumber of ['00:1A:2B/7', 'ü-1']) {
    const answer = await ask(service, group, serialNumber);
    t.equal(answer.status, 200, answer.text);
    t.equal(answer.body.device.serialNumber, serialNumber);
  }
  t.match(await ask(service, group, 'D-1', { serialNumber: 'D-2' }), refusal(/not that of the proof/));
});

t.test('the same request again gives the same device; a secret that was never used is replaced', async (t) => {
  const group = await newGroup(service);
  const first = await claim(service, group, { serialNumber: 'I-1' });
  const again = await claim(service, group, { serialNumber: 'I-1' });
  t.equal(again.body.device.id, first.body.device.id);
  t.not(again.body.credential.secret, first.body.credential.secret);
  await t.rejects(connectOnce(service, first.body));
  await connectOnce(service, again.body);
  const { enrollmentGroup } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}`);
  t.equal(enrollmentGroup.enrolledCount, 1);
});

t.test(
  'a hundred requests at once of four processes make one device, and one of their secrets is in force',
  async (t) => {
    const group = await newGroup(service);
    const { authorization } = basic(group.id, group.claimSecret);
    const file = fileURLToPath(new URL('./copies.ts', import.meta.url));
    const processes = Array.from({ length: 4 }, () =>
      runToEnd(file, [service.server.url, authorization, 'O-1', '25'], {}),
    );
    const ended = await Promise.all(processes);
    const answers: Array<{ status: number; body: Ok<'POST', '/api/v1/enroll'> }> = ended.flatMap(({ stdout }) =>
      JSON.parse(stdout),
    );
    t.equal(answers.length, 100);
    for (const { status } of answers) t.equal(status, 200);
    t.equal(new Set(answers.map(({ body }) => body.device.id)).size, 1);
    // Those that overlap have the same one, as hook.test.ts shows; a process may begin when another has been answered.
    const answered = new Map(answers.map(({ body }) => [body.credential.secret, body]));
    const connects = await Promise.allSettled([...answered.values()].map((body) => connectOnce(service, body)));
    t.equal(connects.filter(({ status }) => status === 'fulfilled').length, 1, `of ${answered.size} secrets`);
    t.equal(countStored(service, 'devices', `"serialNumber" = 'O-1' AND "accountId" = '${service.accountId}'`), 1);
    const { enrollmentGroup } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}`);
    t.equal(enrollmentGroup.enrolledCount, 1);
  },
);

t.test('a device that has connected is not handed to who has the claim secret', async (t) => {
  const group = await newGroup(service);
  const { body } = await claim(service, group, { serialNumber: 'T-1' });
  const { username: deviceId, secret = '' } = body.credential;
  const client = await service.connect({ deviceId, secret });
  const ended = closed(client);
  t.match(await claim(service, group, { serialNumber: 'T-1' }), refusal(/connected already/));
  t.match(
    await claim(service, group, { serialNumber: 'T-1', previousSecret: 'guessed' }),
    refusal(/connected already/),
  );
  t.ok(client.connected, 'nothing has ended');

  const moved = await claim(service, group, { serialNumber: 'T-1', previousSecret: secret });
  t.equal(moved.status, 200, moved.text);
  t.equal(moved.body.device.id, deviceId);
  await ended;
  // The answer was lost: the old secret still proves the device until the new one has connected.
  const again = await claim(service, group, { serialNumber: 'T-1', previousSecret: secret });
  t.equal(again.status, 200, again.text);
  t.match(await claim(service, group, { serialNumber: 'T-1' }), refusal(/connected already/));
  await connectOnce(service, again.body);
  t.match(await claim(service, group, { serialNumber: 'T-1', previousSecret: secret }), refusal(/connected already/));
  await t.rejects(connectOnce(service, body), 'the former credential has ended');

  const present = again.body.credential.secret;
  t.equal((await claim(service, group, { serialNumber: 'T-1', previousSecret: present })).status, 200);
  await service.credential(deviceId);
  const ending = { serialNumber: 'T-1', previousSecret: present };
  t.match(await claim(service, group, ending), refusal(/connected already/), 'an admin has ended what came of it');
});

t.test('an admin allows one enrollment, until its credential has connected or for a day', async (t) => {
  const time = { now: Date.now() };
  const own = await startService(t, { clock: { now: () => time.now } });
  const group = await newGroup(own);
  const first = await claim(own, group, { serialNumber: 'P-1' });
  await connectOnce(own, first.body);
  const { id } = first.body.device;
  const allow = () => own.ok('POST', `/api/v1/devices/${id}/allow-enrollment`);
  const limited = await role(own, 'account', { enrollmentGroup: ['update'], device: ['read'] });
  const { token } = await accountUser(own, { roleId: limited.id });
  const denied = await own.http('POST', `/api/v1/devices/${id}/allow-enrollment`, { token });
  t.match(denied, { status: 403, body: { error: { code: 21 } } }, 'who may not publish as devices');
  const { enrollment } = await allow();
  t.equal(Date.parse(enrollment.allowedUntil), time.now + 24 * 60 * 60 * 1000);
  await connectOnce(own, first.body);
  const lost = await claim(own, group, { serialNumber: 'P-1' });
  t.equal(lost.status, 200, 'the old credential connecting does not use it up');
  const again = await claim(own, group, { serialNumber: 'P-1' });
  t.equal(again.status, 200, 'nor does an answer that is lost');
  await connectOnce(own, again.body);
  t.match(await claim(own, group, { serialNumber: 'P-1' }), refusal(/connected already/));
  await allow();
  time.now += 24 * 60 * 60 * 1000;
  t.match(await claim(own, group, { serialNumber: 'P-1' }), refusal(/connected already/));

  const { device } = await own.device();
  t.match(await own.http('POST', `/api/v1/devices/${device.id}/allow-enrollment`), { status: 400 });
});

t.test('with a derived key the group decides what becomes of a device that has connected', async (t) => {
  const organization = await service.organization();
  for (const reprovision of ['keep', 'reset', 'refuse']) {
    const group = await newGroup(service, { proof: 'derivedKey', reprovision });
    const first = await ask(service, group, 'K-1', { fields: { location: 'Factory' } });
    await connectOnce(service, first.body);
    const url = `/api/v1/devices/${first.body.device.id}` as const;
    const { device } = await service.ok('GET', url);
    const moved = { organizationId: organization.id, location: 'Home', latitude: 50 };
    await service.ok('PUT', url, { ...etag(device.version), body: moved });
    const again = await ask(service, group, 'K-1', { fields: { location: 'Repair' } });
    if (reprovision === 'refuse') {
      t.match(again, refusal(/refuses devices that have connected/));
      continue;
    }
    t.equal(again.body.device.id, device.id);
    const { device: after } = await service.ok('GET', url);
    if (reprovision === 'keep') t.match(after, { organizationId: organization.id, location: 'Home' });
    else t.match(after, { organizationId: null, location: 'Repair', latitude: null, provisioningState: 'activated' });
    await connectOnce(service, again.body);
    await t.rejects(connectOnce(service, first.body));
  }
});

t.test('a group refuses with its reason, told only after the proof', async (t) => {
  const group = await newGroup(service, { serialNumberPattern: 'AB-??', maxDevices: 1 });
  const url = `/api/v1/enrollment-groups/${group.id}` as const;
  t.match(await claim(service, group, { serialNumber: 'AB-123' }), refusal(/pattern/));
  t.equal((await claim(service, group, { serialNumber: 'AB-12' })).status, 200);
  t.match(await claim(service, group, { serialNumber: 'AB-13' }), refusal(/full/));
  t.equal((await claim(service, group, { serialNumber: 'AB-12' })).status, 200, 'one of its devices is answered');
  let { version } = group;
  const change = async (body: object) => {
    version = (await service.ok('PUT', url, { ...etag(version), body })).enrollmentGroup.version;
    return claim(service, group, { serialNumber: 'AB-12' });
  };
  t.match(await change({ disabled: true }), refusal(/disabled/));
  t.match(await change({ disabled: false, validFrom: '2100-01-01' }), refusal(/not valid yet/));
  t.match(await change({ validFrom: null, validUntil: '2020-01-01' }), refusal(/not valid any more/));
  t.equal((await change({ validUntil: null })).status, 200);
  await service.ok('DELETE', url, etag(version));
  t.match(await claim(service, group, { serialNumber: 'AB-12' }), refusal(/deleted/));
  t.match(await service.http('POST', path, { headers: basic(group.id, 'wrong'), token: null, body: {} }), unproven);
});

t.test('the serial number that enrolled stays the key of its device', async (t) => {
  const group = await newGroup(service, { maxDevices: 2 });
  const { device } = (await claim(service, group, { serialNumber: 'S-1' })).body;
  const url = `/api/v1/devices/${device.id}` as const;
  const { device: before } = await service.ok('GET', url);
  const changed = (await service.ok('PUT', url, { ...etag(before.version), body: { serialNumber: 'S-2' } })).device;
  t.match(await claim(service, group, { serialNumber: 'S-1' }), refusal(/another one now/));
  const back = (await service.ok('PUT', url, { ...etag(changed.version), body: { serialNumber: 'S-1' } })).device;
  await service.ok('DELETE', url, etag(back.version));
  t.match(await claim(service, group, { serialNumber: 'S-1' }), refusal(/trash/));
  t.equal((await claim(service, group, { serialNumber: 'S-3' })).status, 200);
  t.match(await claim(service, group, { serialNumber: 'S-4' }), refusal(/full/), 'deleted devices are counted');
});

t.test('bad input is 400 with its property', async (t) => {
  const group = await newGroup(service);
  const faults: Array<[object, string]> = [
    [{}, 'serialNumber'],
    [{ serialNumber: '' }, 'serialNumber'],
    [{ serialNumber: 'x'.repeat(256) }, 'serialNumber'],
    [{ serialNumber: 'B-1', fields: { colour: 'red' } }, 'fields.colour'],
    [{ serialNumber: 'B-1', fields: { purchaseDate: 'yesterday' } }, 'purchaseDate'],
    [{ serialNumber: 'B-1', fields: 'none' }, 'fields'],
    [{ serialNumber: 7 }, 'serialNumber'],
  ];
  for (const [body, name] of faults)
    t.match(await claim(service, group, body), {
      status: 400,
      body: { error: { code: 106, details: [{ path: name }] } },
    });
  t.equal((await claim(service, group, { serialNumber: 'B-1', csr: 'ignored' })).status, 200, 'a csr is ignored here');
  const keyed = await newGroup(service, { proof: 'derivedKey' });
  t.match(await ask(service, keyed, 'B\0'), { status: 400, body: { error: { details: [{ path: 'serialNumber' }] } } });
});

t.test('guesses are counted for a group and an address, and never for a group alone', async (t) => {
  const own = await startService(t, {
    env: { SLIPWAY_MQTT_FAILED_CONNECTS_PER_PRINCIPAL: '3', SLIPWAY_TRUSTED_PROXIES: '127.0.0.1' },
  });
  const group = await newGroup(own, { proof: 'derivedKey' });
  const other = await newGroup(own, { proof: 'derivedKey' });
  const from = (address: string, password: string, of = group) =>
    own.http('POST', path, {
      token: null,
      headers: { ...basic(`${of.id}/G-1`, password), 'x-forwarded-for': address },
      body: {},
    });
  const right = derived(present(group.groupKey), 'G-1');
  for (let n = 0; n < 3; n += 1) t.equal((await from('203.0.113.7', `guess ${n}`)).status, 401);
  t.match(await from('203.0.113.7', right), { status: 429 });
  t.equal((await from('198.51.100.9', right)).status, 200, 'others go on');
  t.equal((await from('203.0.113.7', derived(present(other.groupKey), 'G-1'), other)).status, 200);
});

t.test('refusals are listed for the group, with serial number, address and reason', async (t) => {
  const group = await newGroup(service, { serialNumberPattern: 'L-*' });
  await service.http('POST', path, { token: null, headers: basic(group.id, 'wrong'), body: { serialNumber: 'L-1' } });
  await claim(service, group, { serialNumber: 'M-1' });
  const { refusals } = await service.ok('GET', `/api/v1/enrollment-groups/${group.id}/refusals`);
  t.match(refusals.results, [
    { serialNumber: 'M-1', address: '127.0.0.1', reason: /pattern/, proven: true },
    { serialNumber: null, address: '127.0.0.1', reason: 'wrong claim secret', proven: false },
  ]);
  t.equal(refusals.meta?.count, 2);
  const { endUser, token } = await service.endUser((await service.organization()).id);
  t.ok(endUser);
  t.match(await service.http('GET', `/api/v1/enrollment-groups/${group.id}/refusals`, { token }), { status: 403 });
});

t.test('an exchange is on the audit record and on the streams of admins', async (t) => {
  const group = await newGroup(service);
  const response = await fetch(
    `${service.server.url}/api/v1/stream?topics=${encodeURIComponent(service.topic('+', '+'))}`,
    {
      headers: { authorization: `Bearer ${service.admin}` },
    },
  );
  const reader = present(response.body ?? undefined)
    .pipeThrough(new TextDecoderStream())
    .getReader();
  t.teardown(() => reader.cancel());
  let text = (await reader.read()).value ?? '';
  const { device } = (await claim(service, group, { serialNumber: 'E-1' })).body;
  while (!text.includes('event: enrollment')) text += (await reader.read()).value ?? '';
  const [, data = '{}'] = /event: enrollment\ndata: (.*)\n/.exec(text) ?? [];
  t.match(JSON.parse(data), { deviceId: device.id, groupId: group.id, serialNumber: 'E-1', time: /Z$/ });
  const url = `/api/v1/audit?accountId=${service.accountId}&event=deviceEnrolled` as const;
  const { auditRecords } = await service.ok('GET', url as '/api/v1/audit');
  t.match(
    auditRecords.results?.find(({ targetId }) => targetId === device.id),
    { outcome: 'success', details: { enrollmentGroupId: group.id, serialNumber: 'E-1', how: 'made' } },
  );
  const metrics = await service.http('GET', '/metrics');
  t.match(metrics.text, /slipway_enrollments_total\{outcome="made"\} [1-9]/);
});

t.end();
