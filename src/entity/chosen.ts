/** What a list answers of each entity: everything, or the properties that its query names in `fields`. */
import { Type } from 'typebox';
import { invalid } from '../errors.js';
import type { Wire } from './routes.js';

export const fieldsQuery = {
  fields: Type.Optional(
    Type.String({
      description:
        'Comma-separated names of properties: each result has id and these alone. organization.name is one property of what expand adds. Without it results are whole.',
    }),
  ),
};

/** Each name is looked up in each entity of a list. */
const maxNames = 100;

/**
 * Cuts an entity down to id and the properties that `fields` names; properties that an entity does not have are left out.
 * @throws PlatformError 400/106 for more than 100 names.
 */
export function chooserOf(fields: string | undefined): (wire: Wire) => object {
  const paths = (fields ?? '').split(',').flatMap((name) => name.trim() || []);
  if (paths.length === 0) return (wire) => wire;
  if (paths.length > maxNames) throw invalid('fields', `must have at most ${maxNames} names`);
  const whole = new Set(['id']);
  const parts = new Map<string, Set<string>>();
  for (const path of paths) {
    const [name = '', part] = path.split('.', 2);
    if (part === undefined) whole.add(name);
    else parts.set(name, (parts.get(name) ?? new Set<string>()).add(part));
  }
  return (wire) => {
    const chosen = chooseOf(wire, whole);
    for (const [name, of] of parts) {
      const value: unknown = Object.hasOwn(wire, name) ? wire[name as keyof Wire] : undefined;
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
