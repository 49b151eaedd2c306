/** What devices and factories send: points, log entries, fields, searches and rows of jobs, right and spoilt. */
import fc, { type Arbitrary } from 'fast-check';
import type { Pairs } from './hostile.ts';
import { hostileText, hostileValue, type Spoil, spoils, spoiltJson } from './hostile.ts';
import type { Draft } from './requests.ts';

const times = fc.constantFrom(
  ...[
    '',
    '2026-01-31T00:00:00Z',
    '1769817600000',
    '1769817600',
    '-1',
    '0',
    '253402300799999',
    '253402300800000',
    '-62167219200001',
  ],
  ...[
    '9e99',
    '2026-02-29',
    '0000-01-01',
    '9999-12-31T23:59:59.999Z',
    '2026-01-31T24:00:00Z',
    '2026-01-31T00:00:00.123456789Z',
    'now',
  ],
);
const numbers = fc.constantFrom(
  '',
  '21.5',
  '-0',
  '1e308',
  '1e309',
  '5e-324',
  'NaN',
  'Infinity',
  '0x1F',
  '1,5',
  ' 7 ',
  '٣',
  '9007199254740993',
);
const categories = fc.oneof(
  fc.constantFrom('', 'temperature', 'a,b', '"a"', 'timestamp', '__proto__', 'constructor'),
  hostileText,
);
const mixed = <T>(usual: Arbitrary<T>): Arbitrary<unknown> =>
  fc.oneof({ weight: 8, arbitrary: usual }, { weight: 1, arbitrary: hostileValue });

const line = fc.tuple(times, categories, numbers, fc.oneof(fc.constantFrom('', 'ok', '"quoted, text"'), hostileText));
const csv = fc
  .tuple(
    fc.constantFrom('', 'timestamp,category,numericValue,stringValue\n', '\ufeff', 'category,timestamp\n', '\n\n'),
    fc.array(
      line.map((cells) => cells.join(',')),
      { maxLength: 12 },
    ),
    fc.constantFrom('\n', '\r\n', '\r', '\n\n'),
  )
  .map(([head, lines, end]) => head + lines.join(end));
const asJson = (value: Arbitrary<unknown>): Arbitrary<string> => {
  const json = value.map((one) => JSON.stringify(one) ?? '');
  return fc.oneof({ weight: 6, arbitrary: json }, { weight: 1, arbitrary: spoiltJson(json) });
};
const object = (model: Record<string, Arbitrary<unknown>>): Arbitrary<object> =>
  fc.record(Object.fromEntries(Object.entries(model).map(([name, one]) => [name, mixed(one)])), { requiredKeys: [] });

const number = fc.oneof(fc.double(), fc.constantFrom(0, 1e308, -1e308, 2 ** 53, 1769817600, 268435456));
const senml = fc.array(
  object({
    ...{ bn: categories, bt: number, bv: number, bs: number, bver: fc.constantFrom(5, 10, 11), bu: fc.constant('Cel') },
    ...{
      n: categories,
      t: number,
      v: number,
      vs: hostileText,
      vb: fc.boolean(),
      vd: fc.constant('3q2-7w=='),
      s: number,
    },
    ...{ u: fc.constant('Cel'), ut: number, must_: fc.constant(1) },
  }),
  { maxLength: 6 },
);
const objects = fc.dictionary(categories, mixed(fc.oneof(number, fc.boolean(), hostileText)), { maxKeys: 6 });

const severities = fc.constantFrom('debug', 'info', 'warning', 'lifecycle', 'ERROR', 'fatal', '');
const entry = object({
  message: hostileText,
  severity: severities,
  code: fc.oneof(number, hostileText),
  details: hostileValue,
  tags: fc.oneof(fc.array(hostileText, { maxLength: 4 }), hostileText),
  sourceTimestamp: fc.oneof(times, number),
  custom: hostileValue,
  deviceId: fc.constant('«otherDevice»'),
  byService: fc.boolean(),
});

const termFields = fc.constantFrom(
  'deviceId',
  'severity',
  'message',
  'code',
  'details',
  'tags',
  'custom.a',
  'custom.',
  'custom.__proto__',
  'x',
);
const keyed = (names: Arbitrary<string>, value: Arbitrary<unknown>): Arbitrary<object> =>
  fc.tuple(names, value).map(([name, one]) => ({ [name]: one }));
const words = fc.oneof(
  fc.constantFrom('pump', 'pump overheated', '"pump', 'pump*', 'a', 'NEAR(a b)', 'a OR b', '-a', 'é'),
  hostileText,
);
const clause = fc.oneof(
  keyed(fc.constant('term'), keyed(termFields, mixed(words))),
  keyed(
    fc.constant('range'),
    keyed(
      fc.constantFrom('sourceTimestamp', 'received', 'code'),
      object({ gt: times, gte: times, lt: times, lte: times }),
    ),
  ),
  keyed(
    fc.constant('match'),
    keyed(termFields, fc.oneof(words, object({ query: words, operator: fc.constantFrom('or', 'and', 'not') }))),
  ),
  keyed(fc.constantFrom('bool', 'wildcard', '__proto__'), hostileValue),
);
const search = object({
  query: keyed(
    fc.constant('bool'),
    keyed(fc.constantFrom('must', 'must', 'should'), fc.array(mixed(clause), { maxLength: 6 })),
  ),
  size: fc.constantFrom(0, 10, 1000, 1001, -1),
  from: fc.constantFrom(0, 9990, 10_000, 1e9),
  sort: fc.constantFrom<unknown>(['_score'], [{ sourceTimestamp: 'desc' }], [{ received: 'asc' }], [], 'x'),
});

const fields = object({
  state: object({
    ...{ name: hostileText, firmwareVersion: hostileText, latitude: fc.oneof(numbers, number), longitude: number },
    ...{ floor: number, location: hostileText, organizationId: fc.constant('«child»'), purchaseDate: times },
  }),
});

const cell = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('SN 1', 'SN 2', 'x', '"a,b"', '"a""b"', '7') },
  hostileText,
);
const columns = fc.shuffledSubarray([
  'serialNumber',
  'name',
  'template',
  'organization',
  'firmwareVersion',
  'floor',
  'latitude',
  'nothing',
]);
const table = fc
  .tuple(
    columns,
    fc.array(fc.array(cell, { minLength: 1, maxLength: 5 }), { maxLength: 20 }),
    fc.constantFrom('\n', '\r\n', '\r'),
  )
  .map(([head, rows, end]) => [head, ...rows].map((cells) => cells.join(',')).join(end));
const row = object({
  serialNumber: cell,
  name: cell,
  template: fc.constantFrom('«deviceTemplate»', 'x'),
  floor: number,
});
const lines = fc.array(asJson(row), { maxLength: 12 }).map((all) => all.join('\n'));

interface Place {
  method?: string;
  path: string;
  type: string;
  text: Arbitrary<string>;
  query?: Arbitrary<Pairs>;
  device?: true;
}

const range = fc.tuple(times, times).map(
  ([from, to]): Pairs => [
    ['startDateTime', from],
    ['endDateTime', to],
  ],
);
const rollup = fc
  .tuple(
    range,
    fc.constantFrom('1s', '5m', '7m', '1h', '1d', '2w', '3M', '0d', '-1h', '9999999999d', '1y'),
    fc.constantFrom('Europe/Berlin', 'America/Sao_Paulo', 'Pacific/Apia', 'Etc/GMT+12', '../UTC', '+01:00', ''),
    fc.constantFrom('avg', 'min,max,sum,count,first,last', 'median', 'avg,avg'),
    fc.constantFrom<Pairs>(
      [],
      [['fill', 'null']],
      [['format', 'csv']],
      [['groupType', 'category']],
      [['pageSize', '1001']],
    ),
  )
  .map(
    ([span, every, timezone, aggregate, more]): Pairs => [
      ...span,
      ['rollup', every],
      ['timezone', timezone],
      ['aggregate', aggregate],
      ...more,
    ],
  );
const jobQuery = fc.constantFrom<Pairs>(
  [],
  [['template', '«deviceTemplate»']],
  [
    ['template', '«deviceTemplate»'],
    ['organization', '«child»'],
  ],
  [
    ['template', '«deviceTemplate»'],
    ['dryRun', 'true'],
  ],
  [
    ['template', '«deviceTemplate»'],
    ['force', 'true'],
  ],
);

const data = '/api/v4/data/«temperature»';
const publish = '/api/v1/messaging/publish/';
const places: Place[] = [
  { path: data, type: 'text/csv', text: csv },
  { path: data, type: 'application/json', text: asJson(fc.oneof(objects, number, hostileValue)) },
  { path: data, type: 'application/senml+json', text: asJson(senml) },
  {
    path: data,
    type: 'application/octet-stream',
    text: fc.oneof(hostileText, fc.string({ unit: 'binary', maxLength: 8 })),
  },
  { method: 'GET', path: data, type: '', text: fc.constant(''), query: rollup },
  { method: 'GET', path: data, type: '', text: fc.constant(''), query: range },
  {
    path: `${publish}«temperature»`,
    type: 'text/plain',
    text: fc.oneof(csv, asJson(objects), hostileText),
    device: true,
  },
  { path: `${publish}«log»`, type: 'application/json', text: fc.oneof(asJson(entry), hostileText), device: true },
  { path: `${publish}«fields»`, type: 'application/json', text: asJson(fields), device: true },
  {
    path: '/api/v1/devices/«device»/logs',
    type: 'application/json',
    text: asJson(fc.oneof(entry, fc.array(entry, { maxLength: 4 }))),
  },
  { path: '/api/v1/logs/search', type: 'application/json', text: asJson(search) },
  { path: '/api/v1/logs/search', type: 'application/json', text: asJson(search) },
  { path: '/api/v1/provisioning/jobs', type: 'text/csv', text: table, query: jobQuery },
  { path: '/api/v1/provisioning/jobs', type: 'application/x-ndjson', text: lines, query: jobQuery },
  {
    path: '/api/v1/provisioning/jobs',
    type: 'application/json',
    text: asJson(object({ rows: fc.array(row, { maxLength: 8 }) })),
    query: jobQuery,
  },
];

/** What reads back whatever has been stored: it must be readable. */
export const reads: Draft[] = [
  [
    data,
    [
      ['startDateTime', '0000-01-01T00:00:00Z'],
      ['endDateTime', '9999-12-31T23:59:59Z'],
      ['pageSize', '50'],
      ['order', 'desc'],
    ],
  ],
  [
    data,
    [
      ['startDateTime', '0000-01-01T00:00:00Z'],
      ['endDateTime', '9999-12-31T23:59:59Z'],
      ['rollup', '100M'],
      ['aggregate', 'avg,sum,last'],
    ],
  ],
  ['/api/v1/devices/«device»/logs', [['pageSize', '50']]],
  ['/api/v1/devices/«device»', []],
  ['/api/v1/devices/«device»/refusals', []],
].map(([path, query]) => ({
  ...{ method: 'GET', path: path as string, query: query as Pairs, headers: [], caller: 'admin', spoils: [] },
}));

/** One of these, to where it belongs. */
export const payloads: Arbitrary<Draft> = fc.oneof(
  ...places.map(({ method = 'POST', path, type, text, query = fc.constant<Pairs>([]), device }) =>
    fc.record({
      method: fc.constant(method),
      path: fc.constant(path),
      query,
      headers: fc.constant<Pairs>(type ? [['content-type', type]] : []),
      caller: fc.constant(device ? ('device' as const) : ('admin' as const)),
      body: method === 'GET' ? fc.constant(undefined) : text,
      spoils: fc.oneof({ weight: 8, arbitrary: fc.constant<Spoil[]>([]) }, { weight: 1, arbitrary: spoils }),
    }),
  ),
);
