/** Columns of records, with marks for the uses that callers have of them. Schemas, lists and bodies follow from the marks. */
import { type Static, type TInteger, type TSchema, type TString, type TUnsafe, Type } from 'typebox';

/** A type that may be null, written as `type: [..., 'null']`, which validators and OpenAPI 3.1 read without a union. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: string }).type ?? 'string', 'null'] });

export const Id = Type.String({ format: 'uuid' });
export const DateText = Type.String({ format: 'date-time' });
export const OptionalId = Nullable(Id);
export const OptionalText = Nullable(Type.String());
export const OptionalDate = Nullable(DateText);

/** A text that is one of these. */
export function oneOf<V extends string>(values: readonly V[], options: { default?: V; description?: string } = {}) {
  return Type.Unsafe<V>({ type: 'string', enum: [...values], ...options });
}

/**
 * The match of a column in a list. `partial` ignores case, `reference` also takes the text `null`, `latitude` and `longitude` are
 * numbers kept as text, `since` is an instant or a later one.
 */
export type Match =
  | 'exact'
  | 'reference'
  | 'partial'
  | 'beginning'
  | 'flag'
  | 'latitude'
  | 'longitude'
  | 'date'
  | 'since';

/** Tables whose rows others need. */
export type Kept =
  | 'organizations'
  | 'deviceTemplates'
  | 'endUserTemplates'
  | 'organizationTemplates'
  | 'firmwarePackages'
  | 'roles';

/** The uses of a column that callers have. Without marks it is shown, and nothing else. */
export interface Marks {
  /** The body that creates an entity must have it, or can have it. */
  create?: 'required' | 'optional';
  /** A PUT can change it. */
  change?: true;
  /** Its schema in these bodies, where that is not the stored one; `bounds` are further keywords there. */
  body?: TSchema;
  bounds?: {
    minLength?: number;
    maxLength?: number;
    minimum?: number;
    maximum?: number;
    pattern?: string;
    description?: string;
  };
  /** Its value in a new entity whose body does not have it; null without this. */
  initial?: string | number;
  /** Its schema in answers, where that is not the stored one; false if it is never shown as it is stored. */
  shown?: TSchema | false;
  /**
   * Its form on the wire, if that is not the stored one: 0 and 1 are a boolean or the text of one, degrees and JSON are text,
   * a serial number is stored without what nobody sees at its ends.
   */
  form?: 'flag' | 'flagText' | 'latitude' | 'longitude' | 'json' | 'serialNumber';
  /** Lists can filter by it, in this way. */
  filter?: Match;
  /** While a row names one of this table, that one is not purged, though it is in the trash. */
  keeps?: Kept;
  /** A row is purged with the one that this column names. */
  goesWith?: true;
  /** Lists can sort by it; one column of a record is what they sort by by default. */
  sort?: true | 'default';
}

export interface Column<S extends TSchema = TSchema, M extends Marks = Marks> {
  readonly stored: S;
  readonly marks: M;
}

/** The columns of an entity besides the common ones. The keys are the names of the columns and of the API. */
export type Columns = Readonly<Record<string, Column>>;

export function column<S extends TSchema, const M extends Marks>(stored: S, marks: M): Column<S, M> {
  return { stored, marks };
}

/** The name of an entity: required, and lists filter by it exactly and sort by it. */
export const nameColumn = column(Type.String(), {
  create: 'required',
  change: true,
  bounds: { minLength: 1, maxLength: 255 },
  filter: 'exact',
  sort: true,
});

/** A column that no caller sees as it is stored. */
export function hidden<S extends TSchema>(stored: S, marks: Pick<Marks, 'keeps' | 'goesWith'> = {}) {
  return column(stored, { ...marks, shown: false });
}

const Flag = Type.Boolean();
type FlagMarks = { form: 'flag'; shown: typeof Flag; body: typeof Flag };

/** 0 or 1, which the wire writes as a boolean. */
export function flag<const M extends Marks>(marks: M): Column<TInteger, M & FlagMarks> {
  return { stored: Type.Integer(), marks: { ...marks, form: 'flag', shown: Flag, body: Flag } };
}

/** JSON text, which the wire writes as the value that it is. `initial` is text. */
export function json<S extends TSchema, B extends TSchema, const M extends Marks>(
  shown: S,
  body: B,
  marks: M,
): Column<TString, M & { form: 'json'; shown: S; body: B }> {
  return { stored: Type.String(), marks: { ...marks, form: 'json', shown, body } };
}

const Degrees = Type.Unsafe<string | number | null>({
  type: ['number', 'string', 'null'],
  description: 'A number, or a text that is one.',
});
type DegreesForm = 'latitude' | 'longitude';

/** Degrees, kept as text so that they stay as they were given. */
export function degrees<const F extends DegreesForm, const M extends Marks>(
  form: F,
  marks: M,
): Column<TUnsafe<string | null>, M & { form: F; filter: F; body: typeof Degrees }> {
  return { stored: OptionalText, marks: { ...marks, form, filter: form, body: Degrees } };
}

/** Fields common to every entity; `version` is a counter here and base 36 text on the wire. */
export const common = {
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.Integer(),
  deleted: OptionalDate,
};

/** The common columns of a row. */
export type Common = { [K in keyof typeof common]: Static<(typeof common)[K]> };

/** These columns as they are stored. */
export type Stored<C extends Columns> = { -readonly [K in keyof C]: Static<C[K]['stored']> };

/** A row of an entity with these columns. */
export type EntityRow<C extends Columns> = {
  [K in keyof Common | keyof C]: K extends keyof Common ? Common[K] : Static<C[K]['stored']>;
};
