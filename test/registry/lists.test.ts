/** Lists of devices: what is counted as rows are written, and what is found by a part of a text. */
import { deepStrictEqual } from 'node:assert';
import { join } from 'node:path';
import fc from 'fast-check';
import { fold } from '../../db/sqlite/fold.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { newId } from '../../src/core/ids.ts';
import { purgeNow } from '../support/clockwork.ts';
import { changeStored, notePresence, storeMore, watchReads } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Entity, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const day = 24 * 60 * 60_000;
let now = Date.parse('2026-05-01T00:00:00Z');
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

/** A device as the model knows it. */
interface Device {
  id: string;
  version: string;
  serialNumber: string;
  firmwareVersion: string | null;
  deviceTemplateId: string;
  organizationId: string | null;
  provisioningState: string;
  connected: boolean;
  deleted: boolean;
}

/** Which texts contain another, or are like it where it has stars, by what JavaScript's regular expressions know of case. */
function containing(part: string): (text: string | null) => boolean {
  const parts = part.normalize('NFC').split('*');
  const like = parts.map((one) => one.replace(/[\\^$.+?()[\]{}|/]/g, '\\$&')).join('.*');
  const pattern = new RegExp(parts.length > 1 ? `^${like}$` : like, 'isu');
  return (text) => text !== null && pattern.test(text.normalize('NFC'));
}

type Sort = 'serialNumber' | 'firmwareVersion' | 'organizationId' | 'id';

/** As SQLite orders: nothing first, then bytes; organizations are the same for many, which follow by their serial numbers. */
function ordered(devices: Device[], sort: Sort, sortOrder: 'asc' | 'desc'): string[] {
  const by: Sort[] = sort === 'organizationId' ? [sort, 'serialNumber'] : [sort];
  const keyed = devices.map((device) => ({
    id: device.id,
    keys: by.map((name) => Buffer.from(device[name] === null ? '' : `.${device[name]}`)),
  }));
  type Keyed = (typeof keyed)[number];
  const differences = (a: Keyed, b: Keyed) => a.keys.map((key, n) => Buffer.compare(key, b.keys[n] ?? key));
  const compare = (a: Keyed, b: Keyed) => differences(a, b).find((one) => one !== 0) ?? (a.id < b.id ? -1 : 1);
  const ids = keyed.sort(compare).map(({ id }) => id);
  return sortOrder === 'asc' ? ids : ids.reverse();
}

interface Query {
  serialNumber?: string;
  firmwareVersion?: string;
  deviceTemplateId?: string;
  organizationId?: string;
  provisioningState?: string;
  connected?: boolean;
}

/** Lists the first two pages, and holds them against the model's devices in the caller's reach. */
async function compare(
  who: { accountId: string; token: string },
  devices: Device[],
  query: Query,
  { sortBy = 'serialNumber' as Sort, sortOrder = 'asc' as 'asc' | 'desc', pageSize = 4 } = {},
): Promise<void> {
  const { serialNumber, firmwareVersion, ...exact } = query;
  const [hasSerial, hasFirmware] = [serialNumber, firmwareVersion].map((part) =>
    part === undefined ? () => true : containing(part),
  ) as [ReturnType<typeof containing>, ReturnType<typeof containing>];
  const found = devices.filter(
    (device) =>
      !device.deleted &&
      hasSerial(device.serialNumber) &&
      hasFirmware(device.firmwareVersion) &&
      Object.entries(exact).every(([name, value]) => String(device[name as keyof Device]) === String(value)),
  );
  const ids = ordered(found, sortBy, sortOrder);
  const search = new URLSearchParams({ accountId: who.accountId, sortBy, sortOrder, pageSize: String(pageSize) });
  for (const [name, value] of Object.entries(query)) search.set(name, String(value));
  for (const page of [1, 2]) {
    search.set('page', String(page));
    const answer = await service.http('GET', `/api/v1/devices?${search}`, { token: who.token });
    const what = `page ${page} of ${JSON.stringify({ ...query, sortBy, sortOrder })}`;
    if (page === 2 && ids.length <= pageSize) {
      deepStrictEqual([answer.status, answer.body.error?.code], [416, 109], what);
      continue;
    }
    const { results, meta } = answer.body.devices;
    deepStrictEqual(meta.count, ids.length, `the count of ${what}`);
    const expected = ids.slice((page - 1) * pageSize, page * pageSize);
    deepStrictEqual(
      results.map(({ id }) => id),
      expected,
      what,
    );
  }
}

type Kept = Record<'accountId' | 'serialNumber', string>;

/** Each part of a text that has one, two or three characters. */
function partsOf(text: string): Set<string> {
  const characters = [...text];
  const parts = characters.flatMap((_, n) => [1, 2, 3].map((length) => characters.slice(n, n + length).join('')));
  return new Set(parts);
}

/** That everything that triggers keep is what plain SQL says of the devices. */
function checkKept(): void {
  const file = openSqlite(join(service.directory, 'registry.db'), { readonly: true });
  try {
    const rows = <T extends object>(query: string) => file.prepare<[], T>(query).all();
    const kinds = '"deviceTemplateId", "provisioningState", "connected"';
    const live = 'FROM "wholeDevices" WHERE "deleted" IS NULL';
    for (const [table, place, plain] of [
      ['deviceCounts', '', ''],
      ['placedDeviceCounts', '"organizationId",', `coalesce("organizationId", ''),`],
    ])
      deepStrictEqual(
        rows(`SELECT "accountId", ${place} ${kinds}, "count" FROM "${table}" ORDER BY 1, 2, 3, 4, 5`).map(
          Object.values,
        ),
        rows(
          `SELECT "accountId", ${plain} ${kinds}, count(*) ${live} GROUP BY "accountId", ${plain} ${kinds} ORDER BY 1, 2, 3, 4, 5`,
        ).map(Object.values),
        table,
      );
    deepStrictEqual(
      rows('SELECT * FROM "firmwareVersionCounts" ORDER BY 1, 2, 3, 4').map(Object.values),
      rows(`SELECT "accountId", "firmwareVersion", "deviceTemplateId", "provisioningState", count(*) ${live}
        AND "firmwareVersion" IS NOT NULL GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`).map(Object.values),
      'firmwareVersionCounts',
    );
    const indexed = rows<{ term: string; doc: number }>('SELECT "term", "doc" FROM "devices_serialNumber_terms"');
    const plain = new Map<string, number>();
    for (const { accountId, serialNumber } of rows<Kept>(`SELECT * ${live}`))
      for (const part of partsOf(fold(serialNumber))) {
        const term = accountId.slice(26) + part;
        plain.set(term, (plain.get(term) ?? 0) + 1);
      }
    deepStrictEqual(new Map(indexed.map(({ term, doc }) => [term, doc])), plain, 'the index of serial numbers');
  } finally {
    file.close();
  }
}

const characters = ['a', 'A', 'b', 'B', 'é', 'É', 'e\u0301', 'Σ', 'σ', 'ς', 'ß', 'ẞ', 'k', 'K', '\uFFFD', '😀'];
/** As the service keeps a serial number. */
const composed = (serialNumber: string) => serialNumber.normalize('NFC');
const signs = ['%', '_', '\\', '"', '1', '.', '-', '*', "'"];
const text = (minLength: number, maxLength: number) =>
  fc.array(fc.constantFrom(...characters, ...signs), { minLength, maxLength }).map((parts) => parts.join(''));
const pattern = fc.oneof({ weight: 4, arbitrary: text(1, 5) }, { weight: 1, arbitrary: fc.constantFrom('', '\uFFFD') });
const number = fc.nat({ max: 999 });
const sorts: Sort[] = ['serialNumber', 'firmwareVersion', 'organizationId', 'id'];

const verbs = [
  'create',
  'create',
  'create',
  'presence',
  'presence',
  'renumber',
  'update',
  'move',
  'trash',
  'recover',
  'activate',
] as const;
const question = fc.record(
  {
    serialNumber: pattern,
    firmwareVersion: pattern,
    deviceTemplateId: number,
    organizationId: number,
    provisioningState: fc.constantFrom('defined', 'activated', 'associated'),
    connected: fc.boolean(),
  },
  { requiredKeys: [], noNullPrototype: true },
);

type Asked = typeof question extends fc.Arbitrary<infer A> ? A : never;

const step = fc.record(
  {
    verb: fc.constantFrom(...verbs, 'presence' as const, 'ask' as const, 'ask' as const, 'purge' as const),
    serialNumber: text(1, 6),
    firmwareVersion: fc.option(text(0, 4)),
    asked: question,
    what: number,
    to: number,
  },
  { noNullPrototype: true },
);
t.test('whatever devices go through, what is counted and indexed is what they are, and lists find it', async (t) => {
  let lived = 0;
  const deadline = performance.now() + 9000;
  const life = fc.asyncProperty(
    fc.array(step, { minLength: 10, maxLength: 60, size: 'max' }),
    fc.array(fc.tuple(question, fc.constantFrom(...sorts), fc.boolean()), { minLength: 8, maxLength: 8 }),
    async (steps, questions) => {
      // Enough is enough; fast-check itself would let a life that has begun go on next to the next test.
      if (performance.now() > deadline) return;
      const account = await service.account();
      const { accountId } = account;
      const who = { accountId, token: account.admin };
      const make = async (path: string, body: object) =>
        Object.values(
          await service.ok('POST', `/api/v1${path}`, { body: { accountId, ...body }, token: who.token }),
        )[0] as Entity;
      const [upper, template] = [
        await make('/organizations', { name: 'upper' }),
        await make('/devices/templates', { name: 'T' }),
      ];
      const lower = await make('/organizations', { name: 'lower', parentId: upper.id });
      const places: Array<string | null> = [null, upper.id, lower.id];
      const templates = [template.id, (await make('/devices/templates', { name: 'U' })).id];
      const devices: Device[] = [];
      const toQuery = ({ deviceTemplateId, organizationId, ...others }: Asked): Query => ({
        ...others,
        ...(deviceTemplateId !== undefined && { deviceTemplateId: templates[deviceTemplateId % 2] as string }),
        ...(organizationId !== undefined && { organizationId: String(places[organizationId % 3]) }),
      });

      for (const { verb, what, to, serialNumber, firmwareVersion, asked } of steps) {
        const organizationId = places[to % places.length] ?? null;
        const deviceTemplateId = templates[to % 2] as string;
        if (verb === 'create') {
          const body = { serialNumber, firmwareVersion, organizationId, deviceTemplateId };
          const { id, version } = await make('/devices', body);
          const kept = { ...body, serialNumber: composed(serialNumber) };
          devices.push({ ...kept, id, version, provisioningState: 'defined', connected: false, deleted: false });
          continue;
        }
        if (verb === 'ask') {
          await compare(who, devices, toQuery(asked));
          continue;
        }
        if (verb === 'purge') {
          now += 31 * day;
          await purgeNow(service);
          who.token = (await service.loginAs(account.email, account.password, accountId)).jwt;
          devices.splice(0, devices.length, ...devices.filter((device) => !device.deleted));
          continue;
        }
        const apt = devices.filter(({ deleted }) => deleted === (verb === 'recover'));
        // Few connect, so that they do it again.
        const device = apt[what % (verb === 'presence' ? Math.min(2, apt.length) : apt.length)];
        if (!device) continue;
        const { id, version } = device;
        const ask = async (method: string, path: string, body?: object) => {
          const headers = { etag: version };
          const answer = await service.ok(method, `/api/v1${path}`, { body, headers, token: who.token });
          device.version = answer.device.version;
        };
        const put = (changes: Partial<Device>) => {
          Object.assign(device, changes, changes.serialNumber && { serialNumber: composed(changes.serialNumber) });
          return ask('PUT', `/devices/${id}`, changes);
        };
        if (verb === 'renumber') await put({ serialNumber });
        if (verb === 'update') await put({ firmwareVersion, ...(to % 3 === 0 && { serialNumber, organizationId }) });
        if (verb === 'move') await put({ organizationId });
        if (verb === 'trash') await ask('DELETE', `/devices/${id}`);
        if (verb === 'recover') await ask('POST', `/trash/devices/${id}/recover`);
        if (verb === 'trash' || verb === 'recover') device.deleted = verb === 'trash';
        // The broker writes presence so, and a first credential the state.
        if (verb === 'presence' || verb === 'activate') {
          if (verb === 'presence') device.connected = !device.connected;
          else device.provisioningState = 'activated';
          const { provisioningState } = device;
          await changeStored(service, 'UPDATE "devices" SET "provisioningState" = ? WHERE "id" = ?', [
            provisioningState,
            id,
          ]);
          await notePresence(service, id, { connected: device.connected ? 1 : 0 });
        }
      }

      checkKept();
      const email = { idmUserEmail: 'u@example.com', idmUserPassword: 'a long enough secret' };
      await make('/end-users', { organizationId: upper.id, createIdmUser: true, ...email });
      const endUser = {
        accountId,
        token: (await service.loginAs(email.idmUserEmail, email.idmUserPassword, accountId)).jwt,
      };
      const reached = devices.filter(({ organizationId }) => organizationId !== null);
      for (const [drawn, sortBy, descending] of questions) {
        const query = toQuery(drawn);
        const order = { sortBy, sortOrder: descending ? ('desc' as const) : ('asc' as const) };
        await compare(who, devices, query, order);
        await compare(endUser, reached, query, order);
        const { serialNumber, firmwareVersion, ...exact } = query;
        await compare(who, devices, exact, order);
        if (serialNumber !== undefined) await compare(who, devices, { serialNumber }, order);
        if (firmwareVersion !== undefined) await compare(who, devices, { firmwareVersion }, order);
      }
      checkKept();
      lived += 1;
    },
  );
  await fc.assert(life, { numRuns: 4 });
  t.ok(lived > 0, `${lived} lives`);
});

t.test('what is found thousands of times is found wherever it stands', async () => {
  const who = { accountId: service.accountId, token: service.admin };
  await service.login();
  who.token = service.admin;
  const device = await service.create('/devices', 'device', { serialNumber: 'the first' });
  const organization = await service.organization();
  const devices: Device[] = [{ ...device, firmwareVersion: null, organizationId: null, deleted: false }];
  const more = Array.from({ length: 5800 }, (_, n) => ({
    id: newId(service.accountId),
    created: new Date(now + n).toISOString(),
    // Two product lines, the second of which begins where the first ends.
    serialNumber: `${n < 5200 ? 'Ähre' : 'Öl'}-${n % 7}-${n}`,
    firmwareVersion: n % 5 === 0 ? null : `${n % 3}.${n % 4}`,
    organizationId: n % 2 ? organization.id : null,
    provisioningState: n % 3 ? 'defined' : 'associated',
  }));
  await storeMore(service, 'devices', device.id, more);
  devices.push(...more.map((one) => ({ ...device, ...one, connected: false, deleted: false })));
  const { token } = await service.endUser(organization.id);
  const reached = devices.filter(({ organizationId }) => organizationId === organization.id);
  /** The second time in the other order. */
  const check = async (turn: 0 | 1) => {
    const questions: Query[] = [
      { serialNumber: 'öL' },
      { serialNumber: 'Öl' },
      { serialNumber: 'ä' },
      { serialNumber: 'öl-3' },
      { serialNumber: '-' },
      { firmwareVersion: '.' },
      { firmwareVersion: '2.' },
      { serialNumber: 'ÖL', firmwareVersion: '1' },
      { serialNumber: 'öl', provisioningState: 'defined' },
      { serialNumber: '', connected: false },
      { serialNumber: '', organizationId: 'null' },
      { provisioningState: 'defined' },
      { provisioningState: 'defined', organizationId: organization.id },
      { organizationId: 'null', connected: false },
    ];
    for (const [n, query] of questions.entries()) {
      const sortOrder = (n + turn) % 2 ? 'desc' : 'asc';
      const another = sorts[1 + ((n + turn) % 3)] as Sort;
      await compare(who, devices, query, { sortOrder });
      await compare(who, devices, query, { sortOrder, sortBy: another, pageSize: n === 3 ? 1000 : 20 });
      await compare({ ...who, token }, reached, query, { sortOrder, sortBy: another });
    }
    checkKept();
  };
  await check(0);
  for (const one of devices.slice(1, 40)) {
    one.serialNumber = `Öl-${one.serialNumber}`;
    one.firmwareVersion = '2.5';
    const { serialNumber, firmwareVersion } = one;
    const body = { serialNumber, firmwareVersion };
    await service.ok('PUT', `/api/v1/devices/${one.id}`, { body, headers: { etag: device.version } });
  }
  for (const one of devices.slice(-20)) {
    await service.ok('DELETE', `/api/v1/devices/${one.id}`, { headers: { etag: device.version } });
    one.deleted = true;
  }
  await check(1);
});

t.test('no list of devices reads a whole table, whatever it asks for', async (t) => {
  await service.login();
  const device = await service.create('/devices', 'device', { serialNumber: 'Öl-last', latitude: 1, longitude: 2 });
  const { token } = await service.endUser((await service.organization()).id);
  const filters = {
    deviceTemplateId: device.deviceTemplateId,
    organizationId: 'null',
    serialNumber: 'öl',
    provisioningState: 'defined',
    firmwareVersion: '2.1',
    latitude: '1',
    longitude: '2',
    connected: 'true',
    lastConnected: '2026-03-04T05:06:07.008Z',
    externalIp: '10.9.8.7',
    geoIpLatitude: '1.5',
    geoIpLongitude: '-2',
    reverseDns: 'a.example',
  };
  const plansOf = watchReads(t, service);
  const names = Object.entries(filters);
  for (const [n, first] of names.entries())
    for (const second of names.slice(n))
      for (const [who, sortBy] of [
        [service.admin, 'serialNumber'],
        [service.admin, 'lastModified'],
        [token, 'organizationId'],
      ] as const) {
        const query = new URLSearchParams({
          accountId: service.accountId,
          sortBy,
          ...Object.fromEntries([first, second]),
        });
        await service.ok('GET', `/api/v1/devices?${query}`, { token: who });
      }
  const plans = plansOf();
  const scans = plans.flatMap(({ source, plan }) => {
    if (!/"devices|"wholeDevices|"devicePresence/.test(source)) return [];
    return plan.flatMap((detail) =>
      /^SCAN (d|p|devices|devicePresence)\b/.test(detail) ? `${detail}: ${source}` : [],
    );
  });
  t.ok(plans.length > 100, `${plans.length} statements`);
  t.same(scans, []);
});

t.test('callers of an account that ask for many lists at once are all answered', async (t) => {
  await service.login();
  const tokens: string[] = [];
  for (let n = 0; n < 70; n += 1) {
    const made = { name: service.unique('App'), kind: 'backEnd' };
    const { id, appToken } = await service.create('/applications', 'application', made);
    const body = { appId: id, appToken, accountId: service.accountId };
    tokens.push((await service.ok('POST', '/api/v1/auth/login-application', { token: null, body })).jwt);
  }
  const ask = async (token: string, n: number) => {
    const search = new URLSearchParams({ accountId: service.accountId, serialNumber: `${n}\uFFFD` });
    return (await service.ok('GET', `/api/v1/devices?${search}`, { token })).devices.meta.count;
  };
  t.same([...new Set(await Promise.all(tokens.map(ask)))], [0]);
});

t.test('names of organizations are matched in any case of any letter', async (t) => {
  await service.login();
  await service.create('/organizations', 'organization', { name: 'Große Ähre 100%_\\' });
  for (const name of ['GROSSE äHRE', 'SSE ÄH', 'große', 'GROẞE', 'a\u0308hre', '0%_\\', 'ÄHR']) {
    const search = new URLSearchParams({ accountId: service.accountId, name });
    const { meta } = (await service.ok('GET', `/api/v1/organizations?${search}`)).organizations;
    t.equal(meta.count, 1, name);
  }
  for (const name of ['ahre', '100_', 'Große%']) {
    const search = new URLSearchParams({ accountId: service.accountId, name });
    const { meta } = (await service.ok('GET', `/api/v1/organizations?${search}`)).organizations;
    t.equal(meta.count, 0, name);
  }
});

t.test('devices are found by what their connections report, unless they are in the trash or elsewhere', async (t) => {
  await service.login();
  const upper = await service.organization();
  const make = (serialNumber: string, more: object) =>
    service.create('/devices', 'device', { serialNumber, externalIp: '10.9.8.7', ...more });
  const [b, a] = [
    await make('seen b', { organizationId: upper.id }),
    await make('seen a', { reverseDns: 'a.example' }),
  ];
  await make('seen elsewhere', { externalIp: '10.9.8.6' });
  const lastConnected = '2026-03-04T05:06:07.008Z';
  const seen = { connected: 1, lastConnected, geoIpLatitude: '1.5', geoIpLongitude: '-2' };
  await notePresence(service, b.id, seen);
  const found = async (query: Record<string, string>, token = service.admin) => {
    const search = new URLSearchParams({ accountId: service.accountId, ...query });
    const { devices } = await service.ok('GET', `/api/v1/devices?${search}`, { token });
    const serials = devices.results.map(({ serialNumber }) => serialNumber);
    t.equal(devices.meta.count, serials.length);
    return serials;
  };
  t.same(await found({ externalIp: '10.9.8.7' }), ['seen a', 'seen b']);
  t.same(await found({ externalIp: '10.9.8.7', sortBy: 'created' }), ['seen b', 'seen a']);
  t.same(await found({ externalIp: '10.9.8.7', connected: 'false' }), ['seen a']);
  t.same(await found({ externalIp: '10.9.8.7', serialNumber: 'B' }), ['seen b']);
  t.same(await found({ reverseDns: 'a.example' }), ['seen a']);
  t.same(await found({ lastConnected, connected: 'true' }), ['seen b']);
  t.same(await found({ geoIpLatitude: '1.50', geoIpLongitude: '-2.0' }), ['seen b']);
  const { token } = await service.endUser(upper.id);
  t.same(await found({ externalIp: '10.9.8.7' }, token), ['seen b']);

  const { version } = (await service.ok('GET', `/api/v1/devices/${a.id}`)).device;
  const put = { headers: { etag: version }, body: { externalIp: '10.9.8.5', reverseDns: null } };
  const { device } = await service.ok('PUT', `/api/v1/devices/${a.id}`, put);
  t.match(device, { externalIp: '10.9.8.5', reverseDns: null });
  t.not(device.version, version);
  t.same(await found({ externalIp: '10.9.8.7' }), ['seen b']);

  await service.ok('DELETE', `/api/v1/devices/${b.id}`, { headers: { etag: b.version } });
  t.same(await found({ externalIp: '10.9.8.7' }), []);
  t.match((await service.ok('GET', `/api/v1/trash/devices/${b.id}`)).device, { externalIp: '10.9.8.7', lastConnected });
  await service.ok('POST', `/api/v1/trash/devices/${b.id}/recover`, { headers: { etag: b.version } });
  t.same(await found({ externalIp: '10.9.8.7' }), ['seen b']);
});

t.end();
