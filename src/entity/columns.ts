/** Shapes, bodies and lists of a kind, made from the marks of its columns in `db/registry/records`. */
import type { Static, TOptional, TSchema } from 'typebox';
import { Type } from 'typebox';
import {
  type Column,
  type Columns,
  type Common,
  common,
  type Marks,
  type Match,
  type Stored,
} from '../../db/registry/records/columns.ts';
import { DateText, type EntityTable, type Row } from '../../db/registry/records.ts';
import { invalid } from '../core/errors.ts';
import { degreesText } from '../core/formats/numbers.ts';
import { readSerialNumber } from '../core/formats/serial-numbers.ts';
import type { Listing } from './list-query.ts';
import { formatVersion } from './verbs.ts';

type Marked<C extends Columns, M extends Marks> = { [K in keyof C]: C[K]['marks'] extends M ? K : never }[keyof C];
type ShownKey<C extends Columns> = Exclude<keyof C, Marked<C, { shown: false }>>;
type CreateKey<C extends Columns> = Marked<C, { create: 'required' | 'optional' }>;
type ChangeKey<C extends Columns> = Marked<C, { change: true }>;

type ShownSchema<X extends Column> = X['marks'] extends { shown: infer S extends TSchema } ? S : X['stored'];
type BodySchema<X extends Column> = X['marks'] extends { body: infer S extends TSchema } ? S : X['stored'];

/** Schemas of the fields common to every entity. */
export const commonShape = {
  ...common,
  version: Type.String({ description: 'Send it in the etag header on update, delete and recover.' }),
  deleted: Type.Optional(DateText),
};

type Stamped = Exclude<keyof Common, 'deleted'>;

export function showCommon(row: Common) {
  const { accountId, created, createdById, lastModified, lastModifiedById, version, deleted } = row;
  const shown: { deleted?: string } & Record<Stamped, string> = {
    id: row.id,
    accountId,
    created,
    createdById,
    lastModified,
    lastModifiedById,
    version: formatVersion(version),
  };
  if (deleted !== null) shown.deleted = deleted;
  return shown;
}

/** Columns as properties of an answer, of the body that creates, and of the body of PUT. */
export type ShownProperties<C extends Columns> = { -readonly [K in ShownKey<C>]: ShownSchema<C[K]> };
export type CreateProperties<C extends Columns> = {
  -readonly [K in CreateKey<C>]: C[K]['marks'] extends { create: 'required' }
    ? BodySchema<C[K]>
    : TOptional<BodySchema<C[K]>>;
};
export type ChangeProperties<C extends Columns> = { -readonly [K in ChangeKey<C>]: TOptional<BodySchema<C[K]>> };

/** Columns as the wire shows them. */
export type ShownColumns<C extends Columns> = { [K in ShownKey<C>]: Static<ShownSchema<C[K]>> };

function select(columns: Columns, schemaOf: (column: Column) => TSchema | undefined): Record<string, TSchema> {
  const schemas = Object.entries(columns).map(([name, column]) => [name, schemaOf(column)] as const);
  return Object.fromEntries(schemas.flatMap(([name, schema]) => (schema ? [[name, schema]] : [])));
}

function bodySchema({ stored, marks }: Column): TSchema {
  return { ...(marks.body ?? stored), ...marks.bounds };
}

/** The columns of an answer. */
export function shownProperties<C extends Columns>(columns: C): ShownProperties<C> {
  const shown = select(columns, ({ stored, marks }) => (marks.shown === false ? undefined : (marks.shown ?? stored)));
  return shown as unknown as ShownProperties<C>;
}

/** The columns in the body that creates an entity. */
export function createProperties<C extends Columns>(columns: C): CreateProperties<C> {
  const settable = select(columns, (column) => {
    if (column.marks.create === undefined) return undefined;
    return column.marks.create === 'required' ? bodySchema(column) : Type.Optional(bodySchema(column));
  });
  return settable as unknown as CreateProperties<C>;
}

/** The columns in the body of PUT; each is optional. */
export function changeProperties<C extends Columns>(columns: C): ChangeProperties<C> {
  const settable = select(columns, (column) => (column.marks.change ? Type.Optional(bodySchema(column)) : undefined));
  return settable as unknown as ChangeProperties<C>;
}

/** The columns without some of them: those for which a resource has rules of its own. */
export function without<C extends Columns, K extends keyof C & string>(columns: C, names: readonly K[]): Omit<C, K> {
  const others = Object.entries(columns).filter(([name]) => !names.some((one) => one === name));
  return Object.fromEntries(others) as unknown as Omit<C, K>;
}

/** A function that shows these columns of a row. Make it once: it is called for each row of a page. */
export function showing<C extends Columns>(columns: C): (row: Stored<C>) => ShownColumns<C> {
  const shown = Object.entries<Column>(columns).filter(([, { marks }]) => marks.shown !== false);
  const parts = shown.map(([name, { marks }]) => ({ name, form: marks.form }));
  // A copy of an object that has all the names is twice as fast as an object that gets one after the other.
  const blank: Record<string, unknown> = Object.fromEntries(shown.map(([name]) => [name, null]));
  return (row) => {
    const wire = { ...blank };
    for (const { name, form } of parts) {
      const value = (row as Record<string, unknown>)[name];
      wire[name] = form === undefined ? value : toShown(form, value);
    }
    return wire as ShownColumns<C>;
  };
}

/** A stored value as the wire shows it. */
function toShown(form: NonNullable<Marks['form']>, value: unknown): unknown {
  if (form === 'flag') return value === 1;
  if (form === 'flagText') return String(value === 1);
  return form === 'json' ? JSON.parse(String(value)) : value;
}

const degreeLimits = { latitude: 90, longitude: 180 };

/** A value of a body as it is stored. @throws PlatformError 400 with 106 naming the property. */
function toStored(name: string, { form }: Marks, value: unknown): unknown {
  if (form === undefined || value === null) return value;
  if (form === 'flag' || form === 'flagText') return value === true || value === 'true' ? 1 : 0;
  if (form === 'json') return JSON.stringify(value);
  if (form === 'serialNumber') return readSerialNumber(String(value), name);
  const limit = degreeLimits[form];
  const text = degreesText(value, limit);
  if (text === undefined) throw invalid(name, `must be a number between -${limit} and ${limit}`);
  return text;
}

/** The columns that a PUT changes, as they are stored. @throws PlatformError 400 with 106 naming the property. */
export function readChanges<C extends Columns>(
  columns: C,
  body: Readonly<Record<string, unknown>>,
): Partial<Stored<Pick<C, ChangeKey<C>>>> {
  const changes: Record<string, unknown> = {};
  for (const [name, { marks }] of Object.entries<Column>(columns)) {
    if (marks.change && body[name] !== undefined) changes[name] = toStored(name, marks, body[name]);
  }
  return changes as Partial<Stored<Pick<C, ChangeKey<C>>>>;
}

/** The columns of a new entity that its body can set; those that it leaves out have their initial value. @throws as readChanges. */
export function readNew<C extends Columns>(
  columns: C,
  body: Readonly<Record<string, unknown>>,
): Stored<Pick<C, CreateKey<C>>> {
  const values: Record<string, unknown> = {};
  for (const [name, { marks }] of Object.entries<Column>(columns)) {
    if (marks.create === undefined) continue;
    const value = body[name];
    values[name] = value === undefined ? (marks.initial ?? null) : toStored(name, marks, value);
  }
  return values as Stored<Pick<C, CreateKey<C>>>;
}

type Name<T extends EntityTable> = keyof Row<T> & string;

/** The list of a table, by the marks of its columns. `sorts` are common columns besides the three of each list. */
export function listingOf<T extends EntityTable>(
  table: T,
  columns: Columns,
  { sorts = [], ...more }: Partial<Omit<Listing<T>, 'table' | 'filters'>> = {},
): Listing<T> {
  const all = Object.entries(columns);
  const filters = Object.fromEntries(all.flatMap(([name, { marks }]) => (marks.filter ? [[name, marks.filter]] : [])));
  const marked = all.flatMap(([name, { marks }]) => (marks.sort ? [name] : []));
  const defaultSort = all.find(([, { marks }]) => marks.sort === 'default')?.[0] ?? 'created';
  return {
    table,
    filters: filters as Partial<Record<Name<T>, Match>>,
    sorts: ['created', 'lastModified', 'id', ...sorts, ...(marked as Name<T>[])],
    defaultSort: defaultSort as Name<T>,
    ...more,
  };
}
