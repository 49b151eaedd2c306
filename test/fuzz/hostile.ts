/** Values, texts and bytes that no honest client sends; every suite of this folder mixes them into valid ones. */
import fc, { type Arbitrary } from 'fast-check';

/** Names and values, of a query or of headers, in order. */
export type Pairs = Array<[string, string]>;

const nest = (depth: number) => {
  let value: unknown = 1;
  for (let level = 0; level < depth; level += 1) value = level % 2 ? { a: value } : [value];
  return value;
};

/** Texts: what code, databases, paths and logs trip over. */
export const hostileText: Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    ...[
      '',
      ' ',
      '\0',
      'a\0b',
      '\ud800',
      '\udfff\ud800',
      'a\ud83d',
      '\u202e',
      '\ufeff',
      '\u2028',
      '\r\n',
      'İ',
      'ß',
      '𝒳',
    ],
    ...['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'null', 'undefined', 'NaN', '-0'],
    ...['Infinity', '1e999', '-1', '0x10', '９', '9007199254740993', '99999999999999999999999999', '1e-400', 'true'],
    ...["' OR 1=1 --", '%', '_', '%%', '\\', '"', '*', '**', '(', 'NEAR(', 'a AND', '^a', '[', '../..', '/', '//'],
    ...['<script>', '{{7*7}}', '%00', '%ff', '%zz', '%', '%2e%2e%2f', '=1+1', '0000-01-01', '9999-12-31T23:59:60Z'],
    ...['-271821-04-20T00:00:00Z', '+275760-09-13T00:00:00.001Z', '2026-02-30', '2026-01-01T00:00:00+99:99', 'W/"1"'],
    ...[
      '00000000-0000-0000-0000-000000000000',
      'ffffffff-ffff-ffff-ffff-ffffffffffff',
      '#',
      '+',
      '$SYS/#',
      '$share/a/#',
    ],
  ),
  fc.string({ unit: 'binary', maxLength: 20 }),
  fc
    .constantFrom('x', '\u00e9', '\0', '%', '(', '*', '+/')
    .chain((unit) => fc.constantFrom(256, 300, 5000, 70_000).map((length) => unit.repeat(length))),
);

/** Values of any type. */
export const hostileValue: Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    -0,
    -1,
    1.5,
    2 ** 31,
    2 ** 53,
    -(2 ** 53),
    1e21,
    1e308,
    -1e308,
    5e-324,
  ),
  { weight: 3, arbitrary: hostileText },
  fc.constantFrom<unknown>(
    [],
    {},
    [[]],
    [null],
    { a: null },
    { length: 1e9 },
    { toString: 1, valueOf: 1 },
    { toJSON: 1 },
  ),
  fc.constantFrom(50, 1000).map(nest),
  fc.constant(Array.from({ length: 5000 }, (_, n) => n)),
  fc.constant(Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`k${n}`, n]))),
  fc.jsonValue({ maxDepth: 3 }),
);

/** One change to bytes; places are shares of the length, in ten thousandths. */
export interface Spoil {
  at: number;
  change: 'cut' | 'drop' | 'flip' | 'set' | 'insert' | 'repeat';
  /** The bit, the byte, or which of `inserts`. */
  by: number;
}

const inserts = ['00', 'ff', '7f', '80', 'c080', 'eda080', 'efbbbf', 'ffffffff7f', '22', '5c', '2c', '0a', '7b', '5d'];

export const spoils: Arbitrary<Spoil[]> = fc.array(
  fc.record({
    at: fc.nat(9999),
    change: fc.constantFrom('cut', 'drop', 'flip', 'set', 'insert', 'repeat'),
    by: fc.nat(255),
  }) as Arbitrary<Spoil>,
  { minLength: 1, maxLength: 3 },
);

/** The bytes with these changes, one after the other. */
export function spoil(bytes: Buffer, changes: readonly Spoil[]): Buffer {
  return changes.reduce(spoilOnce, bytes);
}

function spoilOnce(bytes: Buffer, { at, change, by }: Spoil): Buffer {
  const place = Math.floor((at / 10_000) * bytes.length);
  const [before, after] = [bytes.subarray(0, place), bytes.subarray(place)];
  if (change === 'cut') return before;
  if (change === 'drop') return Buffer.concat([before, after.subarray(1)]);
  if (change === 'insert')
    return Buffer.concat([before, Buffer.from(inserts[by % inserts.length] ?? '', 'hex'), after]);
  if (change === 'repeat') return Buffer.concat([before, after, after]);
  const changed = Buffer.from(bytes);
  if (place < changed.length) changed[place] = change === 'set' ? by : (bytes[place] ?? 0) ^ (1 << (by % 8));
  return changed;
}

/** JSON that is spoilt as a text: names that come twice or are dangerous, depth, size, numbers that no double holds. */
export const spoiltJson = (json: Arbitrary<string>): Arbitrary<string> =>
  fc.tuple(json, fc.constantFrom(...textual)).map(([text, change]) => change(text));

const first = (names: string) => (text: string) => text.replace(/^\{/, `{${names},`).replace(/,\}$/, '}');
const textual: Array<(text: string) => string> = [
  first('"__proto__":{"isAdmin":true}'),
  first('"constructor":{"prototype":{"isAdmin":true}}'),
  first('"accountId":"x","accountId":null,"name":1,"name":"y"'),
  first(`"deep":${'['.repeat(1000)}${']'.repeat(1000)}`),
  first(`"big":"${'x'.repeat(1_048_000)}"`),
  first(`"bigger":"${'x'.repeat(1_049_000)}"`),
  first('"number":1e999,"other":-0.0e-999'),
  (text) => text.replace(/:("[^"]*"|\d+)/, ':1e400'),
  (text) => text.replace(/:("[^"]*"|\d+)/, ':123456789012345678901234567890'),
  (text) => text.replace(/:"/, ':"\\ud800'),
  (text) => text.replace(/:"/, ':"\\u0000'),
  (text) => `${'['.repeat(1000)}${text}${']'.repeat(1000)}`,
  (text) => `${'{"a":'.repeat(1000)}${text}${'}'.repeat(1000)}`,
  (text) => '['.repeat(1_000_000 - text.length) + text,
  (text) => `\ufeff${text}`,
  (text) => `${text}${text}`,
  (text) => `[${text}]`,
  (text) => text.replaceAll('"', "'"),
  () => 'null',
  () => '"text"',
  () => '',
  () => ' ',
];
