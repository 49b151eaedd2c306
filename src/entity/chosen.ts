/** What a list answers of each entity: everything, or the properties that its query names in `fields`. */
import { type TObject, type TSchema, Type } from 'typebox';
import type { Db } from '../../db/registry/index.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { customNames } from './fields.ts';
import type { ShownEntity } from './routes.ts';
import type { FieldKind } from './values.ts';

export const fieldsQuery = {
  fields: Type.Optional(
    Type.String({
      description:
        'Comma-separated names of properties: each result has id and these alone. organization.name is one property of what expand adds. Without it results are whole. An unknown name is 400.',
    }),
  ),
};

/** Each name is looked up in each entity of a list. */
const maxNames = 100;

/** What `fields` may name: the properties of a shape, and those of the custom fields of its kind. */
export interface Nameable {
  shape: TObject;
  fieldKind?: FieldKind;
}

/** The names that `fields` has, each as the property of a result and perhaps of the object in it. */
type Path = readonly [name: string, part: string | undefined];

/** @throws PlatformError 400/106 for more than 100 names. */
export function readFieldNames(fields: string | undefined): Path[] {
  const names = (fields ?? '').split(',').flatMap((name) => name.trim() || []);
  if (names.length > maxNames) throw invalid('fields', `must have at most ${maxNames} names`);
  return names.map((path) => {
    const [name = '', part] = path.split('.', 2);
    return [name, part];
  });
}

/** `expanded` are the objects that `expand` adds. @throws PlatformError 400/106 with each name that no result can have. */
export async function demandNames(
  db: Db,
  accountId: string,
  paths: readonly Path[],
  result: Nameable,
  expanded: Readonly<Record<string, Nameable>> = {},
): Promise<void> {
  const unknown: string[] = [];
  for (const [name, part] of paths) {
    const parent = Object.hasOwn(expanded, name) ? expanded[name] : undefined;
    const isKnown = parent !== undefined || (await hasName(db, accountId, result, name));
    const inside = parent ?? insideOf(result.shape, name);
    const isPartKnown = part === undefined || !inside || (await hasName(db, accountId, inside, part));
    if (!isKnown || !isPartKnown) unknown.push(part === undefined ? name : `${name}.${part}`);
  }
  if (unknown.length === 0) return;
  const message = (name: string) => `'${name.slice(0, 100)}' is not a property of the results`;
  throw new PlatformError('invalid', { details: unknown.map((name) => ({ path: 'fields', message: message(name) })) });
}

/** The object that a property holds; undefined where it may have any properties. */
function insideOf({ properties }: TObject, name: string): Nameable | undefined {
  const schema = Object.hasOwn(properties, name) ? (properties[name] as TSchema & { properties?: unknown }) : undefined;
  return schema?.properties === undefined ? undefined : { shape: schema as TObject };
}

async function hasName(db: Db, accountId: string, { shape, fieldKind }: Nameable, name: string): Promise<boolean> {
  if (Object.hasOwn(shape.properties, name)) return true;
  return fieldKind !== undefined && (await customNames(db, accountId, fieldKind)).has(name);
}

/** A function that cuts an entity down to id and these properties; those that it does not have are left out. */
export function chooserOf(paths: readonly Path[]): (shown: ShownEntity) => object {
  if (paths.length === 0) return (shown) => shown;
  const whole = new Set(['id']);
  const parts = new Map<string, Set<string>>();
  for (const [name, part] of paths) {
    if (part === undefined) whole.add(name);
    else parts.set(name, (parts.get(name) ?? new Set<string>()).add(part));
  }
  return (shown) => {
    const chosen = chooseOf(shown, whole);
    for (const [name, of] of parts) {
      const value: unknown = Object.hasOwn(shown, name) ? shown[name as keyof ShownEntity] : undefined;
      if (value === undefined || whole.has(name)) continue;
      const isEntity = typeof value === 'object' && value !== null && !Array.isArray(value);
      chosen[name] = isEntity ? chooseOf(value, of) : value;
    }
    return chosen;
  };
}

function chooseOf(from: object, names: ReadonlySet<string>): Record<string, unknown> {
  const chosen: Record<string, unknown> = {};
  for (const name of names) if (Object.hasOwn(from, name)) chosen[name] = from[name as keyof typeof from];
  return chosen;
}
