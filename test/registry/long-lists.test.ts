/** Lists of an account with more rows than the event loop looks through: what they find, and that others do not wait for it. */
import { newId } from '../../src/core/ids.ts';
import { audited } from '../support/audited.ts';
import { storeMore } from '../support/faults.ts';
import { shareOfLoop } from '../support/feel.ts';
import { part } from '../support/part.ts';
import { present, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

/** Half of the rows of each list. */
const many = 10_000;

/** The second half of the devices, in the order of lists, has another name; every second device is in the organization. */
const most = 2 * many + 10;
const begin = Date.parse('2026-05-01T00:00:00Z');
const timeOf = (n: number) => new Date(begin + n).toISOString();

let service: Service;
let organizationId: string;
/** Of an end-user of the organization. */
let token: string;
const ids = { devices: [] as string[], endUsers: [] as string[] };

t.before(async () => {
  service = await startService(t);
  const device = await service.create('/devices', 'device', { serialNumber: 'a first one' });
  const organization = await service.organization();
  organizationId = organization.id;
  const person = await service.endUser(organizationId);
  token = person.token;
  const more = <R extends object>(rows: number, one: (n: number) => R) =>
    Array.from({ length: rows }, (_, n) => ({ id: newId(service.accountId), ...one(n) }));
  const dated = (n: number, rows: number) => ({ created: timeOf(n), lastModified: timeOf(rows - n) });
  const devices = more(most, (n) => ({
    ...dated(n, most),
    serialNumber: `${n < most / 2 ? 'Ähre' : 'Öl'}-${String(n).padStart(6, '0')}`,
    organizationId: n % 2 ? organizationId : null,
  }));
  const endUsers = more(2 * many, (n) => ({
    ...dated(n, 2 * many),
    userId: null,
    deleted: n % 3 ? null : timeOf(n),
  }));
  const records = more(many + 1, (n) => ({
    time: timeOf(n),
    outcome: n % 2 ? 'failure' : 'success',
    address: `10.0.0.${n % 7}`,
  }));
  await storeMore(service, 'devices', device.id, devices);
  await storeMore(service, 'endUsers', person.endUser.id, endUsers);
  const [record] = await audited(service, '');
  await storeMore(service, 'auditRecords', present(record).id, records);
  ids.devices = devices.map(({ id }) => id);
  ids.endUsers = endUsers.map(({ id }) => id);
});

const list = async (path: string, more: string, as?: string) => {
  const answer = await service.http(
    'GET',
    `/api/v1/${path}?accountId=${service.accountId}&${encodeURI(more)}`,
    as ? { token: as } : {},
  );
  const [{ results, meta }] = Object.values(answer.body) as [
    { results: Array<{ id: string }>; meta: { count: number } },
  ];
  return { count: meta.count, ids: results.map(({ id }) => id) };
};

t.test('devices are found that are many, and far from the beginning of the order', async (t) => {
  const newer = ids.devices.slice(most / 2);
  t.strictSame(await list('devices', 'serialNumber=öL-'), { count: newer.length, ids: newer.slice(0, 10) });
  const end = await list('devices', `serialNumber=öl-&page=${newer.length / 5}&pageSize=5`);
  t.strictSame(end, { count: newer.length, ids: newer.slice(-5) });
  const long = await list('devices', 'serialNumber=öl-&pageSize=1000&page=2&sortOrder=desc');
  t.strictSame(long, { count: newer.length, ids: newer.toReversed().slice(1000, 2000) });
  const last = await list('devices', `page=${Math.ceil((most + 1) / 10)}`);
  t.strictSame(last, { count: most + 1, ids: ids.devices.slice(-((most + 1) % 10)) }, 'the last page of all');
  const reached = ids.devices.filter((_, n) => n % 2 && n >= most / 2);
  t.strictSame(await list('devices', 'serialNumber=öl-', token), { count: reached.length, ids: reached.slice(0, 10) });
});

t.test('end-users are found, and records of the audit', async (t) => {
  const live = ids.endUsers.filter((_, n) => n % 3);
  const byChange = await list('end-users', 'sortBy=lastModified&page=3');
  t.equal(byChange.count, live.length + 1);
  t.strictSame(byChange.ids, live.toReversed().slice(20, 30));
  const failures = await list('audit', 'outcome=failure&address=10.0.0.3&to=2026-05-02');
  t.equal(failures.count, Array.from({ length: many }, (_, n) => n).filter((n) => n % 2 && n % 7 === 3).length);
  t.equal(failures.ids.length, 10);
});

t.test('the event loop has time for others while long lists are found', async (t) => {
  const { result, share } = await shareOfLoop(() =>
    Promise.all(Array.from({ length: 12 }, () => list('end-users', 'sortBy=lastModified&page=300'))),
  );
  t.equal(result[0]?.ids.length, 10);
  t.ok(share < 0.5, `${Math.round(100 * share)} % of the work was done in the event loop`);
});

t.end();
