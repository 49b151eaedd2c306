/** Names in sentences: one that is written from right to left must not turn the sentence round. */

/** Letters that are written from right to left, and characters that turn the direction of text. */
const turning =
  /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const isolates = /[\u2066-\u2069]/gu;

/** The text between marks that keep its direction inside; one that turns nothing stays as it is. */
export function isolated(text: string): string {
  return turning.test(text) ? `\u2068${text.replace(isolates, '')}\u2069` : text;
}

const isPlain = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

function isolatedArgument(value: unknown): unknown {
  if (typeof value === 'string') return isolated(value);
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, isolatedArgument(of)]));
}

/** The same texts; those with places for names isolate what they are given. */
export function isolating<T>(texts: T): T {
  if (typeof texts === 'function')
    return ((...given: unknown[]) => isolating(texts(...given.map(isolatedArgument)))) as T;
  if (!isPlain(texts)) return texts;
  return Object.fromEntries(Object.entries(texts).map(([name, of]) => [name, isolating(of)])) as T;
}
