/** What commits tell of devices: every writer of every table that filters read, without a word of the writer itself. */
import type Sqlite from 'better-sqlite3';
import { sql } from 'kysely';
import { changeBits, changeTriggers } from '../../db/registry/device-changes.ts';
import type { Change } from '../../db/registry/index.ts';
import { notePresence } from '../../db/registry/presence.ts';
import type { Column } from '../../db/registry/records/columns.ts';
import { deviceColumns, presenceNames } from '../../db/registry/records/devices.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { newId } from '../../src/core/ids.ts';
import { defaultRoles } from '../../src/core/rights.ts';
import { compileKeptFilters } from '../../src/registry/devices/filter.ts';
import { claim, newGroup } from '../enrollment/devices.ts';
import { publish, rollOut, rolloutUntil } from '../firmware/fleet.ts';
import { makeCertificate } from '../support/certificates.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await startService(t);
});

/** The kinds of the changes that work makes, by their keys. */
async function heard(work: () => Promise<unknown>): Promise<Map<string, string[]>> {
  const all: Change[] = [];
  const end = service.server.ctx.registry.listenToChanges((changes) => all.push(...changes));
  await work();
  end();
  const kinds = new Map<string, Set<string>>();
  for (const { key, bits } of all)
    for (const [kind, bit] of changeBits) if (bits & bit) kinds.set(key, (kinds.get(key) ?? new Set()).add(kind));
  return new Map([...kinds].map(([key, names]) => [key, [...names].sort()]));
}

const filtered = Object.entries<Column>(deviceColumns).flatMap(([name, { marks }]) => (marks.filter ? [name] : []));

t.test('each column that a filter names is told when it changes, and no other', async (t) => {
  const { ctx } = service.server;
  const { device } = await service.device({});
  await ctx.registry.transaction((tx) => notePresence(tx, [{ id: device.id, presence: { connected: 0, silent: 0 } }]));
  const values: Record<string, unknown> = {
    deviceTemplateId: (await service.template({})).id,
    organizationId: (await service.organization({})).id,
    connected: 1,
    silent: 1,
  };
  for (const name of [...filtered, 'lastModified', 'fields']) {
    const value = values[name] ?? (name === 'fields' ? '{"name":"new"}' : `new ${name}`);
    const isPresence = presenceNames.some((one) => one === name);
    const change = sql`update ${sql.table(isPresence ? 'devicePresence' : 'devices')} set ${sql.ref(name)} = ${value}
      where "row" = (select "row" from "devices" where "id" = ${device.id})`;
    const told = await heard(() => ctx.registry.transaction((tx) => change.execute(tx)));
    t.same(told, new Map([[device.id, [name]]]), name);
    t.same(await heard(() => ctx.registry.transaction((tx) => change.execute(tx))), new Map(), `${name} as it was`);
  }
});

t.test('a device that comes, goes and comes back is told as a whole, also by a thread', async (t) => {
  const { ctx } = service.server;
  const whole = [...changeBits.keys()].slice(0, [...changeBits.keys()].indexOf('organizations')).sort();
  let id = '';
  const made = await heard(async () => {
    ({ id } = (await service.device({})).device);
  });
  t.same(made.get(id), whole);
  const set = (deleted: string | null) => sql`update "devices" set "deleted" = ${deleted} where "id" = ${id}`;
  const inThread = (deleted: string | null) => () => ctx.registry.longTransaction((tx) => set(deleted).execute(tx));
  t.same((await heard(inThread(new Date().toISOString()))).get(id), whole);
  t.same((await heard(inThread(null))).get(id), whole);
  const many = sql`update "devices" set "fields" = json_set("fields", '$.name', 'other') where "id" = ${id}`;
  t.same(await heard(() => ctx.registry.longTransaction((tx) => many.execute(tx))), new Map([[id, ['fields']]]));
});

t.test('what is noted of a device elsewhere, and what concerns all of an account, is told', async (t) => {
  const { ctx } = service.server;
  const { accountId } = service;
  const { device } = await service.device({});
  const update = (table: string, key: string, value: string) =>
    sql`update ${sql.table(table)} set "version" = "version" + 1 where ${sql.ref(key)} = ${value}`;
  await service.organization({});
  const fleet = await service.create('/fleets', 'fleet', { name: service.unique('F'), filter: 'connected eq true' });
  t.same(
    await heard(() => ctx.registry.transaction((tx) => update('fleets', 'id', fleet.id).execute(tx))),
    new Map([[fleet.id, ['fleets']]]),
  );
  for (const table of ['organizations', 'deviceTemplates'])
    t.same(
      await heard(() => ctx.registry.transaction((tx) => update(table, 'accountId', accountId).execute(tx))),
      new Map([[accountId, [table]]]),
    );
  const field = { deviceTemplateId: device.deviceTemplateId, name: 'shelf', fieldType: 'int' };
  t.match((await heard(() => service.create('/devices/custom-fields', 'deviceField', field))).get(accountId), [
    'customFields',
  ]);

  const { cert } = await makeCertificate({ from: Date.now() - 1000, to: Date.now() + 86_400_000 });
  const certificate = { entityId: device.id, entityType: 'device', certificate: cert };
  t.same(
    (await heard(() => service.create('/access/mqtt-certificates', 'mqttCertificate', certificate))).get(device.id),
    ['certificate'],
  );
  const firmware = await publish(service, device.deviceTemplateId, '9.0');
  const rolledOut = await heard(async () => {
    const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  });
  t.same(rolledOut.get(device.id), ['delivery']);
  const group = await newGroup(service);
  let enrolled = '';
  const told = await heard(async () => {
    enrolled = (await claim(service, group, { serialNumber: 'enrolled' })).body.device.id;
  });
  t.ok(told.get(enrolled)?.includes('enrollment'));
});

t.test('every table that a filter reads has triggers', async (t) => {
  const { ctx } = service.server;
  const { accountId } = service;
  const caller = { kind: 'admin', id: accountId, accountId, role: defaultRoles.account } as const;
  const names = [
    ...filtered,
    ...['id', 'created', 'lastModified', 'name', 'deviceVersion', 'fields.location', 'fields.shelf', 'template.name'],
    ...['template.category', 'organization.name', 'organization.city', 'certificate.expires', 'firmware.state'],
    'enrollmentGroupId',
  ];
  const kept = await compileKeptFilters(ctx, caller, [
    ...names.map((name) => `${name} pr`),
    `within eq "${newId(accountId)}"`,
    'firmwareVersion lt "1.0"',
  ]);
  const file = openSqlite(`${service.directory}/registry.db`, { readonly: true });
  t.teardown(() => file.close());
  const watched = new Set(changeTriggers.map((trigger) => /ON main\."(\w+)"/.exec(trigger)?.[1]));
  // The triggers of these tables keep them as the devices are.
  const derived = new Set(['firmwareVersionCounts']);
  for (const { filter, problem } of kept) {
    t.equal(problem, null);
    const { sql: text, parameters } = sql`select 1 from "devices" where ${filter.condition}`.compile(
      ctx.registry.query,
    );
    for (const table of tablesOf(file, text, parameters))
      t.ok(watched.has(table) || derived.has(table), `${table}, which is read by ${text}`);
  }
});

/** The tables whose pages a statement opens, by itself or by an index. */
function tablesOf(file: Sqlite.Database, text: string, parameters: readonly unknown[]): Set<string> {
  const program = file.prepare(`explain ${text}`).all(...parameters) as Array<{ opcode: string; p2: number }>;
  const roots = program.filter(({ opcode }) => opcode === 'OpenRead').map(({ p2 }) => p2);
  const owner = file.prepare<[number], string>('select "tbl_name" from sqlite_schema where "rootpage" = ?').pluck();
  return new Set(roots.flatMap((root) => owner.get(root) ?? []));
}

t.end();
