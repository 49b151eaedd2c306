/** Texts that SQLite and JSON would not give back as they came. */

/** The error for a text that cannot be stored unchanged. */
export const unstorable = 'must not contain NUL, unpaired surrogates or deep nesting';

/** Levels of a body; no endpoint needs more than a few, and what is nested deeply is expensive to check. */
const deepest = 32;

/** Where such a text is in a body, if there is one: the path of the property. */
export function findUnstorable(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string') return isUnstorable(value) ? '' : undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  // A body can have a million values: the path is made on the way back only, and lists have no names to look at.
  const isList = Array.isArray(value);
  const names = isList ? value.keys() : Object.keys(value);
  for (const name of names) {
    if (depth === deepest || (!isList && isUnstorable(name as string))) return String(name);
    const inner = (value as Record<string | number, unknown>)[name];
    const found = typeof inner === 'string' || typeof inner === 'object' ? findUnstorable(inner, depth + 1) : undefined;
    if (found !== undefined) return found === '' ? String(name) : `${name}.${found}`;
  }
  return undefined;
}

function isUnstorable(text: string): boolean {
  return text.includes('\0') || !text.isWellFormed();
}
