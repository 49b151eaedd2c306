/** The names in bodies, compared with their schema: mistyped ones, and those that callers cannot set. */
import { nearName } from '../core/formats/near-names.ts';

/** The part of a schema that says which names there are. */
export interface NamedSchema {
  type?: string | string[];
  properties?: Record<string, NamedSchema>;
  additionalProperties?: boolean | object;
  items?: NamedSchema;
  anyOf?: NamedSchema[];
  oneOf?: NamedSchema[];
  allOf?: NamedSchema[];
}

/**
 * The paths of names that the schema does not know, at most `max`. `known` are further names at the top. Where a schema
 * says nothing of names, any may be there.
 */
export function unknownNames(value: unknown, schema: NamedSchema, known: readonly string[], max: number): string[] {
  const paths: string[] = [];
  for (const { path } of unknownIn(value, [schema], known, '')) {
    paths.push(path);
    if (paths.length === max) break;
  }
  return paths;
}

/** Of the first `max` unknown names those that only case or one letter keeps from a known one that is not there itself. */
export function mistypedNames(value: unknown, schema: NamedSchema, max: number): { path: string; meant: string }[] {
  const found: { path: string; meant: string }[] = [];
  let looked = 0;
  for (const { path, name, missing } of unknownIn(value, [schema], [], '')) {
    const meant = nearName(name, missing());
    if (meant !== undefined) found.push({ path, meant });
    looked += 1;
    if (looked === max) break;
  }
  return found;
}

/** A name that no schema of its object has; `missing` are those that they have, and the object has not. */
interface Unknown {
  path: string;
  name: string;
  missing: () => string[];
}

function* unknownIn(
  value: unknown,
  schemas: readonly NamedSchema[],
  known: readonly string[],
  path: string,
): Generator<Unknown> {
  const branches = schemas.flatMap(branchesOf);
  if (Array.isArray(value)) {
    const items = branches.flatMap((branch) => branch.items ?? []);
    if (items.length === 0) return;
    for (const [at, one] of value.entries()) yield* unknownIn(one, items, [], `${path}${at}.`);
  } else if (isObject(value) && !branches.some(isOpen)) {
    const parts = partsOf(branches);
    const missing = () => [...parts.keys()].filter((name) => !Object.hasOwn(value, name));
    for (const [name, one] of Object.entries(value)) {
      const part = parts.get(name);
      if (part) yield* unknownIn(one, part, [], `${path}${name}.`);
      else if (!known.includes(name)) yield { path: path + name, name, missing };
    }
  }
}

/** The names at the top of a schema; undefined where any may be there. */
export function namesOf(schema: NamedSchema): string[] | undefined {
  const branches = branchesOf(schema);
  return branches.some(isOpen) ? undefined : [...partsOf(branches).keys()];
}

/** The schemas of each name. */
function partsOf(branches: readonly NamedSchema[]): Map<string, NamedSchema[]> {
  const parts = new Map<string, NamedSchema[]>();
  for (const { properties = {} } of branches)
    for (const [name, schema] of Object.entries(properties)) parts.set(name, [...(parts.get(name) ?? []), schema]);
  return parts;
}

function branchesOf(schema: NamedSchema): NamedSchema[] {
  const choices = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return choices.length > 0 ? choices.flatMap(branchesOf) : [schema];
}

/** Whether it takes an object of any names. */
function isOpen(schema: NamedSchema): boolean {
  const { type, properties, additionalProperties } = schema;
  if (additionalProperties === true || typeof additionalProperties === 'object') return true;
  const isTyped = type !== undefined || 'const' in schema || 'enum' in schema;
  return !properties && (!isTyped || [type].flat().includes('object'));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value);
}
