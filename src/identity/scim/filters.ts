/** Whether a filter fits a resource of SCIM. Names of attributes are the same in any letter case. */
import type { AttributePath, Filter, Literal, Operator } from '../../entity/filters/parser.ts';

/** What a kind of resource says of its attributes. */
export interface Attributes {
  /** Whether the letter case of its texts counts. */
  isExact(path: AttributePath): boolean;
}

/** Whether a filter fits a resource. Attributes that the resource does not have fit `ne` and `not` alone. */
export function fits(filter: Filter, resource: object, attributes: Attributes): boolean {
  if (filter.is === 'and') return filter.of.every((one) => fits(one, resource, attributes));
  if (filter.is === 'or') return filter.of.some((one) => fits(one, resource, attributes));
  if (filter.is === 'not') return !fits(filter.of, resource, attributes);
  const values = valuesOf(resource, filter.path);
  if (filter.is === 'some')
    return values.some((value) => typeof value === 'object' && fits(filter.of, value as object, attributes));
  const plain = values.map(plainValue).filter((value) => value !== undefined);
  if (filter.is === 'present') return values.some(isPresent);
  if (filter.value === null) return plain.length === 0 ? filter.is === 'eq' : filter.is === 'ne';
  const isExact = attributes.isExact(filter.path);
  if (filter.is === 'ne') return !plain.some((value) => compare('eq', value, filter.value, isExact));
  const { is, value: wanted } = filter;
  return plain.some((value) => compare(is, value, wanted, isExact));
}

/** The values of an attribute: all of those of a multi-valued one. */
function valuesOf(resource: object, { schema, names }: AttributePath): unknown[] {
  const inSchema = schema === undefined ? undefined : propertyOf(resource, schema);
  let values: unknown[] = [inSchema ?? resource];
  for (const name of names)
    values = values.flatMap((value) => (isObject(value) ? [propertyOf(value, name)].flat() : [])).filter(isGiven);
  return values;
}

/** A property in any letter case. */
export function propertyOf(of: object, name: string): unknown {
  const key = keyOf(of, name);
  return key === undefined ? undefined : (of as Record<string, unknown>)[key];
}

/** Under which name an object has a property in any letter case. */
export function keyOf(of: object, name: string): string | undefined {
  if (Object.hasOwn(of, name)) return name;
  const wanted = name.toLowerCase();
  return Object.keys(of).find((key) => key.toLowerCase() === wanted);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function isPresent(value: unknown): boolean {
  return isObject(value) ? Object.keys(value).length > 0 : isGiven(value) && value !== '';
}

/** Of a complex value its `value`: `emails co "x"` means `emails.value co "x"`. */
function plainValue(value: unknown): string | number | boolean | undefined {
  const plain = isObject(value) ? propertyOf(value, 'value') : value;
  return ['string', 'number', 'boolean'].includes(typeof plain) ? (plain as string | number | boolean) : undefined;
}

function compare(operator: Operator, value: string | number | boolean, wanted: Literal, isExact: boolean): boolean {
  if (typeof value === 'number' && typeof wanted === 'number') return compareOrdered(operator, value, wanted);
  const form = (text: unknown) => (isExact ? String(text) : String(text).toLowerCase());
  const [left, right] = [form(value), form(wanted)];
  if (operator === 'co') return left.includes(right);
  if (operator === 'sw') return left.startsWith(right);
  if (operator === 'ew') return left.endsWith(right);
  const [date, other] = [readTime(value), readTime(wanted)];
  if (date !== undefined && other !== undefined) return compareOrdered(operator, date, other);
  return compareOrdered(operator, left, right);
}

function compareOrdered<T extends string | number>(operator: Operator, left: T, right: T): boolean {
  if (operator === 'eq') return left === right;
  if (operator === 'gt') return left > right;
  if (operator === 'ge') return left >= right;
  if (operator === 'lt') return left < right;
  return operator === 'le' && left <= right;
}

/** The instant that a text names. */
function readTime(text: unknown): number | undefined {
  if (typeof text !== 'string' || !/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return undefined;
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : time;
}

/** The texts that an attribute must be equal to, whatever else a filter says; undefined where it may be anything. */
export function demandedValue(filter: Filter, ...names: string[]): string | undefined {
  if (filter.is === 'and') return filter.of.map((one) => demandedValue(one, ...names)).find((one) => one !== undefined);
  if (filter.is === 'some' && names.length === 2 && isNamed(filter.path, names.slice(0, 1)))
    return demandedValue(filter.of, ...names.slice(1));
  if (filter.is !== 'eq' || typeof filter.value !== 'string') return undefined;
  return isNamed(filter.path, names) ? filter.value : undefined;
}

function isNamed({ names }: AttributePath, wanted: readonly string[]): boolean {
  return names.length === wanted.length && names.every((name, at) => name.toLowerCase() === wanted[at]?.toLowerCase());
}
