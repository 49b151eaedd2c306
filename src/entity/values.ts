/** Values of custom fields: checked against their type, kept as JSON next to the entity. */
import { parseDate } from '../../db/sqlite/dates.ts';
import { invalid } from '../core/errors.ts';
import { degreesText, parseNumber } from '../core/formats/numbers.ts';
import { demandWithin, type Limits } from '../core/limits/table.ts';

export type FieldType =
  | 'url'
  | 'lat'
  | 'long'
  | 'datetime'
  | 'name'
  | 'email'
  | 'countryCode'
  | 'territory'
  | 'locality'
  | 'postalCode'
  | 'int'
  | 'string'
  | 'boolean'
  | 'float'
  | 'text';

/** Types of fields: int and float are numbers, boolean is boolean, all others are text. */
export type FieldValue = string | number | boolean | null;
/** Two types that custom fields cannot have: an organization's own countryCode is ISO 3166, a person's name may be short. */
type BuiltInType = FieldType | 'isoCountry' | 'personName';

/** A custom field of an entity. Values are kept under `key`, so that a field can be renamed. */
export interface Field {
  key: string;
  name: string;
  type: BuiltInType;
  /** Whether a new entity must have a value, and the one that it gets when none is given. */
  required: boolean;
  default: string | null;
}

type Check = (value: unknown) => FieldValue | undefined;

const text =
  (least: number, most: number): Check =>
  (value) =>
    typeof value === 'string' && isWithin(value, least, most) ? value : undefined;

const numeric =
  (accept: (value: number) => boolean): Check =>
  (value) => {
    const number = parseNumber(value);
    return number !== undefined && accept(number) ? number : undefined;
  };

const degrees =
  (limit: number): Check =>
  (value) =>
    degreesText(value, limit);

const checks: Record<BuiltInType, { check: Check; says: string }> = {
  url: { check: (value) => (isUrl(value) ? value : undefined), says: 'a URL of at most 255 characters' },
  lat: { check: degrees(90), says: 'a number between -90 and 90' },
  long: { check: degrees(180), says: 'a number between -180 and 180' },
  datetime: {
    check: (value) => (parseDate(value) === undefined ? undefined : (value as string)),
    says: 'an ISO 8601 date',
  },
  name: { check: text(5, 100), says: 'a text of 5 to 100 characters' },
  personName: { check: text(1, 100), says: 'a text of 1 to 100 characters' },
  email: {
    check: (value) => (isEmail(value) ? value : undefined),
    says: 'an email address of at most 254 characters',
  },
  countryCode: { check: text(0, 2), says: 'a text of at most 2 characters' },
  territory: { check: text(0, 2), says: 'a text of at most 2 characters' },
  locality: { check: text(0, 100), says: 'a text of at most 100 characters' },
  postalCode: { check: text(0, 10), says: 'a text of at most 10 characters' },
  int: { check: numeric(Number.isSafeInteger), says: 'an integer' },
  string: { check: text(0, 255), says: 'a text of at most 255 characters' },
  boolean: {
    check: (value) =>
      value === 'true' ? true : value === 'false' ? false : typeof value === 'boolean' ? value : undefined,
    says: 'true or false',
  },
  float: { check: numeric(Number.isFinite), says: 'a number' },
  isoCountry: {
    check: (value) =>
      typeof value === 'string' && /^[A-Za-z]{2}(-[A-Za-z0-9]{1,3})?$/.test(value) ? value : undefined,
    says: 'an ISO 3166 code, such as US or US-MA',
  },
  text: { check: text(0, 1000), says: 'a text of at most 1000 characters' },
};

const builtInTypes = {
  devices: { deviceVersion: 'string', location: 'text', name: 'string', purchaseDate: 'datetime' },
  endUsers: {
    address: 'string',
    city: 'string',
    countryCode: 'countryCode',
    emailAddress: 'string',
    name: 'personName',
    phoneNumber: 'string',
    postalCode: 'postalCode',
    state: 'string',
  },
  organizations: {
    address: 'string',
    city: 'string',
    countryCode: 'isoCountry',
    description: 'text',
    industry: 'string',
    organizationSize: 'string',
    phoneNumber: 'string',
    postalCode: 'postalCode',
    state: 'territory',
    websiteAddress: 'string',
  },
  deviceTemplates: { category: 'string', code: 'string', description: 'text', make: 'string' },
} as const satisfies Record<string, Record<string, BuiltInType>>;

/** The kinds that have custom fields; those of device templates themselves are one set for the account. */
export type FieldKind = keyof typeof builtInTypes;

function builtIn(kind: FieldKind): readonly Field[] {
  const types: Record<string, BuiltInType> = builtInTypes[kind];
  return Object.entries(types).map(([name, type]) => ({ key: name, name, type, required: false, default: null }));
}

/** The built-in custom fields of each kind. */
export const builtInFields: Readonly<Record<FieldKind, readonly Field[]>> = {
  devices: builtIn('devices'),
  endUsers: builtIn('endUsers'),
  organizations: builtIn('organizations'),
  deviceTemplates: builtIn('deviceTemplates'),
};

/** The types that a custom field may have. */
export const fieldTypes = Object.keys(checks).filter(
  (type) => type !== 'isoCountry' && type !== 'personName',
) as FieldType[];

/**
 * A value as it is stored. null is no value.
 * @throws PlatformError 400 with 106 naming `path` when the value does not match the type.
 */
export function checkValue(path: string, type: BuiltInType, value: unknown): FieldValue {
  if (value === null) return null;
  const checked = checks[type].check(value);
  if (checked === undefined) throw invalid(path, `must be ${checks[type].says}`);
  return checked;
}

/** The values that `body` gives to these fields, checked, by key. @throws as checkValue. */
export function readFields(fields: readonly Field[], body: Record<string, unknown>): Record<string, FieldValue> {
  const values: Record<string, FieldValue> = {};
  for (const { key, name, type } of fields)
    if (Object.hasOwn(body, name) && body[name] !== undefined) values[key] = checkValue(name, type, body[name]);
  return values;
}

/** As readFields for a new entity: defaults fill in, and a required field must have a value. @throws as checkValue. */
export function readNewFields(fields: readonly Field[], body: Record<string, unknown>, limits: Limits): string {
  const values = readFields(fields, body);
  for (const { key, name, type, required, default: fallback } of fields) {
    if (values[key] === undefined && fallback !== null) values[key] = checkValue(name, type, fallback);
    if (required && (values[key] ?? null) === null) throw invalid(name, 'is required');
  }
  return mergeFields('{}', values, limits);
}

/**
 * Stored fields with `changes` over them, as they are stored.
 * @throws PlatformError 400 with 106 when all values together are over the limit and longer than before.
 */
export function mergeFields(stored: string, changes: Record<string, FieldValue>, limits: Limits): string {
  const merged: Record<string, FieldValue> = { ...(JSON.parse(stored) as Record<string, FieldValue>), ...changes };
  // Null is the default, so a field without a value is not stored.
  for (const [key, value] of Object.entries(merged)) if (value === null) delete merged[key];
  const text = JSON.stringify(merged);
  if (text.length > stored.length) demandWithin(limits, 'valueBytes', Buffer.byteLength(text), 'body');
  return text;
}

/** These fields as the wire shows them: null without a value, or with one that does not match the field's type now. */
export function showFields(fields: readonly Field[], stored: string): Record<string, FieldValue> {
  const values = JSON.parse(stored) as Record<string, FieldValue>;
  return Object.fromEntries(
    fields.map(({ key, name, type }) => [
      name,
      values[key] === undefined ? null : (checks[type].check(values[key]) ?? null),
    ]),
  );
}

/** No encoded word (RFC 2047), nothing invisible; a domain of letters, digits and hyphens, of any script. */
const emailPattern =
  /^(?!=\?)[^\s\p{C}@<>"(),;:\\[\]]+@(?!-)[\p{L}\p{M}\p{Nd}-]+(?<!-)(\.(?!-)[\p{L}\p{M}\p{Nd}-]+(?<!-))*$/u;

/** Whether a text is an email address of at most 254 characters, also when it is folded: ＠ is an @ to some. */
export function isEmail(value: unknown): value is string {
  return (
    typeof value === 'string' &&
    value.length <= 254 &&
    emailPattern.test(value) &&
    emailPattern.test(value.normalize('NFKC'))
  );
}

function isUrl(value: unknown): value is string {
  return typeof value === 'string' && length(value) <= 255 && URL.canParse(value);
}

/** Whether a text has so many characters. They are counted only where UTF-16 units do not tell: long texts are many. */
function isWithin(value: string, least: number, most: number): boolean {
  const units = value.length;
  if (units <= most && units >= 2 * least) return true;
  return units >= least && units <= 2 * most && length(value) >= least && length(value) <= most;
}

/** Characters, not UTF-16 units. */
function length(value: string): number {
  return [...value].length;
}
