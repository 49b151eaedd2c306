/**
 * PATCH of RFC 7644, 3.5.2, as Entra ID and Okta send it: operations in any letter case, attributes as keys of a value without
 * a path, and values for `emails[type eq "work"]` that are not there yet, which then come.
 */
import { BadFilter, type Filter, parsePath, type ValuePath } from '../../entity/filters/parser.ts';
import { fits, keyOf, propertyOf } from './filters.ts';
import { badValue, type Ignored, isObject, type Json, refused } from './protocol.ts';
import {
  type Attribute,
  attributeOf,
  enterpriseSchema,
  keepOnePrimary,
  maxCharacters,
  maxValues,
  partOf,
  readOnly,
  userSchema,
} from './schemas.ts';

/** Keys of a value without a path count as one each. */
const maxOperations = 1000;
/** Characters of a path to an attribute of a person. */
const maxPathLength = 256;
/** Values that the filters of one request look at. */
const maxLooks = 5000;

export interface Operation {
  op: 'add' | 'replace' | 'remove';
  path: string | undefined;
  value: unknown;
}

/** @throws PlatformError 400/invalidSyntax */
export function readOperations(body: Json): Operation[] {
  const operations = propertyOf(body, 'Operations');
  if (!Array.isArray(operations) || operations.length === 0 || operations.length > maxOperations)
    throw refused('invalidSyntax', `Operations must be an array of 1 to ${maxOperations}.`);
  return operations.map((one) => {
    const op = isObject(one) ? String(propertyOf(one, 'op')).toLowerCase() : '';
    if (!isObject(one) || (op !== 'add' && op !== 'replace' && op !== 'remove'))
      throw refused('invalidSyntax', 'op must be add, replace or remove.');
    const path = propertyOf(one, 'path') ?? undefined;
    if (path !== undefined && typeof path !== 'string') throw refused('invalidPath', 'path must be a text.');
    if (op === 'remove' && path === undefined) throw refused('noTarget', 'remove needs a path.');
    return { op, path: path === '' ? undefined : path, value: propertyOf(one, 'value') };
  });
}

/** @throws PlatformError 400/invalidPath */
export function readPath(text: string): ValuePath {
  try {
    return parsePath(text);
  } catch (error) {
    if (error instanceof BadFilter) throw refused('invalidPath', `path: ${error.message}`);
    throw error;
  }
}

/** A key of a value without a path, which is a path of its own. Undefined for a key that cannot be one. */
export function readKey(key: string): ValuePath | undefined {
  try {
    return key.length > maxPathLength ? undefined : parsePath(key);
  } catch (error) {
    if (error instanceof BadFilter) return undefined;
    throw error;
  }
}

/** One PATCH of one person, while its operations are applied. */
interface Patch {
  resource: Json;
  ignored: Ignored;
  left: { operations: number; looks: number };
}

/**
 * The resource after the operations; it has still to be checked. What no schema knows is ignored: what stands beside it, such as
 * that somebody is not active any more, counts. @throws PlatformError 400.
 */
export function patched(before: Json, operations: readonly Operation[], ignored: Ignored): Json {
  const resource = structuredClone(before);
  const patch = { resource, ignored, left: { operations: maxOperations, looks: maxLooks } };
  for (const { op, path, value } of operations)
    if (path !== undefined) applyPath(patch, op, path, value);
    else if (isObject(value)) applyKeys(patch, op, value);
    else throw refused('invalidValue', 'value must be an object where there is no path.');
  return resource;
}

function applyPath(patch: Patch, op: Operation['op'], path: string, value: unknown, isKey = false): void {
  const { left, ignored, resource } = patch;
  left.operations -= 1;
  if (left.operations < 0) throw refused('invalidSyntax', `There are more than ${maxOperations} operations.`);
  if (!isKey && path.length > maxPathLength)
    throw refused('invalidPath', `A path has at most ${maxPathLength} characters.`);
  const schema = [userSchema, enterpriseSchema].find((one) => one.toLowerCase() === path.toLowerCase());
  const at = schema !== undefined ? undefined : isKey ? readKey(path) : readPath(path);
  if (at) apply(patch, op, path, at, value);
  else if (schema !== undefined && op === 'remove') delete resource[schema];
  else if (schema !== undefined && isObject(value)) applyKeys(patch, op, value, `${schema}:`);
  else ignored.add(path);
}

/** The attributes of a value without a path, or of a schema. */
function applyKeys(patch: Patch, op: Operation['op'], value: Json, prefix = ''): void {
  for (const [key, one] of Object.entries(value)) applyPath(patch, op, prefix + key, one, true);
}

/**
 * The bounds of an attribute, checked after each operation: a value that grows makes each later operation slower.
 * @throws PlatformError 400/invalidValue
 */
function demandSmall(value: unknown): void {
  if (Array.isArray(value) && value.length > maxValues) throw badValue(`An attribute has at most ${maxValues} values.`);
  if (JSON.stringify(value ?? null).length > maxCharacters)
    throw badValue(`It has more than ${maxCharacters} characters.`);
}

function apply(
  { resource, ignored, left }: Patch,
  op: Operation['op'],
  path: string,
  { path: at, where, sub }: ValuePath,
  value: unknown,
): void {
  const [first = '', second] = at.names;
  const attribute = attributeOf(at.schema, first);
  if (attribute && readOnly.includes(attribute.name)) return;
  const part = sub ?? second;
  if (!attribute || at.names.length > 2 || (part !== undefined && !partOf(attribute, part))) {
    ignored.add(path);
    return;
  }
  demandSmall(value);
  const { name, multiValued = false } = attribute;
  const container = at.schema?.toLowerCase() === enterpriseSchema.toLowerCase() ? extensionOf(resource) : resource;
  if (where) {
    left.looks -= [container[name]].flat().length;
    if (left.looks < 0) throw refused('tooMany', `The filters look at more than ${maxLooks} values.`);
  }
  if (where) applyToValues(container, name, { op, where, part, value });
  else if (part !== undefined) applyToPart(container, name, { op, part, value, multiValued });
  else container[name] = valueAfter(container[name], op, value, attribute);
  demandSmall(container[name]);
}

function valueAfter(before: unknown, op: Operation['op'], value: unknown, { multiValued, type }: Attribute): unknown {
  if (op === 'remove') return multiValued && value !== undefined ? without(before, value) : undefined;
  if (multiValued) return op === 'add' ? joined(before, value) : [value].flat();
  if (type !== 'complex' || !isObject(value) || !isObject(before)) return value;
  merge(before, value);
  return before;
}

function extensionOf(resource: Json): Json {
  const known = resource[enterpriseSchema];
  if (isObject(known)) return known;
  const made: Json = {};
  resource[enterpriseSchema] = made;
  return made;
}

/** `name.givenName`, or with several values a part of each. */
function applyToPart(
  container: Json,
  name: string,
  { op, part, value, multiValued }: { op: Operation['op']; part: string; value: unknown; multiValued: boolean },
): void {
  const fallback = multiValued ? [{}] : {};
  container[name] ??= fallback;
  for (const one of [container[name]].flat()) if (isObject(one)) setPart(one, op, part, value);
}

function setPart(of: Json, op: Operation['op'], part: string, value: unknown): void {
  const key = keyOf(of, part) ?? part;
  if (op === 'remove') delete of[key];
  else of[key] = value;
}

/** The values of an attribute that fit; a new one with what the filter says, where none does. */
function applyToValues(
  container: Json,
  name: string,
  { op, where, part, value }: { op: Operation['op']; where: Filter; part: string | undefined; value: unknown },
): void {
  const values = [container[name] ?? []].flat().filter(isObject);
  const fitting = values.filter((one) => fits(where, one, { isExact: () => false }));
  if (op === 'remove' && part === undefined) {
    container[name] = values.filter((one) => !fitting.includes(one));
    return;
  }
  if (op !== 'remove' && fitting.length === 0) {
    const made = demanded(where);
    values.push(made);
    fitting.push(made);
  }
  for (const one of fitting)
    if (part !== undefined) setPart(one, op, part, value);
    else if (isObject(value)) merge(one, value);
  container[name] = values;
  keepOnePrimary(values, fitting);
}

/** What a value must have to fit: the equalities of a filter. @throws PlatformError 400/noTarget where that is not said. */
function demanded(where: Filter): Json {
  if (where.is === 'and') return Object.assign({}, ...where.of.map(demanded)) as Json;
  const [name, more] = where.is === 'eq' ? where.path.names : [];
  if (where.is !== 'eq' || name === undefined || more !== undefined)
    throw refused('noTarget', 'No value fits the filter.');
  return { [name]: where.value };
}

function merge(into: Json, value: Json): void {
  for (const [key, one] of Object.entries(value)) setPart(into, one === null ? 'remove' : 'add', key, one);
}

function joined(before: unknown, value: unknown): unknown[] {
  const values = [before ?? []].flat();
  const known = new Set(values.map((one) => JSON.stringify(one)));
  const added = [value].flat().filter((one) => !known.has(JSON.stringify(one)));
  const all = [...values, ...added];
  keepOnePrimary(all, added);
  return all;
}

/** The values that none of `removed` is: an object that has at least what that one has. */
function without(before: unknown, removed: unknown): unknown[] {
  const gone = [removed].flat();
  const isGone = (one: unknown) =>
    gone.some((wanted) => {
      if (!isObject(wanted) || !isObject(one)) return wanted === one || (isObject(one) && one.value === wanted);
      return Object.entries(wanted).every(([key, value]) => propertyOf(one, key) === value);
    });
  return [before ?? []].flat().filter((one) => !isGone(one));
}
