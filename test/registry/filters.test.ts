/** Filters of devices as expressions: what they mean, where they are taken, and what is refused. */
import { deepStrictEqual } from 'node:assert';
import fc from 'fast-check';
import { fold } from '../../db/sqlite/fold.ts';
import { newId } from '../../src/core/ids.ts';
import { defaultRoles } from '../../src/core/rights.ts';
import { compileKeptFilters } from '../../src/registry/devices/filter.ts';
import { DeviceSubject } from '../../src/registry/devices/subject.ts';
import { claim, newGroup } from '../enrollment/devices.ts';
import { publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { makeCertificate } from '../support/certificates.ts';
import { notePresence, storeMore, watchReads } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { adminEmail, adminPassword, type Entity, type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const hour = 60 * 60_000;
let now = Date.parse('2026-05-10T12:00:00Z');
const at = (offset: number) => new Date(now + offset).toISOString();
let service: Service;
t.before(async () => {
  service = await startService(t, { clock: { now: () => now } });
});

const make = (path: string, wrapper: string, body: object) =>
  service.create(path as '/devices', wrapper as 'device', body as { serialNumber: string }) as Promise<Entity>;
const deviceTemplate = () => make('/devices/templates', 'deviceTemplate', { name: service.unique('T') });
const field = (deviceTemplateId: string, name: string, fieldType: string, indexed = false) =>
  make('/devices/custom-fields', 'deviceField', { deviceTemplateId, name, fieldType, indexed });

async function answer(filter: string, more: Record<string, string> = {}, token = service.admin) {
  const query = new URLSearchParams({ accountId: service.accountId, pageSize: '1000', filter, ...more });
  return service.http('GET', `/api/v1/devices?${query}`, { token });
}

/** The serial numbers that a filter finds, in their order. What an admin finds of all devices is what the predicate in memory says. */
async function found(filter: string, more: Record<string, string> = {}, token = service.admin): Promise<string[]> {
  const { status, body, text } = await answer(filter, more, token);
  deepStrictEqual(status, 200, `${filter}: ${text}`);
  const { results } = body.devices;
  if (token === service.admin && Object.keys(more).length === 0)
    deepStrictEqual(await heldInMemory(filter), new Set(results.map(({ id }) => id)), `in memory: ${filter}`);
  return results.map(({ serialNumber }) => serialNumber);
}

let pairs = 0;
/** The ids of the account's devices of which the predicate of a filter holds. */
async function heldInMemory(filter: string): Promise<Set<string>> {
  const { ctx } = service.server;
  const { accountId } = service;
  const caller = { kind: 'admin', id: accountId, accountId, role: defaultRoles.account } as const;
  const [kept] = await compileKeptFilters(ctx, caller, [filter]);
  const predicate = kept?.predicate();
  const live = ctx.registry.query.selectFrom('devices').select('id').where('deleted', 'is', null);
  const ids = (await live.where('accountId', '=', accountId).execute()).map(({ id }) => id);
  pairs += ids.length;
  return new Set(
    ids.filter((id) => {
      const row = ctx.registry.entity('devices', id);
      return row && predicate?.holds(new DeviceSubject(ctx, row, now));
    }),
  );
}

/** What is said of a filter that is refused. */
async function refusal(filter: string, token = service.admin): Promise<string> {
  const { status, body } = await answer(filter, {}, token);
  const { error } = body as { error?: { code: number; details: { path: string; message: string }[] } };
  deepStrictEqual([status, error?.code, error?.details.map(({ path }) => path)], [400, 106, ['filter']], filter);
  return error?.details[0]?.message ?? '';
}

type Value = string | number | boolean | null;
type Device = Record<string, unknown> & { id: string; serialNumber: string };
type Type = 'text' | 'version' | 'number' | 'degrees' | 'date' | 'boolean';
type Term = { attribute: string; operator: string; value?: Value };
type Tree = { and: Tree[] } | { or: Tree[] } | { not: Tree } | Term;

/** The value and the type of an attribute, as the answers of the API have it. */
function readValue(device: Device, attribute: string, types: ReadonlyMap<string, Type>): { value: Value; type: Type } {
  const [first = '', name = ''] = attribute.split('.');
  const owner = first === 'template' ? device.deviceTemplate : first === 'organization' ? device.organization : device;
  const value = (owner as Record<string, Value> | null)?.[name === '' ? first : name] ?? null;
  const type = types.get(attribute) ?? types.get(`${device.deviceTemplateId}.${attribute}`) ?? 'text';
  if (attribute === 'template.default') return { value: value === 'true', type };
  return { value, type };
}

/** Precedence as semver.org has it, without what versionKey does. */
function compareVersions(one: string, other: string): number | undefined {
  const read = (text: string) => {
    const [main = ''] = text.toLowerCase().replace(/^v/, '').split('+');
    const dash = main.indexOf('-');
    const release = (dash === -1 ? main : main.slice(0, dash)).split('.');
    const pre = dash === -1 ? undefined : main.slice(dash + 1).split('.');
    const isOne = /^\d+$/.test(release[0] ?? '') && release.every((part) => /^[\da-z]+$/.test(part));
    return isOne && (pre ?? ['a']).every((part) => /^[\da-z-]+$/.test(part)) ? { release, pre } : undefined;
  };
  const [left, right] = [read(one), read(other)];
  if (!left || !right) return undefined;
  const parts = (a: string[], b: string[], missing: string | undefined) => {
    for (let n = 0; n < Math.max(a.length, b.length); n += 1) {
      const [x, y] = [a[n] ?? missing, b[n] ?? missing];
      if (x === undefined || y === undefined) return x === undefined ? -1 : 1;
      const [isX, isY] = [/^\d+$/.test(x), /^\d+$/.test(y)];
      if (isX !== isY) return isX ? -1 : 1;
      if (isX && BigInt(x) !== BigInt(y)) return BigInt(x) < BigInt(y) ? -1 : 1;
      if (!isX && x !== y) return x < y ? -1 : 1;
    }
    return 0;
  };
  const releases = parts(left.release, right.release, '0');
  if (releases !== 0 || (!left.pre && !right.pre)) return releases;
  if (!left.pre || !right.pre) return left.pre ? -1 : 1;
  return parts(left.pre, right.pre, undefined);
}

function isOrdered(operator: string, order: number): boolean {
  return { eq: order === 0, gt: order > 0, ge: order >= 0, lt: order < 0, le: order <= 0 }[operator] ?? false;
}

function compare(operator: string, value: Value, type: Type, wanted: Value): boolean {
  if (value === null || wanted === null) return false;
  if (type === 'boolean') return typeof wanted === 'boolean' && operator === 'eq' && value === wanted;
  if (type === 'number' && typeof wanted !== 'number') return false;
  if (type === 'number' || type === 'degrees') return isOrdered(operator, Number(value) - Number(wanted));
  if (typeof wanted !== 'string') return false;
  if (type === 'date') {
    const duration = /^-?PT(\d+)H$/.exec(wanted);
    const time = duration ? now + (wanted.startsWith('-') ? -1 : 1) * Number(duration[1]) * hour : Date.parse(wanted);
    return isOrdered(operator, Date.parse(String(value)) - time);
  }
  const [text, other] = [fold(String(value)), fold(wanted)];
  if (operator === 'co') return text.includes(other);
  if (operator === 'sw') return text.startsWith(other);
  if (operator === 'ew') return text.endsWith(other);
  if (type === 'version') {
    const order = compareVersions(String(value), wanted);
    if (order !== undefined) return isOrdered(operator, order);
    return operator === 'eq' && text === other;
  }
  return isOrdered(operator, Buffer.compare(Buffer.from(text), Buffer.from(other)));
}

function matches(tree: Tree, device: Device, types: ReadonlyMap<string, Type>): boolean {
  if ('and' in tree) return tree.and.every((one) => matches(one, device, types));
  if ('or' in tree) return tree.or.some((one) => matches(one, device, types));
  if ('not' in tree) return !matches(tree.not, device, types);
  const { value, type } = readValue(device, tree.attribute, types);
  const isPresent = value !== null && value !== '';
  const { operator, value: wanted = null } = tree;
  if (operator === 'pr') return isPresent;
  if (wanted === null) return operator === 'eq' ? !isPresent : isPresent;
  return operator === 'ne' ? !compare('eq', value, type, wanted) : compare(operator, value, type, wanted);
}

function written(tree: Tree, isInside = false): string {
  if ('not' in tree) return `NOT (${written(tree.not)})`;
  if ('and' in tree || 'or' in tree) {
    const [word, of] = 'and' in tree ? [' and ', tree.and] : [' Or ', tree.or];
    const text = of.map((one) => written(one, true)).join(word);
    return isInside ? `( ${text})` : text;
  }
  const { attribute, operator, value } = tree;
  return operator === 'pr' ? `${attribute} pr` : `${attribute} ${operator} ${JSON.stringify(value)}`;
}

const texts = ['a', 'A1', 'b', 'Straße', 'STRASSE', 'éa', 'Éa', 'Σς', '😀', 'a b', '%', '_', '"', '\\', '10', '9'];
const versions = ['1', '1.0', 'v1.0.0', '1.10.0', '1.9.3', '1.9.3-rc.1', '1.9.3-RC.2', '1.9.3+b7', '1.9.a', 'beta', ''];
const numbers = [0, 1, 9, 10, -3];
const dates = [at(0), at(-hour), at(hour), '2026-05-10', '2026-05-10T14:00:00+02:00', '2020-02-29T00:00:00.000Z'];
const ofText = ['eq', 'ne', 'co', 'sw', 'ew', 'gt', 'ge', 'lt', 'le'];
const ofOrder = ['eq', 'ne', 'gt', 'ge', 'lt', 'le'];
const samples: Record<Type, { operators: string[]; values: Value[] }> = {
  text: { operators: ofText, values: texts },
  version: { operators: ofText, values: [...versions.filter((one) => one !== ''), 'a'] },
  number: { operators: ofOrder, values: numbers },
  degrees: { operators: ofOrder, values: [52.5, '52.5', -10, 0] },
  date: { operators: ofOrder, values: [...dates, '-PT1H', 'PT1H', 'PT0H'] },
  boolean: { operators: ['eq', 'ne'], values: [true, false] },
};

t.test('every filter finds the devices that it means, whatever stands in them', async (t) => {
  const [a, b] = [await deviceTemplate(), await deviceTemplate()];
  const types = new Map<string, Type>([
    ['serialNumber', 'text'],
    ['firmwareVersion', 'version'],
    ['deviceVersion', 'version'],
    ['name', 'text'],
    ['fields.location', 'text'],
    ['purchaseDate', 'date'],
    ['latitude', 'degrees'],
    ['connected', 'boolean'],
    ['lastConnected', 'date'],
    ['created', 'date'],
    ['provisioningState', 'text'],
    ['deviceTemplateId', 'text'],
    ['template.name', 'text'],
    ['template.default', 'boolean'],
    ['template.category', 'text'],
    ['template.shelf', 'number'],
    ['organization.name', 'text'],
    ['organization.city', 'text'],
    ['organization.rank', 'number'],
  ]);
  const custom: [template: string, name: string, fieldType: string, type: Type][] = [
    [a.id, 'room', 'string', 'text'],
    [b.id, 'room', 'text', 'text'],
    [a.id, 'mixed', 'string', 'text'],
    [b.id, 'mixed', 'int', 'number'],
    [a.id, 'level', 'float', 'number'],
    [a.id, 'isOpen', 'boolean', 'boolean'],
    [b.id, 'since', 'datetime', 'date'],
    [b.id, 'south', 'lat', 'degrees'],
    [a.id, 'Größe', 'string', 'text'],
  ];
  for (const [template, name, fieldType, type] of custom) {
    // Half of the names are found in the index.
    await field(template, name, fieldType, !['level', 'isOpen', 'Größe'].includes(name));
    types.set(`${template}.fields.${name}`, type);
  }
  const { accountId } = service;
  await make('/devices/templates/custom-fields', 'deviceTemplateField', { name: 'shelf', fieldType: 'int' });
  await service.ok('PUT', `/api/v1/devices/templates/${a.id}`, {
    body: { category: 'Éa', shelf: 9 },
    headers: { etag: a.version },
  });
  const ofOrganizations = await make('/organizations/templates', 'organizationTemplate', { name: 'O' });
  const organizationTemplateId = ofOrganizations.id;
  await make('/organizations/custom-fields', 'organizationField', {
    ...{ organizationTemplateId, name: 'rank', fieldType: 'int' },
  });
  const upper = await make('/organizations', 'organization', {
    name: 'Straße',
    city: 'A1',
    rank: 9,
    organizationTemplateId,
  });
  const lower = await make('/organizations', 'organization', { name: 'b', parentId: upper.id });

  const pick = <V>(values: readonly V[], n: number): V => values[n % values.length] as V;
  const count = 120;
  for (let n = 0; n < count; n += 1) {
    const template = n % 3 ? a : b;
    const own = custom.filter(([id]) => id === template.id);
    const values = own.map(([, name, , type], k) => {
      const { values } = samples[type];
      const value = pick(
        values.filter((one) => !/^-?P/.test(String(one))),
        n * 7 + k * 3,
      );
      return [name, (n + k) % 4 === 0 ? null : value] as const;
    });
    const { id } = await make('/devices', 'device', {
      serialNumber: `${pick(texts, n * 5)}-${n}`,
      deviceTemplateId: template.id,
      organizationId: pick([null, upper.id, lower.id], n >> 2),
      firmwareVersion: pick([null, ...versions], n * 3),
      deviceVersion: pick([...versions, null], n),
      name: pick([null, ...texts], n),
      location: pick(['', ...texts, null], n * 2),
      purchaseDate: pick([...dates, null], n),
      latitude: pick([null, '52.5', -10, 0], n),
      ...Object.fromEntries(values),
    });
    if (n % 2) await notePresence(service, id, { connected: n % 4 === 1 ? 1 : 0, lastConnected: at((n % 5) * -hour) });
  }
  const { token } = await service.endUser(upper.id);
  const expanded = { accountId, pageSize: '1000', expand: 'device-template,organization' };
  const listed = await service.ok('GET', `/api/v1/devices?${new URLSearchParams(expanded)}` as '/api/v1/devices');
  const devices = listed.devices.results as unknown as Device[];
  const attributes = [...types].map(([name, type]) => ({ attribute: name.replace(/^[^.]*\.(?=fields\.)/, ''), type }));
  const term = fc.constantFrom(...attributes).chain(({ attribute, type }) =>
    fc.oneof(
      {
        weight: 8,
        arbitrary: fc.record({
          attribute: fc.constant(attribute),
          operator: fc.constantFrom(...samples[type].operators),
          value: fc.constantFrom(...samples[type].values),
        }),
      },
      { weight: 1, arbitrary: fc.constant({ attribute, operator: 'pr' }) },
      {
        weight: 1,
        arbitrary: fc.record({
          attribute: fc.constant(attribute),
          operator: fc.constantFrom('eq', 'ne'),
          value: fc.constant(null),
        }),
      },
    ),
  );
  const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      { weight: 3, arbitrary: term as fc.Arbitrary<Tree> },
      { weight: 2, arbitrary: fc.record({ and: fc.array(tie('tree'), { minLength: 2, maxLength: 3 }) }) },
      { weight: 2, arbitrary: fc.record({ or: fc.array(tie('tree'), { minLength: 2, maxLength: 3 }) }) },
      { weight: 1, arbitrary: fc.record({ not: tie('tree') }) },
    ),
  }));
  let some = 0;
  const property = fc.asyncProperty(tree, async (filter) => {
    const text = written(filter);
    if ((text.match(/ (eq|ne|co|sw|ew|gt|ge|lt|le|pr)\b/g)?.length ?? 0) > 50) return;
    const meant = devices.filter((device) => matches(filter, device, types));
    if (meant.length > 0 && meant.length < devices.length) some += 1;
    const serials = (those: Device[]) => those.map(({ serialNumber }) => serialNumber);
    deepStrictEqual(await found(text), serials(meant), text);
    // In another order a page is met in another way.
    const ids = meant
      .map(({ id }) => id)
      .sort()
      .slice(0, 3);
    const page = await answer(text, { sortBy: 'id', pageSize: '3' });
    deepStrictEqual(
      page.body.devices.results.map(({ id }) => id),
      ids,
      text,
    );
    deepStrictEqual(page.body.devices.meta.count, meant.length, text);
    // Of presence, people see what has been since the device is theirs.
    if (/astConnected/.test(text)) return;
    const reached = meant.filter(({ organizationId }) => organizationId !== null);
    deepStrictEqual(await found(text, {}, token), serials(reached), text);
  });
  await fc.assert(property, { numRuns: 850, ...(process.env.SEED && { seed: Number(process.env.SEED) }) });
  t.ok(some > 300, `${some} filters tell devices from others`);
  t.ok(pairs >= 100_000, `${pairs} pairs of a filter and a device, in SQL and in memory`);
});

t.test('versions are in the order of semver.org, and their parts have any number and length', async (t) => {
  const order = [
    ...['1.0.0-alpha', '1.0.0-alpha.1', '1.0.0-alpha.beta', '1.0.0-beta', '1.0.0-beta.2', '1.0.0-beta.11'],
    ...['1.0.0-rc.1', '1.0.0', '1.0.1', '1.9.3', '1.10.0', '1.10.0.1', '1.10.a', '2.0.0', '2.1.0', '2.1.1'],
    ...['99999999999999999999999999.0', '100000000000000000000000000'],
  ];
  const { id } = await deviceTemplate();
  for (const [n, firmwareVersion] of order.entries())
    await make('/devices', 'device', { serialNumber: `v-${n}`, deviceTemplateId: id, firmwareVersion });
  for (const [n, version] of order.entries()) {
    const those = `deviceTemplateId eq "${id}" and firmwareVersion`;
    const below = new Set(await found(`${those} lt "${version}"`));
    t.same(
      [...below].sort(),
      order
        .slice(0, n)
        .map((_, k) => `v-${k}`)
        .sort(),
      version,
    );
    t.same(await found(`${those} eq "V${version}+build.7"`), [`v-${n}`]);
  }
  t.same(await found(`deviceTemplateId eq "${id}" and firmwareVersion gt "none"`), []);
});

t.test('what is no filter is refused, with the character where it stops and what would be right', async (t) => {
  const template = await deviceTemplate();
  await field(template.id, 'Room number', 'int');
  await field(template.id, 'corridor', 'string');
  for (const [filter, says] of [
    ['', /^At character 1: the name of an attribute is expected, but it ends here/],
    ['serialNumber', /^At character 13: an operator \(eq, ne, .* or pr\) is expected, but it ends here/],
    ['serialNumber = "a"', /^At character 14: an operator .* there is = "a"/],
    ["serialNumber eq 'a'", /^At character 17: a value: a text in double quotes, .* there is 'a'/],
    ['serialNumber eq "a" && silent pr', /^At character 21: and, or, or the end is expected/],
    ['(silent pr', /^At character 11: and, or, or \) is expected/],
    ['not silent pr', /^At character 5: \( after not is expected/],
    ['silent pr or 😀', /^At character 14: the name of an attribute/],
    ['"😀" pr', /^At character 1: the name/],
    ['name eq "😀" or nme pr', /^At character 16: nme is unknown. Is name meant\?/],
    ['fields.coridor pr', /^At character 1: fields.coridor is unknown. Is fields.corridor meant\?/],
    ['nothing pr', /^At character 1: nothing is unknown. Known are id, .*firmwareVersion/],
    ['fields pr', /is unknown/],
    ['emails[type eq "a"]', /^At character 1: emails has no brackets/],
    ['urn:a:b:name pr', /is unknown/],
    ['silent co true', /^At character 1: silent takes eq, ne with true or false, and pr/],
    ['silent eq "true"', /^At character 1: silent takes eq, ne with true or false/],
    ['serialNumber eq 5', /takes eq, ne, co, sw, ew, gt, ge, lt, le with a text in double quotes/],
    ['serialNumber co ""', /takes .* with a text/],
    ['lastConnected lt "yesterday"', /takes eq, ne, gt, ge, lt, le with an ISO 8601 date, or a duration/],
    ['lastConnected lt "-P1M"', /years and months are not durations/],
    ['lastConnected lt "P"', /durations/],
    ['lastConnected lt "-P99999999999D"', /durations/],
    ['lastConnected co "2026"', /takes eq, ne, gt/],
    ['fields."Room number" sw "1"', /^At character 1: fields.Room number takes eq, ne, gt, ge, lt, le with a number/],
    ['fields."Room number" eq 1e999', /with a number/],
    ['within ne "x"', /^At character 1: within takes eq with the id of an organization in double quotes\./],
    ['within pr', /takes eq/],
    ['name gt null', /^At character 1: name takes null with eq and ne alone/],
    ['name eq "\\u0000"', /must not contain NUL/],
    ['name eq "\\ud800"', /must not contain NUL, unpaired surrogates/],
    [`${'('.repeat(21)}name pr${')'.repeat(21)}`, /^At character 22: it is more than 20 levels deep/],
    [Array.from({ length: 51 }, () => 'name pr').join(' or '), /^At character 551: it has more than 50 terms/],
  ] as const)
    t.match(await refusal(filter), says, filter);
  const long = await answer(`name eq "${'x'.repeat(4000)}"`);
  t.match(long, { status: 400, body: { error: { code: 106, details: [{ path: 'filter' }] } } });
  // As wide and as deep as it may be.
  const wide = Array.from({ length: 50 }, (_, n) => `name co "${n}"`).join(' or ');
  t.equal((await answer(`${'('.repeat(20)}${wide}${')'.repeat(20)}`)).status, 200);
  t.equal((await answer(`name eq "${'(a+)+'.repeat(700)}"`)).status, 200);
});

t.test('an index finds devices by a custom field, whatever becomes of their values', async (t) => {
  const { accountId } = service;
  const { id: deviceTemplateId } = await deviceTemplate();
  const zone = await field(deviceTemplateId, 'zone', 'string');
  const devices: Entity[] = [];
  for (const [n, value] of ['North', 'south', null, 'northern', '7'].entries())
    devices.push(await make('/devices', 'device', { serialNumber: `zone-${n}`, deviceTemplateId, zone: value }));
  const those = async (filter: string) => {
    const { devices } = (await answer(filter)).body;
    return [devices.results.map(({ serialNumber }) => Number(serialNumber.slice(5))), devices.meta.scanned];
  };
  const path = (kind: string, id: string) => `/api/v1/${kind}/${id}` as '/api/v1/devices/{id}';
  let version: unknown = zone.version;
  const change = async (more: object) => {
    const body = { accountId, deviceTemplateId, name: 'zone', fieldType: 'string', ...more };
    const answered = await service.http('PUT', path('devices/custom-fields', zone.id), {
      ...{ body, headers: { etag: String(version) } },
    });
    const { deviceField } = answered.body as unknown as { deviceField: { version: number; indexed: boolean } };
    version = deviceField.version;
    return deviceField.indexed;
  };
  const [found, scanned] = await those('fields.zone eq "north"');
  t.same(found, [0]);
  t.ok(Number(scanned) >= devices.length, 'without an index all are read');
  t.equal(await change({ indexed: true }), true);
  t.equal(await change({ description: 'It stays indexed.' }), true);
  for (const [filter, numbers] of [
    ['fields.zone eq "NORTH"', [0]],
    ['fields.zone sw "north"', [0, 3]],
    ['fields.zone co "ort"', [0, 3]],
    ['fields.zone ge "northern"', [1, 3]],
    ['fields.zone eq "7"', [4]],
    ['fields.zone eq "west"', []],
  ] as const)
    t.same(await those(filter), [numbers, 0], filter);
  const { token } = await service.endUser((await service.organization()).id);
  t.match(await refusal('fields.zone eq "north"', token), /is unknown/);

  const put = async (n: number, body: object) => {
    const { id } = devices[n] as Entity;
    const { device } = await service.ok('GET', path('devices', id));
    await service.ok('PUT', path('devices', id), { body, headers: { etag: device.version } });
  };
  await put(2, { zone: 'north' });
  await put(0, { zone: 'west' });
  t.same(await those('fields.zone eq "north"'), [[2], 0], 'changed values');
  const { id } = devices[2] as Entity;
  const { device } = await service.ok('GET', path('devices', id));
  await service.ok('DELETE', path('devices', id), { headers: { etag: device.version } });
  t.same(await those('fields.zone eq "north"'), [[], 0], 'a device in the trash');
  const { version: trashed } = (await service.ok('GET', path('trash/devices', id))).device;
  await service.http('POST', `/api/v1/trash/devices/${id}/recover` as '/api/v1/logout', {
    headers: { etag: String(trashed) },
  });
  t.same(await those('fields.zone eq "north"'), [[2], 0], 'and a device that is back');

  await change({ fieldType: 'int' });
  await put(1, { zone: 7 });
  t.same(await those('fields.zone le 7'), [[1], 0], 'values of the new type');
  t.match(await refusal('fields.zone eq "north"'), /a number/);
  await change({ fieldType: 'text' });
  t.same(await those('fields.zone sw "north"'), [[2, 3], 0], 'values of the old type');
  t.equal(await change({ indexed: false }), false);
  const [again, read] = await those('fields.zone eq "north"');
  t.same(again, [2]);
  t.ok(Number(read) > 0);
  t.equal(await change({ indexed: true }), true);

  const many = await deviceTemplate();
  for (let n = 0; n < 20; n += 1) await field(many.id, `field ${n}`, 'string', true);
  const more = { accountId, deviceTemplateId: many.id, name: 'one more', fieldType: 'string', indexed: true };
  t.match(await service.http('POST', '/api/v1/devices/custom-fields', { body: more }), {
    ...{ status: 400, body: { error: { code: 106, details: [{ path: 'indexed' }] } } },
  });
  await field(many.id, 'one more', 'string');
});

t.test('a filter by an indexed custom field is a lookup of its value', async (t) => {
  const { id: deviceTemplateId } = await deviceTemplate();
  await field(deviceTemplateId, 'shelfmark', 'string', true);
  await make('/devices', 'device', { serialNumber: 'shelfmark-1', deviceTemplateId, shelfmark: 'A 1' });
  const plansOf = watchReads(t, service);
  t.same(await found('fields.shelfmark eq "a 1"'), ['shelfmark-1']);
  const plans = plansOf().flatMap(({ plan }) => plan.filter((detail) => detail.includes('fieldValues')));
  t.ok(plans.length > 0);
  for (const detail of plans) t.equal(detail, 'SEARCH fieldValues USING PRIMARY KEY (fieldId=? AND value=?)');
});

t.test('names have any letter case, and names with other characters stand in quotes', async (t) => {
  const [one, two] = [await deviceTemplate(), await deviceTemplate()];
  await field(one.id, 'Shelf no.', 'int');
  await field(two.id, 'shelf NO.', 'string');
  await make('/devices', 'device', { serialNumber: 'shelf-1', deviceTemplateId: one.id, 'Shelf no.': 7 });
  await make('/devices', 'device', { serialNumber: 'shelf-2', deviceTemplateId: two.id, 'shelf NO.': '7' });
  t.same(await found('FIELDS."SHELF NO." EQ 7'), ['shelf-1']);
  t.same(await found('fields."shelf no." eq "7"'), ['shelf-2']);
  t.same(await found('SERIALNUMBER sw "shelf-" and fields."shelf no." pr'), ['shelf-1', 'shelf-2']);
  t.same(await found('serialNumber sw "shelf-" and fields."shelf no." ne 7'), ['shelf-2']);
  t.match(await refusal('fields."shelf no." eq true'), /with a number, and pr; or .* with a text in double quotes/);
});

t.test('a filter never leaves the reach of its caller, nor tells of what is outside', async (t) => {
  const [inside, outside] = [await deviceTemplate(), await deviceTemplate()];
  const [upper, other] = [await service.organization(), await service.organization()];
  const lower = await make('/organizations', 'organization', { name: 'lower', parentId: upper.id });
  await field(inside.id, 'colour', 'string');
  await field(outside.id, 'secretly', 'string');
  const place = (serialNumber: string, deviceTemplateId: string, organizationId: string) =>
    make('/devices', 'device', { serialNumber, deviceTemplateId, organizationId });
  await place('reach-1', inside.id, lower.id);
  await place('reach-2', inside.id, upper.id);
  await place('reach-3', outside.id, other.id);
  const { token } = await service.endUser(lower.id);
  t.same(await found('serialNumber sw "reach" or not (serialNumber sw "reach")', {}, token), ['reach-1']);
  t.same(await found('serialNumber eq "reach-3"', {}, token), []);
  t.same(await found(`organizationId ne "${lower.id}"`, {}, token), []);
  t.match(await refusal('fields.secretly pr', token), /is unknown/);
  t.notMatch(await refusal('fields.secretli pr', token), /secretly/);
  t.match(await refusal('fields.secretli pr'), /Is fields.secretly meant/);
  t.match(await refusal('fields.colur pr', token), /Is fields.colour meant/);
  for (const id of [upper.id, other.id, newId(service.accountId), 'none'])
    t.same(await found(`within eq "${id}"`, {}, token), [], 'an organization that it does not reach');
  t.same(await found(`within eq "${lower.id}"`, {}, token), ['reach-1']);
  t.same(await found(`within eq "${upper.id}"`), ['reach-1', 'reach-2']);
  t.same(await found('organization.name eq "lower"', {}, token), ['reach-1']);
  const wrong = { accountId: service.accountId, below: 'true', filter: `organizationId eq "${upper.id}"` };
  const below = await service.http('GET', `/api/v1/devices?${new URLSearchParams(wrong)}`);
  t.match(below, { status: 400, body: { error: { details: [{ path: 'below' }] } } });
});

t.test(
  'organizations and end-users are filtered by their columns, fields and custom fields, within the reach',
  async (t) => {
    const { accountId } = service;
    const template = (path: string, wrapper: string) => make(path, wrapper, { name: service.unique('T') });
    const organizationTemplateId = (await template('/organizations/templates', 'organizationTemplate')).id;
    const endUserTemplateId = (await template('/end-users/templates', 'endUserTemplate')).id;
    for (const [name, fieldType] of [
      ['segment', 'string'],
      ['seats', 'int'],
    ])
      await make('/organizations/custom-fields', 'organizationField', { organizationTemplateId, name, fieldType });
    const badge = { endUserTemplateId, name: 'badge', fieldType: 'int' };
    await make('/end-users/custom-fields', 'endUserField', badge);
    const place = (name: string, more: object) =>
      make('/organizations', 'organization', { name, organizationTemplateId, ...more });
    const top = await place('filtered top', { segment: 'Gold', seats: 9, city: 'Ülm' });
    const low = await place('filtered low', { segment: 'gold', seats: 10, parentId: top.id });
    await place('filtered other', { segment: 'iron', city: 'Bonn' });
    for (const [n, organizationId] of [top.id, low.id, low.id].entries())
      await make('/end-users', 'endUser', { organizationId, endUserTemplateId, badge: n, name: `Person ${n}` });

    const ask = (kind: 'organizations' | 'end-users', filter: string, token = service.admin, more = {}) => {
      const query = new URLSearchParams({ accountId, pageSize: '1000', filter, ...more });
      return service.http('GET', `/api/v1/${kind}?${query}` as '/api/v1/organizations', { token });
    };
    const names = async (kind: 'organizations' | 'end-users', filter: string, token?: string, more?: object) => {
      const { status, body, text } = await ask(kind, filter, token, more);
      deepStrictEqual(status, 200, `${filter}: ${text}`);
      const lists = Object.values(body as object) as { results: { name: string }[] }[];
      return lists.flatMap(({ results }) => results.map(({ name }) => name));
    };
    const [topName, lowName, otherName] = ['filtered top', 'filtered low', 'filtered other'];
    for (const [filter, found] of [
      ['fields.segment eq "GOLD"', [lowName, topName]],
      ['fields.seats gt 9', [lowName]],
      ['name sw "filtered" and not (fields.seats pr)', [otherName]],
      ['city eq "ülm" or fields.city eq "Bonn"', [otherName, topName]],
      [`parentId eq "${top.id}"`, [lowName]],
      ['name co "filtered" and created gt "-PT1H" and parentId eq null', [otherName, topName]],
    ] as const)
      t.same(await names('organizations', filter), found, filter);
    const sorted = { sortOrder: 'desc', parentId: 'null', pageSize: '1', page: '2' };
    t.same(
      await names('organizations', 'name sw "filtered"', service.admin, sorted),
      [otherName],
      'pages and old filters',
    );
    const { body } = await ask('organizations', 'fields.seats gt 9', service.admin, { parentId: top.id });
    t.match(body, { organizations: { meta: { count: 1, scanned: 1 } } });
    t.same(await names('end-users', 'fields.badge ge 1'), ['Person 1', 'Person 2']);
    t.same(await names('end-users', `organizationId eq "${low.id}" and name ew "2"`), ['Person 2']);

    const { token } = await service.endUser(low.id);
    t.same(await names('organizations', 'name pr', token), [lowName]);
    t.same(await names('organizations', 'not (fields.segment eq "nothing")', token), [lowName]);
    t.same(await names('end-users', 'fields.badge pr', token), ['Person 1', 'Person 2']);
    const foreign = await template('/end-users/templates', 'endUserTemplate');
    const hushed = { endUserTemplateId: foreign.id, name: 'hushed', fieldType: 'int' };
    await make('/end-users/custom-fields', 'endUserField', hushed);
    for (const [kind, filter, message, asker] of [
      ['organizations', 'fields.segmnt pr', /Is fields.segment meant/],
      ['organizations', 'fields.badge pr', /is unknown/],
      ['organizations', 'serialNumber pr', /is unknown/],
      ['organizations', ' ', /./],
      ['end-users', 'fields.hushed pr', /is unknown/, token],
      ['end-users', 'fields.hushd pr', /Is fields.hushed meant/],
    ] as const)
      t.match(await ask(kind, filter, asker), {
        status: 400,
        body: { error: { code: 106, details: [{ path: 'filter', message }] } },
      });
  },
);

t.test('a list of what is below an organization tells people nothing of those above them', async (t) => {
  const { accountId } = service;
  const upper = await service.organization();
  const lower = await make('/organizations', 'organization', { name: 'lowest', parentId: upper.id });
  const { id: deviceTemplateId } = await deviceTemplate();
  for (const [serialNumber, organizationId] of [
    ['below-1', lower.id],
    ['below-2', upper.id],
  ])
    await make('/devices', 'device', { serialNumber, deviceTemplateId, organizationId });
  const { token } = await service.endUser(lower.id);
  const ask = async (organizationId: string, as: string, more: Record<string, string> = {}) => {
    const query = new URLSearchParams({ accountId, organizationId, below: 'true', ...more });
    const { devices } = await service.ok('GET', `/api/v1/devices?${query}` as '/api/v1/devices', { token: as });
    return [devices.meta.count, devices.results.map(({ serialNumber }) => serialNumber)];
  };
  const filters: Record<string, string>[] = [
    {},
    { serialNumber: 'below' },
    { filter: 'serialNumber co "below"' },
    { deviceTemplateId },
  ];
  for (const more of filters) {
    t.same(await ask(lower.id, token, more), [1, ['below-1']]);
    for (const id of [upper.id, newId(accountId)])
      t.same(await ask(id, token, more), [0, []], 'above it, or not there');
    t.same(await ask(upper.id, service.admin, more), [2, ['below-1', 'below-2']]);
  }
  const scanned = async (serialNumber: string) =>
    (await answer(`serialNumber eq "${serialNumber}"`, {}, token)).body.devices.meta;
  t.same(await scanned('below-2'), await scanned('below-9'), 'nor of devices that are elsewhere');
});

t.test('what people see of a device begins with their possession of it, in filters too', async (t) => {
  const [upper, other] = [await service.organization(), await service.organization()];
  const { id, version } = await make('/devices', 'device', { serialNumber: 'owned-1', organizationId: other.id });
  await notePresence(service, id, { lastConnected: at(-2 * hour), offlineSince: at(-hour) });
  await service.ok('PUT', `/api/v1/devices/${id}`, { body: { organizationId: upper.id }, headers: { etag: version } });
  const { token } = await service.endUser(upper.id);
  t.same(await found('lastConnected pr and offlineSince pr and serialNumber eq "owned-1"'), ['owned-1']);
  for (const filter of [
    'lastConnected pr',
    'lastConnected lt "PT0S"',
    'offlineSince gt "-P1D"',
    'lastConnected ne null',
  ])
    t.same(await found(filter, {}, token), [], filter);
  await notePresence(service, id, { lastConnected: at(hour), offlineSince: null });
  t.same(await found('lastConnected gt "PT30M"', {}, token), ['owned-1']);
});

t.test('certificates, updates and groups of devices are attributes, of the newest and of what is there', async (t) => {
  const group = await newGroup(service);
  const enrolled = (await claim(service, group, { serialNumber: 'noted-1' })).body.device;
  await make('/devices', 'device', { serialNumber: 'noted-2', deviceTemplateId: group.deviceTemplateId });
  const those = (filter: string) => found(`deviceTemplateId eq "${group.deviceTemplateId}" and ${filter}`);
  const both = ['noted-1', 'noted-2'];
  t.same(await those(`enrollmentGroupId eq "${group.id.toUpperCase()}"`), ['noted-1']);
  t.same(await those('not (enrollmentGroupId pr)'), ['noted-2']);

  for (const attribute of ['certificate.expires', 'firmware.state'])
    t.same(await those(`${attribute} eq null`), both, attribute);
  for (const days of [30, 10]) {
    const { cert: certificate } = await makeCertificate({ from: now - hour, to: now + days * 24 * hour });
    await make('/access/mqtt-certificates', 'mqttCertificate', {
      ...{ entityId: enrolled.id, entityType: 'device', certificate },
    });
  }
  t.same(await those('certificate.expires gt "P29D" and certificate.expires lt "P31D"'), ['noted-1'], 'the latest');
  t.same(await those('certificate.expires lt "P20D"'), []);

  const firmware = await publish(service, group.deviceTemplateId, '2.0');
  const made = await rollOut(service, firmware, { target: { deviceIds: [enrolled.id] } });
  await rolloutUntil(service, made.id, ({ counts }) => counts.pending === 1);
  t.same(await those('firmware.state eq "pending"'), ['noted-1']);
  await service.ok('POST', `/api/v1/firmware/rollouts/${made.id}/cancel` as '/api/v1/logout');
  await rolloutUntil(service, made.id, ({ counts }) => counts.cancelled === 1);
  t.same(await those('firmware.state eq "cancelled"'), ['noted-1']);
  t.same(await those('firmware.state ne "pending"'), both);
});

t.test('jobs, bulk commands and rollouts take the same text, and none of them a wrong one', async (t) => {
  const { accountId } = service;
  const template = await deviceTemplate();
  await field(template.id, 'bay', 'int');
  for (const bay of [1, 2, 3])
    await make('/devices', 'device', { serialNumber: `bay-${bay}`, deviceTemplateId: template.id, bay });
  const filter = 'fields.bay ge 2';
  const ask = (path: string, body: object) => service.http('POST', `/api/v1${path}`, { body: { accountId, ...body } });
  const dryRun = { action: 'delete', dryRun: true };
  t.match(await ask('/devices/jobs', { ...dryRun, filter }), { status: 202, body: { job: { total: 2 } } });
  const command = { name: 'blink' };
  t.match(await ask('/commands/bulk', { filter, command }), { status: 202, body: { job: { total: 2 } } });
  for (const wrong of ['', ' ', 'fields.bey ge 2', 'fields.bay', 'fields.bay ge "2"'])
    for (const [path, body] of [
      ['/devices/jobs', { ...dryRun, filter: wrong }],
      ['/commands/bulk', { filter: wrong, command }],
    ] as const)
      t.match(
        await ask(path, body),
        { status: 400, body: { error: { code: 106, details: [{ path: 'filter' }] } } },
        wrong,
      );
  t.match(await ask('/devices/jobs', { ...dryRun, filter: 5 }), { status: 400, body: { error: { code: 106 } } });
});

t.test('a star stands for any text in filters of lists, jobs and rollouts alike', async (t) => {
  const { accountId } = service;
  const { id: deviceTemplateId } = await deviceTemplate();
  for (const [n, firmwareVersion] of ['1.0', '1.2-rc', '2.1.0', null, '1_0%'].entries())
    await make('/devices', 'device', { serialNumber: `Star-${n}`, deviceTemplateId, firmwareVersion });
  const firmware = await publish(service, deviceTemplateId, '9');
  const ask = (path: string, body: object) => service.http('POST', `/api/v1${path}`, { body: { accountId, ...body } });
  for (const [filter, numbers] of [
    [{ firmwareVersion: '1.*' }, [0, 1]],
    [{ firmwareVersion: '*.0' }, [0, 2]],
    [{ firmwareVersion: '1.' }, [0, 1, 2]],
    [{ firmwareVersion: '*1*0*' }, [0, 2, 4]],
    [{ firmwareVersion: '1_*%' }, [4]],
    [{ firmwareVersion: '1*0', serialNumber: '*TAR-*' }, [0]],
    [{ serialNumber: 'star-*3' }, [3]],
    [{ serialNumber: `${'*s*t'.repeat(200)}*` }, []],
  ] as const) {
    const query = new URLSearchParams({ accountId, deviceTemplateId, ...filter });
    const { devices } = await service.ok('GET', `/api/v1/devices?${query}` as '/api/v1/devices');
    const serials = devices.results.map(({ serialNumber }) => serialNumber);
    t.same(
      serials,
      numbers.map((n) => `Star-${n}`),
      `${query}`,
    );
    t.equal(devices.meta.count, numbers.length);
    const job = await ask('/devices/jobs', { action: 'delete', dryRun: true, filter: { ...filter, deviceTemplateId } });
    t.match(job, { status: 202, body: { job: { total: numbers.length } } }, 'a job');
    const target = { filter };
    const rollout = await ask('/firmware/rollouts/preview', { firmwarePackageId: firmware.id, target });
    t.match(rollout, { status: 200, body: { preview: { devices: numbers.length } } }, 'a rollout');
  }
  const stars = await ask('/devices/jobs', { action: 'delete', dryRun: true, filter: { serialNumber: '**' } });
  t.match(stars, { status: 400, body: { error: { code: 106, details: [{ path: 'filter.serialNumber' }] } } });
  await make('/organizations', 'organization', { name: 'Star of the north' });
  const organizations = new URLSearchParams({ accountId, name: 'star*north' });
  const { organizations: named } = await service.ok(
    'GET',
    `/api/v1/organizations?${organizations}` as '/api/v1/organizations',
  );
  t.match(named.results, [{ name: 'Star of the north' }]);
});

t.test('a rollout goes to those that its filter means, and is paused when nobody can say who they are', async (t) => {
  const { accountId } = service;
  const template = await deviceTemplate();
  const { id: fieldId, version } = await field(template.id, 'hall', 'int');
  for (const hall of [1, 2, 3])
    await make('/devices', 'device', { serialNumber: `hall-${hall}`, deviceTemplateId: template.id, hall });
  const firmware = await publish(service, template.id, '7.0');
  const body = { accountId, firmwarePackageId: firmware.id, target: { filter: 'fields.hall ge 2 and hall.x pr' } };
  for (const path of ['/firmware/rollouts', '/firmware/rollouts/preview'])
    t.match(await service.http('POST', `/api/v1${path}`, { body }), {
      ...{
        status: 400,
        body: { error: { code: 106, details: [{ path: 'filter', message: /^At character 22: hall.x/ }] } },
      },
    });
  body.target.filter = 'fields.hall ge 2';
  const { preview } = await service.ok('POST', '/api/v1/firmware/rollouts/preview', { body });
  t.match(preview, { devices: 2, refused: { length: 0 } });
  const made = await rollOut(service, firmware, { target: body.target });
  t.match(made, { target: body.target, matched: { devices: 2 } });
  const begun = await rolloutUntil(service, made.id, ({ counts }) => counts.pending === 2);
  t.equal(begun.counts.pending, 2);

  const later = await rollOut(service, firmware, { target: body.target, startAt: at(1000 * hour) });
  const ask = (verb: string) => service.ok('POST', `/api/v1/firmware/rollouts/${later.id}/${verb}` as '/api/v1/logout');
  await ask('pause');
  await service.ok('DELETE', `/api/v1/devices/custom-fields/${fieldId}`, { headers: { etag: version } });
  now += 1001 * hour;
  service.admin = (await service.loginAs(adminEmail, adminPassword)).jwt;
  await ask('resume');
  const paused = await rolloutUntil(service, later.id, ({ state }) => state === 'paused');
  t.match(paused.reason, /^The filter of the target no longer works. At character 1: fields.hall is unknown/);
  t.equal(paused.counts.pending, 0);
});

t.test('what people have reported of filters elsewhere', async (t) => {
  const { id } = await deviceTemplate();
  for (const [name, fieldType] of [
    ['someid', 'int'],
    ['FWversion', 'string'],
    ['abc:xyz', 'string'],
    ['primaryEmail', 'string'],
    ['endOfLife', 'datetime'],
  ] as const)
    await field(id, name, fieldType);
  const put = (n: number, more: object) =>
    make('/devices', 'device', { serialNumber: `said-${n}`, deviceTemplateId: id, ...more });
  await put(1, { name: 'EDU All personal', someid: 1, FWversion: '1', 'abc:xyz': 'yes', endOfLife: '2027-01-31' });
  await put(2, {
    name: 'Bílbo Bággins',
    FWversion: '10',
    firmwareVersion: '9.0.8112.16421',
    primaryEmail: 'gsar@a.example',
  });
  await put(3, {
    name: 'say "hello" world',
    someid: 300,
    firmwareVersion: '11.0',
    endOfLife: '2026-06-01T00:00:00+02:00',
  });
  const those = (filter: string) => found(`deviceTemplateId eq "${id}" and (${filter})`);
  for (const [filter, numbers] of [
    // Values with blanks, letters of other scripts, quotes, and names that begin like an operator or have a colon.
    ['name eq "EDU All personal"', [1]],
    ['name EQ "bílbo bággins" AND serialNumber pr', [2]],
    ['name eq "say \\"hello\\" world"', [3]],
    ['fields.primaryEmail co "gsar"', [2]],
    ['fields."abc:xyz" eq "yes"', [1]],
    ['(serialNumber pr)', [1, 2, 3]],
    // Numbers are no texts, equal is not containing, and what has no value is in no range.
    ['fields.someid ge 1', [1, 3]],
    ['fields.someid ge 1 and fields.someid le 255', [1]],
    ['fields.FWversion eq "1"', [1]],
    ['fields.endOfLife lt "2026-12-31"', [3]],
    ['fields.someid ne 1', [2, 3]],
    ['not (fields.someid pr)', [2]],
    // Versions of four parts.
    ['firmwareVersion lt "11"', [2]],
  ] as const)
    t.same(
      await those(filter),
      numbers.map((n) => `said-${n}`),
      filter,
    );
  t.match(await refusal('tags.abc:xyz eq "yes"'), /^At character 9: an operator/);
});

t.test('thousands are read in slices, and meta.scanned says how many were read one by one', async (t) => {
  const template = await deviceTemplate();
  const { id: fieldId } = await field(template.id, 'position', 'int');
  const device = await service.create('/devices', 'device', { serialNumber: 'many', deviceTemplateId: template.id });
  const count = 6200;
  const more = Array.from({ length: count }, (_, n) => ({
    id: newId(service.accountId),
    created: at(n * 1000),
    serialNumber: `many-${String(n).padStart(4, '0')}`,
    firmwareVersion: `${n % 4}.0`,
    fields: JSON.stringify({ [fieldId]: n }),
  }));
  await storeMore(service, 'devices', device.id, more);
  const those = `deviceTemplateId eq "${template.id}"`;
  const ask = async (filter: string, query: Record<string, string> = {}) => {
    const { body } = await answer(filter, { pageSize: '3', ...query });
    const { results, meta } = body.devices;
    return { ...meta, first: results.map(({ serialNumber }) => serialNumber) };
  };
  const wide = Array.from({ length: 48 }, (_, n) => `fields.position eq ${-n}`).join(' or ');
  const last = [`many-${count - 1}`];
  t.match(await ask(`${those} and (${wide} or fields.position ge ${count - 1})`), {
    ...{ count: 2, scanned: count + 1, first: ['many-0000', ...last] },
  });
  t.match(await ask(`${those} and fields.position lt 5500`, { sortBy: 'id', page: '1834' }), {
    count: 5500,
    first: { length: 1 },
  });
  const descending = { sortOrder: 'desc', page: '2' };
  const page = ['many-5397', 'many-5396', 'many-5395'];
  t.match(await ask(`fields.position ge 0 and fields.position lt 5401 and ${those}`, descending), {
    count: 5401,
    first: page,
  });
  t.match(await ask(`fields.position ge 200 and ${those}`), {
    count: 6000,
    first: ['many-0200', 'many-0201', 'many-0202'],
  });
  // What indexes tell is not scanned.
  t.match(await ask(those), { count: count + 1, scanned: 0 });
  t.match(await ask('firmwareVersion eq "v3"'), { count: count / 4, scanned: 0 });
  t.match(await ask(`serialNumber eq "MANY-0007"`), { count: 1, scanned: 1, first: ['many-0007'] });
  t.match(await ask(`created ge "${at((count - 2) * 1000)}"`), {
    count: 2,
    scanned: 0,
    first: [`many-${count - 2}`, ...last],
  });
  const twice = await ask(`${those} and provisioningState eq "Defined"`, { deviceTemplateId: template.id });
  t.match(twice, { count: count + 1 });
});

t.end();
