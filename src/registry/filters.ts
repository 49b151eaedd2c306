/** Attributes that filters name: columns of a row and its custom fields, and those of its parents. */
import { type RawBuilder, sql } from 'kysely';
import { Type } from 'typebox';
import type { Db } from '../../db/registry/index.ts';
import type { Columns, Match } from '../../db/registry/records/columns.ts';
import { fold } from '../../db/sqlite/fold.ts';
import type { Access } from '../core/access.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { nearName } from '../core/formats/near-names.ts';
import { laneOf } from '../core/limits/lanes.ts';
import {
  type Attribute,
  type Attributes,
  CompiledFilter,
  type FilterTree,
  type FoundRows,
  type KeptFilter,
  readTree,
} from '../entity/filters/compiled.ts';
import {
  type Comparison,
  type Condition,
  dateOperand,
  degreesOperand,
  flagOperand,
  type Given,
  numberOperand,
  type Operand,
  textOperand,
  versionOperand,
} from '../entity/filters/operands.ts';
import { inReach } from '../entity/list-filters.ts';
import { filterText, type ListQuery, type SearchServices } from '../entity/list-query.ts';
import { builtInFields, type FieldKind, fieldTypes } from '../entity/values.ts';

export type FilterServices = SearchServices & { access: Access; clock: Clock };
export type FilterRequest = FilterServices & { caller: Caller; now: number };
/** An attribute under the name that people write; rows in memory know it by the same, in lower case. */
export type Named = readonly [name: string, attribute: Omit<Attribute, 'name'>];
export type Where = NonNullable<Attribute['where']>;

/** Custom fields that have a name in some letter case, of all templates of a kind together. */
interface NamedField {
  kind: FieldKind;
  name: string;
  fieldType: string;
  indexed: number;
}
/** Names that a hint may come from. */
const maxHints = 1000;

/** What rows of a kind are asked for: the attributes that have names of their own, and who has custom fields. */
export interface Known {
  own: readonly Named[];
  owners: readonly Owner[];
}

/** @throws PlatformError 400/106 naming `filter`, for what is no filter of the kind; 429 while too many reads wait. */
export async function compileFilter(
  services: FilterServices,
  caller: Caller,
  text: string,
  knownTo: (asked: FilterRequest) => Known,
): Promise<CompiledFilter> {
  const tree = readTree(text);
  const asked = { ...services, caller, now: services.clock.now() };
  return CompiledFilter.compile(tree, await attributesOf(asked, knownTo(asked), tree.terms));
}

/** Filters that are stored, together. */
export async function compileKept(
  services: FilterServices,
  caller: Caller,
  texts: readonly string[],
  knownTo: (asked: FilterRequest) => Known,
): Promise<KeptFilter[]> {
  const trees = texts.map(readTree);
  const asked = { ...services, caller, now: services.clock.now() };
  const terms = trees.flatMap((tree) => tree.terms);
  const attributes = await attributesOf(asked, knownTo(asked), terms);
  return trees.map((tree) => CompiledFilter.compileKept(tree, attributes));
}

/** The `filter` of a list whose rows have columns and fields of their own alone. `template` is the column that names their template. */
export function ownFilter(
  services: FilterServices,
  { kind, columns, template }: { kind: 'organizations' | 'endUsers'; columns: Columns; template: string },
) {
  const owner: Owner = {
    ...{ prefix: 'fields', kind, table: kind, columns: {} },
    templateId: sql.ref(`${kind}.${template}`),
    where: (expression) => sql`${expression}`,
  };
  const knownTo = (asked: FilterRequest): Known => {
    const ofColumns = Object.entries(filterable(columns)).map(
      ([name, match]): Named => [name, { operands: [operandOf(name, match, sql.ref(`${kind}.${name}`), asked.now)] }],
    );
    return { own: [...ofColumns, ...ownFields(asked, owner)], owners: [owner] };
  };
  return {
    query: { filter: Type.Optional(filterText) },
    run: async (caller: Caller, _query: ListQuery, text: string | undefined) =>
      text === undefined ? undefined : compileFilter(services, caller, text, knownTo),
  };
}

async function attributesOf(
  asked: FilterRequest,
  { own, owners }: Known,
  terms: FilterTree['terms'],
): Promise<Attributes> {
  const known = [...own, ...owners.flatMap((owner) => attributesOfOwner(asked, owner))];
  const byName = new Map(
    known.map(([name, attribute]) => [name.toLowerCase(), { ...attribute, name: name.toLowerCase() }]),
  );
  const names = [...new Set(terms.flatMap(({ path }) => path.names.slice(1).join('.') || []))];
  const fields =
    names.length === 0 ? [] : await customFields(asked, owners, sql`fold("name") in (${sql.join(names.map(fold))})`);
  return {
    find([first = '', ...rest]) {
      const name = rest.join('.');
      const builtIn = byName.get([first, ...rest].join('.').toLowerCase());
      const owner = owners.find(({ prefix }) => prefix === first.toLowerCase());
      return (
        builtIn ??
        (owner &&
          customAttribute(
            asked,
            owner,
            fields.filter((one) => fold(one.name) === fold(name)),
          ))
      );
    },
    async hint(path) {
      const all = path.length > 1 ? await customFields(asked, owners, sql`true`, maxHints) : [];
      const custom = owners.flatMap(({ kind, prefix }) =>
        all.flatMap((one) => (one.kind === kind ? [`${prefix}.${one.name}`] : [])),
      );
      const near = nearName(path.join('.'), [...known.map(([name]) => name), ...custom]);
      if (near !== undefined) return `Is ${near} meant?`;
      return `Known are ${known.map(([name]) => name).join(', ')}, and custom fields as fields.<name>.`;
    },
  };
}

/** Live custom fields of the account, as far as the caller reaches what has them. */
function customFields(
  { caller, readers, registry: { query } }: FilterRequest,
  owners: readonly Owner[],
  condition: Condition,
  limit = -1,
): Promise<NamedField[]> {
  const kinds = owners.map(({ kind }) => kind);
  const templates = sql.join(
    kinds.map((kind) => reachedTemplates(query, caller, kind)),
    sql` union `,
  );
  const reached = isAccountWide(caller) ? sql`true` : sql`"templateId" in (${templates})`;
  const found = sql<NamedField>`select "kind", "name", "fieldType", min("indexed") as "indexed" from "customFields"
    where "accountId" = ${caller.accountId} and "kind" in (${sql.join(kinds)})
      and "deleted" is null and ${condition} and ${reached} group by 1, 2, 3 limit ${limit}`;
  return readers.read(laneOf(caller), found.compile(query));
}

/** The templates of what a caller reaches of a kind. */
function reachedTemplates(db: Db, caller: Caller, kind: FieldKind): RawBuilder<unknown> {
  if (kind === 'deviceTemplates') return sql`select ${caller.accountId}`;
  if (kind === 'devices')
    return sql`select "deviceTemplateId" from "placedDeviceCounts"
      where "accountId" = ${caller.accountId} and ${inReach(db, caller, 'organizationId')}`;
  return kind === 'organizations'
    ? sql`select "organizationTemplateId" from "organizations" where ${inReach(db, caller, 'id')}`
    : sql`select "endUserTemplateId" from "endUsers" where "deleted" is null and ${inReach(db, caller, 'organizationId')}`;
}

/** A row that has attributes and custom fields: the device, or a parent of it. */
export interface Owner {
  prefix: 'fields' | 'template' | 'organization';
  kind: FieldKind;
  table: string;
  /** What names the template of its custom fields. */
  templateId: RawBuilder<unknown>;
  columns: Columns;
  where: Where;
}

function attributesOfOwner({ now }: FilterRequest, { prefix, kind, table, columns, where }: Owner): Named[] {
  const named = (name: string, operand: Operand): Named => [`${prefix}.${name}`, { operands: [operand], where }];
  const ofColumns = Object.entries(prefix === 'fields' ? {} : filterable(columns));
  return [
    ...ofColumns.map(([name, match]) => named(name, operandOf(name, match, sql.ref(`${table}.${name}`), now))),
    ...builtInFields[kind].map(({ name, type }) =>
      named(name, fieldOperand(name, type, sql`json_extract(${sql.ref(`${table}.fields`)}, ${`$.${name}`})`, now)),
    ),
  ];
}

/** Built-in fields by their own names. */
export function ownFields(asked: FilterRequest, owner: Owner): Named[] {
  return attributesOfOwner(asked, owner).map(([name, attribute]) => [name.slice(name.indexOf('.') + 1), attribute]);
}

/** What all kinds have. */
const common: Record<string, Match> = { id: 'exact', created: 'date', lastModified: 'date' };

/** The columns that a filter names. */
export function filterable(columns: Columns): Record<string, Match> {
  const marked = Object.entries(columns).flatMap(([name, { marks }]) => (marks.filter ? [[name, marks.filter]] : []));
  return { ...common, ...Object.fromEntries(marked) } as Record<string, Match>;
}

export function operandOf(name: string, match: Match, value: RawBuilder<unknown>, now: number): Operand {
  if (name === 'firmwareVersion') return versionOperand(value);
  if (match === 'flag') return flagOperand(value);
  if (match === 'date' || match === 'since') return dateOperand(value, now);
  return match === 'latitude' || match === 'longitude' ? degreesOperand(value) : textOperand(value);
}

function fieldOperand(name: string, type: string, value: RawBuilder<unknown>, now: number): Operand {
  const form = sql<string>`fold(${value})`;
  if (name === 'deviceVersion') return versionOperand(value, form);
  if (type === 'datetime') return dateOperand(sql`instant(${value})`, now);
  if (type === 'lat' || type === 'long') return degreesOperand(value);
  if (type === 'boolean') return flagOperand(value);
  return type === 'int' || type === 'float' ? numberOperand(value) : textOperand(value, form);
}

/** How types of custom fields are stored; all others are texts. */
const stored: Record<string, readonly string[]> = {
  boolean: ['true', 'false'],
  int: ['integer'],
  float: ['integer', 'real'],
  datetime: ['text'],
  lat: ['text'],
  long: ['text'],
};

/** A custom field, which several templates may have, with different types: the one of the template of each row counts. */
function customAttribute(asked: FilterRequest, owner: Owner, named: readonly NamedField[]): Attribute | undefined {
  const { now } = asked;
  const fields = named.filter(({ kind }) => kind === owner.kind);
  if (fields.length === 0) return undefined;
  const [values, path] = [sql.ref(`${owner.table}.fields`), sql`'$."' || "customFields"."id" || '"'`];
  const types = new Set(fields.map(({ fieldType }) => (fieldType in stored ? fieldType : 'text')));
  const [{ name = '' } = {}] = fields;
  const operands = [...types].map((type) => {
    const same = sameAs(type);
    const isStored = sql`json_type(${values}, ${path}) in (${sql.join(stored[type] ?? ['text'])})`;
    const value = sql`case when "customFields"."fieldType" in (${sql.join(same)}) and ${isStored}
      then json_extract(${values}, ${path}) end`;
    return fieldOperand('', type, value, now);
  });
  const names = [...new Set(fields.map(({ name }) => name))];
  const isIndexed = owner.kind === 'devices' && fields.every(({ indexed }) => indexed === 1);
  return {
    name: `${owner.prefix}.${fold(name)}`,
    operands,
    ...(isIndexed && { rows: (operator, value) => indexedRows(asked, { names, types }, operator, value) }),
    // Of two fields whose names differ in their letter case alone, one that holds is enough.
    where: (expression) =>
      owner.where(sql`(select max(${expression}) from "customFields" where "customFields"."templateId" = ${owner.templateId}
        and "customFields"."name" in (${sql.join(names)}) and "customFields"."deleted" is null)`),
  };
}

/** The types that are stored as one is. */
function sameAs(type: string): readonly string[] {
  return type in stored ? [type] : fieldTypes.filter((one) => !(one in stored));
}

/** The devices that the index of custom fields finds. A device may have two of them if their names differ in letter case. */
function indexedRows(
  { caller, now }: FilterRequest,
  { names, types }: { names: readonly string[]; types: ReadonlySet<string> },
  operator: Comparison,
  given: Given,
): FoundRows | undefined {
  const value = sql<string>`"fieldValues"."value"`;
  const found = [...types].flatMap((type) => {
    const operand =
      type === 'text'
        ? textOperand(value, value)
        : type === 'datetime'
          ? dateOperand(value, now)
          : fieldOperand('', type, value, now);
    const condition = operand.compare(operator, given);
    const ids = sql`select "id" from "customFields" where "accountId" = ${caller.accountId} and "kind" = 'devices'
      and "name" in (${sql.join(names)}) and "deleted" is null and "fieldType" in (${sql.join(sameAs(type))})`;
    return condition ? [sql`select "row" from "fieldValues" where "fieldId" in (${ids}) and ${condition}`] : [];
  });
  return found.length === 0 ? undefined : { rows: sql.join(found, sql` union all `), isExact: names.length === 1 };
}
