import { part } from '../support/part.ts';
import { present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { storedRows } from '../support/stored.ts';
import { claim, newGroup } from './devices.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

const etag = (version: string) => ({ headers: { etag: version } });
const create = (body: object) =>
  service.http('POST', '/api/v1/enrollment-groups', { body: { accountId: service.accountId, ...body } });

t.test('the secrets of a group are in the answer that made them and nowhere else', async (t) => {
  const hookUrl = 'https://hooks.example.com/enroll';
  const claimed = await newGroup(service, { hookUrl });
  t.match(claimed, { claimSecret: /^[\w-]{43}$/, hookSecret: /^[\w-]{43}$/, hookUrl, enrolledCount: 0 });
  t.match(claimed, { issues: 'secret', serialNumberPattern: '*', reprovision: 'keep', certificateDays: 365 });
  t.match(claimed, { overlapDays: 7, maxDevices: null, organizationId: null, disabled: false });
  t.notOk(claimed.groupKey);
  const derived = await newGroup(service, { proof: 'derivedKey' });
  t.match(derived, { groupKey: /^[\w-]{43}$/ });
  t.notOk(derived.claimSecret);
  const own = await newGroup(service, { hookUrl, hookSecret: 'a secret of their own'.replaceAll(' ', '-') });
  t.notOk(own.hookSecret, 'the secret of a back-end is not shown');

  const { enrollmentGroup } = await service.ok('GET', `/api/v1/enrollment-groups/${claimed.id}`);
  const listed = await service.ok('GET', `/api/v1/enrollment-groups?accountId=${service.accountId}`);
  const rows = JSON.stringify(storedRows(service, 'SELECT * FROM "enrollmentGroups"'));
  for (const secret of [claimed.claimSecret, claimed.hookSecret, derived.groupKey])
    for (const text of [JSON.stringify(enrollmentGroup), JSON.stringify(listed), rows])
      t.notOk(text.includes(present(secret)));
  t.notOk(rows.includes('hooks.example.com'), 'a URL may hold a password: it is sealed');
});

t.test('a group is changed, trashed and recovered with its version', async (t) => {
  const group = await newGroup(service);
  const url = `/api/v1/enrollment-groups/${group.id}`;
  const changes = { serialNumberPattern: 'AB-*', maxDevices: 5, validFrom: '2026-01-01', disabled: true };
  const { enrollmentGroup: changed } = await service.ok('PUT', url, { ...etag(group.version), body: changes });
  t.match(changed, { ...changes, validFrom: '2026-01-01T00:00:00.000Z', enrolledCount: 0 });
  t.match(await service.http('PUT', url, { ...etag(group.version), body: {} }), { status: 412 });
  const { enrollmentGroup: gone } = await service.ok('DELETE', url, etag(changed.version));
  t.match(await service.http('GET', url), { status: 410 });
  t.match(await service.http('PUT', url, { ...etag(gone.version), body: {} }), { status: 410 });
  await service.ok('POST', `/api/v1/trash/enrollment-groups/${group.id}/recover`, etag(gone.version));
  t.match(await service.ok('GET', url), { enrollmentGroup: { ...changes, validFrom: '2026-01-01T00:00:00.000Z' } });
});

t.test('the devices of a group are listed by the serial number that enrolled', async (t) => {
  const [group, other] = [await newGroup(service), await newGroup(service)];
  const url = `/api/v1/enrollment-groups/${group.id}/devices`;
  t.match(await service.ok('GET', url), { devices: { meta: { count: 0 } } });
  for (const serialNumber of ['L-2', 'L-1', 'L-3']) await claim(service, group, { serialNumber });
  await claim(service, other, { serialNumber: 'L-4' });
  const { devices } = await service.ok('GET', url);
  t.match(devices.results, [
    { serialNumber: 'L-1', connected: null },
    { serialNumber: 'L-2' },
    { serialNumber: 'L-3' },
  ]);
  t.equal(devices.meta?.count, 3);
  const id = present(devices.results?.[1]).deviceId;
  const { enrollment } = await service.ok('POST', `/api/v1/devices/${id}/allow-enrollment`);
  const one = await service.ok('GET', `${url}?serialNumber=L-2`);
  t.match(one.devices, { meta: { count: 1 }, results: [{ deviceId: id, allowedUntil: enrollment.allowedUntil }] });
  t.match((await service.ok('GET', `${url}?page=2&pageSize=2`)).devices, { results: [{ serialNumber: 'L-3' }] });
  t.equal((await service.http('GET', `${url}?page=9`)).status, 416);
});

t.test('regenerate ends the former secret, with a version; what a back-end has given stays', async (t) => {
  const hookUrl = 'https://hooks.example.com/enroll';
  const group = await newGroup(service, { hookUrl, hookSecret: 'given-by-the-back-end' });
  const url = `/api/v1/enrollment-groups/${group.id}/regenerate` as const;
  t.match(await service.http('POST', url), { status: 400, body: { error: { code: 103 } } });
  const { enrollmentGroup: renewed } = await service.ok('POST', url, etag(group.version));
  t.not(renewed.claimSecret, group.claimSecret);
  t.notOk(renewed.hookSecret);
  t.match(await claim(service, group, { serialNumber: 'R-1' }), { status: 401, body: { error: { code: 30 } } });
  t.match(await service.http('POST', url, etag(group.version)), { status: 412 });

  const made = await newGroup(service, { hookUrl, proof: 'derivedKey' });
  const { enrollmentGroup: again } = await service.ok(
    'POST',
    `/api/v1/enrollment-groups/${made.id}/regenerate`,
    etag(made.version),
  );
  t.not(present(again.groupKey), made.groupKey);
  t.not(present(again.hookSecret), made.hookSecret);
});

t.test('what does not go together is refused with the property', async (t) => {
  const { id: deviceTemplateId } = await service.template();
  const body = { name: service.unique('Bad'), deviceTemplateId, proof: 'claimSecret' };
  const faults: Array<[object, string, number]> = [
    [{ deviceTemplateId: 'nothing' }, 'deviceTemplateId', 102],
    [{ organizationId: 'nothing' }, 'organizationId', 102],
    [{ proof: 'certificate' }, 'proofAuthorityId', 106],
    [{ proofAuthorityId: deviceTemplateId }, 'proofAuthorityId', 106],
    [{ issues: 'certificate' }, 'certificateAuthorityId', 106],
    [{ issues: 'either', certificateAuthorityId: deviceTemplateId }, 'certificateAuthorityId', 102],
    [{ validFrom: '2026-02-01', validUntil: '2026-01-01' }, 'validUntil', 106],
    [{ validFrom: 'soon' }, 'validFrom', 106],
    [{ certificateDays: 3651 }, 'certificateDays', 106],
    [{ overlapDays: 91 }, 'overlapDays', 106],
    [{ maxDevices: 0 }, 'maxDevices', 106],
    [{ hookUrl: 'http://hooks.example.com' }, 'hookUrl', 106],
    [{ hookUrl: 'https://10.0.0.1/' }, 'hookUrl', 106],
    [{ hookUrl: 'https://user:password@hooks.example.com/' }, 'hookUrl', 106],
    [{ hookSecret: 'a-secret-without-a-hook' }, 'hookSecret', 106],
    [{ hookUrl: 'https://hooks.example.com', hookSecret: 'short' }, 'hookSecret', 106],
  ];
  for (const [more, name, code] of faults)
    t.match(
      await create({ ...body, ...more }),
      { status: 400, body: { error: { code, details: [{ path: name }] } } },
      name,
    );
  await service.ok('POST', '/api/v1/enrollment-groups', { body: { accountId: service.accountId, ...body } });
  t.match(await create(body), { status: 400, body: { error: { details: [{ path: 'name' }] } } }, 'a name is unique');
});

t.test('an account has 100 groups at most, those in the trash not counted', async (t) => {
  const own = await service.inNewAccount();
  t.teardown(() => own.close());
  const { id: deviceTemplateId } = await own.template();
  const body = { deviceTemplateId, proof: 'derivedKey' };
  const groups = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      own.create('/enrollment-groups', 'enrollmentGroup', { name: `${n}`, ...body }),
    ),
  );
  const more = { body: { accountId: own.accountId, name: 'more', ...body } };
  t.match(await own.http('POST', '/api/v1/enrollment-groups', more), { status: 400, text: /100 enrollment groups/ });
  const [first] = groups;
  const { enrollmentGroup: gone } = await own.ok(
    'DELETE',
    `/api/v1/enrollment-groups/${present(first).id}`,
    etag(present(first).version),
  );
  await own.ok('POST', '/api/v1/enrollment-groups', more);
  const recover = `/api/v1/trash/enrollment-groups/${gone.id}/recover` as const;
  t.match(await own.http('POST', recover, etag(gone.version)), { status: 400, text: /100 enrollment groups/ });
});

t.end();
