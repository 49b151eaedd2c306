/** Rows of accounts in registry.db as pages of JSON, in the order of their keys: two cells compare and copy them page by page. */
import { createHash } from 'node:crypto';
import type Sqlite from 'better-sqlite3';
import { entityTables, keepersOf } from '../../../db/registry/records/by-table.ts';
import { openSqlite } from '../../../db/sqlite/open.ts';
import { accountContents, fillTable } from '../account-contents.ts';
import { registryRules, type TableRule } from '../tables.ts';
import type { Watched } from './watching.ts';

type Value = string | number | null;
type Key = Value[];

/** All rows of a table of the accounts whose key is after `after` and not after `to`; null is no bound. `keys`: these alone. */
export interface Page {
  table: string;
  after: Key | null;
  to: Key | null;
  keys?: Key[];
  rows: Value[][];
}

/** The rows of a table whose key is after `after` and not after `to`. */
export type PageRange = Omit<Page, 'rows'>;
export type HashedRange = PageRange & { hash: string };

/** Names what a page has. */
export function hashOf(rows: readonly Value[][]): string {
  return createHash('sha256').update(JSON.stringify(rows)).digest('base64');
}

/** Where the next page begins. */
export interface PagePlace {
  table: string;
  after: Key | null;
}

/** A statement, with `?` for each of the values. */
export interface Statement {
  sql: string;
  values: unknown[];
}

interface Shape {
  rule: TableRule;
  columns: { name: string; isBlob: boolean }[];
  key: string[];
  /** Whether several rows may have one key: then the table is one page. */
  isOnePage: boolean;
}

/** Parents first, so that a page never refers to what comes later. */
const copied = registryRules.filter(({ left }) => left === undefined).toReversed();
/** What connections say of devices. */
const presence = 'devicePresence';
const presenceOfDevices = `"${presence}" JOIN "devices" USING ("row")`;
/** Rows that are never changed nor removed: a trigger refuses it. */
const appended: ReadonlySet<string> = new Set(['auditRecords']);

/** Reads the pages of accounts; `close` it. */
export class RegistryPages {
  readonly #file: Sqlite.Database;
  readonly #accounts: readonly string[];
  readonly #shapes: ReadonlyMap<string, Shape>;

  constructor(path: string, accounts: readonly string[]) {
    this.#file = openSqlite(path, { readonly: true });
    this.#accounts = accounts;
    fillTable(this.#file, 'moving', accounts);
    this.#shapes = new Map(copied.map((rule) => [rule.table, this.#shapeOf(rule)]));
  }

  /** The next page, of at most about `limit` rows; `next` is undefined behind the last table. */
  read({ table, after }: PagePlace, limit: number): { page: Page; next: PagePlace | undefined } {
    const shape = this.#shape(table);
    const most = shape.isOnePage ? Number.MAX_SAFE_INTEGER : limit;
    const rows = this.#select(shape, { after, to: null }, most);
    const last = rows.length < most ? undefined : rows.at(-1);
    const to = last ? shape.key.map((name) => last[shape.columns.findIndex((one) => one.name === name)] ?? null) : null;
    const following = copied[copied.findIndex((rule) => rule.table === table) + 1]?.table;
    const next = to ? { table, after: to } : following === undefined ? undefined : { table: following, after: null };
    return { page: { table, after, to, rows }, next };
  }

  /** The rows of a range. */
  range(range: PageRange): Page {
    return { ...range, rows: this.#select(this.#shape(range.table), range) };
  }

  /** The rows with these keys, each as JSON; parents come before their children. */
  *touched(keys: ReadonlyMap<string, ReadonlySet<string>>, limit: number): Generator<Page> {
    for (const { table } of copied) {
      const all = [...(keys.get(table) ?? [])];
      if (all.length === 0) continue;
      const range = { table, after: null, to: null };
      if (this.#shape(table).isOnePage) yield this.range(range);
      else
        for (let from = 0; from < all.length; from += limit)
          yield this.range({ ...range, keys: all.slice(from, from + limit).map((key) => JSON.parse(key) as Key) });
    }
  }

  /** The tables, with the columns that name their rows. */
  get watched(): Watched[] {
    return [...this.#shapes.values()].map(({ rule: { table }, key, isOnePage }) => ({ table, key, isOnePage }));
  }

  /** How many rows each table has. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { table, where } of copied)
      counts[table] =
        this.#file
          .prepare<[], number>(`SELECT count(*) FROM "${table}" WHERE ${where.replaceAll('@', '')}`)
          .pluck()
          .get() ?? 0;
    return counts;
  }

  /** Devices that are connected here; copies of their rows do not say so. */
  connected(): { deviceId: string; accountId: string }[] {
    return this.#file
      .prepare<[], { deviceId: string; accountId: string }>(
        `SELECT "id" AS "deviceId", "accountId" FROM ${presenceOfDevices} WHERE "connected" = 1 AND "accountId" IN "moving"`,
      )
      .all();
  }

  /** Whether a range has the rows here that it has there. */
  isSame({ hash, ...range }: HashedRange): boolean {
    return hashOf(this.range(range).rows) === hash;
  }

  /** Whether these rows are what is here in the range of the page. */
  isHere({ rows, ...range }: Page): boolean {
    const here = this.#select(this.#shape(range.table), range);
    return here.length === rows.length && JSON.stringify(here) === JSON.stringify(rows);
  }

  /** Ids of devices of a page that are here devices of others: a CA chooses the ids of its devices. */
  taken({ table, rows }: Page): string[] {
    if (table !== 'devices') return [];
    const at = this.#shape(table).columns.findIndex(({ name }) => name === 'id');
    return this.#file
      .prepare<[string], string>(
        `SELECT "id" FROM "devices" WHERE "id" IN (SELECT "value" FROM json_each(?)) AND "accountId" NOT IN "moving"`,
      )
      .pluck()
      .all(JSON.stringify(rows.map((row) => row[at])));
  }

  /** What makes the range of a page here as the page says. */
  statements(page: Page): { clear: Statement[]; put: Statement[] } {
    const { table, rows } = page;
    const { rule, columns, key, isOnePage } = this.#shape(table);
    const names = columns.map(({ name }) => `"${name}"`).join(', ');
    const given = columns
      .map(({ isBlob }, at) => (isBlob ? `unhex("value" ->> '$[${at}]')` : `"value" ->> '$[${at}]'`))
      .join(', ');
    const json = JSON.stringify(rows);
    if (table === presence) return presenceStatements(this.#accounts, columns, page);
    const of = key.map((name) => `"${name}"`).join(', ');
    const [bounds, values] = boundsOf(key, page);
    const keys = key.map((name) => `"value" ->> '$[${columns.findIndex((one) => one.name === name)}]'`).join(', ');
    const clear = `DELETE FROM "${table}" WHERE ${conditionOf(rule, this.#accounts)}${bounds}`;
    const put = `INSERT INTO "${table}" (${names}) SELECT ${given} FROM json_each(?) WHERE TRUE`;
    if (isOnePage) return { clear: [{ sql: clear, values }], put: [{ sql: put, values: [json] }] };
    if (appended.has(table))
      return { clear: [], put: [{ sql: `${put} ON CONFLICT (${of}) DO NOTHING`, values: [json] }] };
    const others = columns.filter(({ name }) => !key.includes(name));
    const change =
      others.length === 0
        ? 'NOTHING'
        : `UPDATE SET ${others.map(({ name }) => `"${name}" = excluded."${name}"`).join(', ')}
          WHERE ${conditionOf(rule, this.#accounts)}`;
    return {
      clear: [{ sql: `${clear} AND (${of}) NOT IN (SELECT ${keys} FROM json_each(?))`, values: [...values, json] }],
      put: [{ sql: `${put} ON CONFLICT (${of}) DO ${change}`, values: [json] }],
    };
  }

  own(): ReturnType<typeof accountContents> {
    return accountContents(this.#file);
  }

  close(): void {
    this.#file.close();
  }

  #shape(table: string): Shape {
    const shape = this.#shapes.get(table);
    if (!shape) throw new RangeError(`No account has rows in ${table}.`);
    return shape;
  }

  #shapeOf(rule: TableRule): Shape {
    if (rule.table === presence) return this.#presenceShape(rule);
    const all = this.#file
      .prepare<[string], { name: string; type: string; pk: number }>(
        `SELECT "name", "type", "pk" FROM pragma_table_info(?)`,
      )
      .all(rule.table);
    const columns = all
      .filter(({ name }) => name !== rule.omit)
      .map(({ name, type }) => ({ name, isBlob: type === 'BLOB' }));
    if (rule.omit === undefined) {
      const key = all.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
      return { rule, columns, key: key.map(({ name }) => name), isOnePage: false };
    }
    const hasId = columns.some(({ name }) => name === 'id');
    return { rule, columns, key: [hasId ? 'id' : 'accountId'], isOnePage: !hasId };
  }

  /** Rows of it have the number of their device, which differs by file: a page has the id instead. */
  #presenceShape(rule: TableRule): Shape {
    const columns = this.#file
      .prepare<[string], { name: string }>(`SELECT "name" FROM pragma_table_info(?) WHERE "name" <> 'row'`)
      .all(presence);
    return {
      rule,
      columns: ['id', ...columns.map(({ name }) => name)].map((name) => ({ name, isBlob: false })),
      key: ['id'],
      isOnePage: false,
    };
  }

  #select({ rule, columns, key }: Shape, range: Bounds, limit = Number.MAX_SAFE_INTEGER): Value[][] {
    const [bounds, values] = boundsOf(key, range);
    const read = columns.map(({ name, isBlob }) => {
      // Nobody is connected in the other cell before the account is there.
      if (rule.table === presence && name in withoutConnection) return withoutConnection[name];
      return isBlob ? `hex("${name}")` : `"${name}"`;
    });
    const order = rule.omit === undefined ? key : [...key, rule.omit];
    return this.#file
      .prepare<unknown[], Value[]>(
        `SELECT ${read.join(', ')} FROM ${rule.table === presence ? presenceOfDevices : `"${rule.table}"`}
         WHERE ${rule.table === presence ? '"accountId" IN "moving"' : rule.where.replaceAll('@', '')}${bounds}
         ORDER BY ${order.map((name) => `"${name}"`).join(', ')} LIMIT ?`,
      )
      .raw()
      .all(...values, limit);
  }
}

/** What devices are without their connections, which end. */
const withoutConnection: Readonly<Record<string, string>> = {
  connected: '0',
  silent: '0',
  offlineSince: 'CASE WHEN "connected" = 1 THEN "lastConnected" ELSE "offlineSince" END',
};

/** What a page of `presence` says, for its range of devices. */
function presenceStatements(
  accounts: readonly string[],
  columns: Shape['columns'],
  page: Page,
): { clear: Statement[]; put: Statement[] } {
  const json = JSON.stringify(page.rows);
  const [bounds, values] = boundsOf(['id'], page);
  const own = conditionOf({ table: 'devices', where: '"accountId" IN "moving"' }, accounts);
  const rowOf = (id: string) => `(SELECT "row" FROM "devices" WHERE "id" = ${id})`;
  const names = columns.slice(1).map(({ name }) => `"${name}"`);
  const given = names.map((_, at) => `"value" ->> '$[${at + 1}]'`);
  const clear = {
    sql: `DELETE FROM "${presence}" WHERE "row" IN (SELECT "row" FROM "devices" WHERE ${own}${bounds}
      AND "id" NOT IN (SELECT "value" ->> '$[0]' FROM json_each(?)))`,
    values: [...values, json],
  };
  const put = {
    sql: `INSERT INTO "${presence}" ("row", ${names.join(', ')})
      SELECT ${rowOf(`"value" ->> '$[0]'`)}, ${given.join(', ')} FROM json_each(?) WHERE TRUE
      ON CONFLICT ("row") DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join(', ')}`,
    values: [json],
  };
  return { clear: [clear], put: [put] };
}

/** Where the first page begins. */
export const firstPage: PagePlace = { table: copied[0]?.table ?? '', after: null };

/** Statements that remove the accounts, children first; some at a time where there may be many. True asks for it again. */
export function removalOf(accounts: readonly string[]): { table: string; sql: string; isRepeated: boolean }[] {
  return registryRules.map((rule) => {
    const { table } = rule;
    const where = conditionOf(rule, accounts);
    const isRepeated = inShares.has(table);
    const sql = isRepeated
      ? `DELETE FROM "${table}" WHERE "id" IN (SELECT "id" FROM "${table}" WHERE ${where} LIMIT 500)`
      : `DELETE FROM "${table}" WHERE ${where}`;
    return { table, sql, isRepeated };
  });
}

/** An account may have many of these. Rows that name others of their table go at once: no share may leave one without the other. */
const inShares: ReadonlySet<string> = new Set([
  ...entityTables.filter((table) => !keepersOf(table).some((keeper) => keeper.table === table)),
  ...['sessions', 'commands', 'credentials'],
]);

/** The condition of a rule, for a connection that has no table "moving". */
function conditionOf({ where }: TableRule, accounts: readonly string[]): string {
  const list = accounts.map((id) => `'${id.replaceAll("'", "''")}'`).join(', ');
  return where.replaceAll('@', '').replaceAll('"moving"', `(${list})`);
}

type Bounds = Pick<Page, 'after' | 'to' | 'keys'>;

function boundsOf(key: readonly string[], { after, to, keys }: Bounds): [string, Value[]] {
  const of = key.map((name) => `"${name}"`).join(', ');
  if (keys) {
    const parts = key.map((_, at) => `"value" ->> '$[${at}]'`).join(', ');
    return [` AND (${of}) IN (SELECT ${parts} FROM json_each(?))`, [JSON.stringify(keys)]];
  }
  const marks = key.map(() => '?').join(', ');
  const bound = (values: Key | null, sign: string) => (values ? ` AND (${of}) ${sign} (${marks})` : '');
  return [`${bound(after, '>')}${bound(to, '<=')}`, [...(after ?? []), ...(to ?? [])]];
}
