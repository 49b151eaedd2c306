/** Numbers and degrees that come as numbers or as text. */

/** A number, or a text that is one, in degrees as text; undefined if it is not a number or is beyond the limit. */
export function degreesText(value: unknown, limit: number): string | undefined {
  const number = parseNumber(value);
  return number !== undefined && Math.abs(number) <= limit ? String(number) : undefined;
}

/** A finite number, or a text that is one. */
export function parseNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  if (typeof value !== 'string' || !/^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*$/.test(value)) return undefined;
  const number = Number(value);
  return Number.isFinite(number) ? number : undefined;
}
