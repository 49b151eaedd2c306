/** A value as people read it. */
export const number = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
/** Characters of a text that a cell shows. */
const maxShown = 80;

export function readingText(value: number | string, unit = ''): string {
  if (typeof value === 'number') return unit === '' ? number.format(value) : `${number.format(value)} ${unit}`;
  return value.length > maxShown ? `${value.slice(0, maxShown)}…` : value;
}
