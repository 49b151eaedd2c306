import fc from 'fast-check';
import type { Point } from '../../db/messages/store.ts';
import { readLogEntry } from '../../src/messages/payload/log-entry.ts';
import { readPoints } from '../../src/messages/payload/payload.ts';
import { areSeconds } from '../../src/messages/payload/reading.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const now = Date.parse('2026-03-01T12:00:00.000Z');
const years = { first: Date.parse('0000-01-01T00:00:00.000Z'), last: Date.parse('9999-12-31T23:59:59.999Z') };

const read = (payload: string | Buffer) => readPoints(Buffer.from(payload as string), now);
const point = (
  category: string,
  numericValue: number | null,
  stringValue: string | null = null,
  time = now,
): Point => ({
  time,
  category,
  numericValue,
  stringValue,
});

t.test('CSV rows become points', async (t) => {
  t.strictSame(read('1700000000000,temperature,21.5,'), {
    points: [point('temperature', 21.5, null, 1_700_000_000_000)],
  });
  t.strictSame(read('2026-01-31T09:30:00.000Z,t,-1e3,note'), {
    points: [point('t', -1000, 'note', Date.parse('2026-01-31T09:30:00.000Z'))],
  });
  t.strictSame(read(',t,1'), { points: [point('t', 1)] }, 'the last comma may be missing');
  t.strictSame(read(',,1,'), { points: [point('', 1)] });
  t.strictSame(
    read('\t, t ,  .5\t,  a, "b",c  '),
    { points: [point('t', 0.5, 'a, "b",c')] },
    'no quoting, blanks trimmed',
  );
  t.strictSame(read('\n,a,1,\r\n   \r\n,b,,x\n'), { points: [point('a', 1), point('b', null, 'x')] });
  t.strictSame(read(',a,-0,'), { points: [point('a', 0)] });
  t.strictSame(read(`,${'c'.repeat(1024)},1,${'é'.repeat(512)}`), {
    points: [point('c'.repeat(1024), 1, 'é'.repeat(512))],
  });
});

t.test('one bad row refuses the whole payload, and the reason names it', async (t) => {
  const bad = {
    'yesterday,t,1,': /row 2: .*timestamp/,
    '2026-02-30T00:00:00Z,t,1,': /timestamp/,
    '99999999999999999,t,1,': /timestamp/,
    '9999999999999999,t,1,': /row 2: the time is not in the years 0000 to 9999/,
    '253402300800000,t,1,': /years 0000 to 9999/,
    '-62167219200001,t,1,': /years 0000 to 9999/,
    '0000-01-01T00:00:00+01:00,t,1,': /years 0000 to 9999/,
    ',t,0x10,': /number/,
    ',t,1e999,': /number/,
    ',t,NaN,': /number/,
    ',t,"1",': /number/,
    ',t,,': /neither/,
    ',t': /neither/,
    'only text': /^CSV: row 2: it has no comma.* JSON: .* Float: it has \d+ bytes/,
    [`,${'c'.repeat(1025)},1,`]: /1024 bytes/,
    [`,t,,${'é'.repeat(513)}`]: /1024 bytes/,
  };
  for (const [row, reason] of Object.entries(bad))
    t.match(read(`,good,1,\n${row}\n,good,2,`), { reason }, row.slice(0, 40));
  t.match(read(''), { reason: /empty/ });
  t.match(read(' \n\n'), { reason: /empty/ });
});

t.test('the years 0000 to 9999 are stored, which ranges can ask for, in every form that has a time', async (t) => {
  const { first, last } = years;
  // SenML takes what is before 1978 as relative.
  for (const time of [first, last])
    for (const payload of [
      `${time},a,1,`,
      JSON.stringify([{ n: 'a', v: 1, t: time / 1000 }]),
      JSON.stringify({ e: [{ n: 'a', v: 1 }], bt: time / 1000 }),
    ])
      if (payload.includes(',a,') || time > 0) t.match(read(payload), { points: [{ time }] }, payload);
  for (const seconds of [(last + 1) / 1000, (first - now - 1) / 1000]) {
    t.match(read(JSON.stringify([{ n: 'a', v: 1, t: seconds }])), {
      reason: /SenML: record 1: the time is not in the years/,
    });
    t.match(read(JSON.stringify({ e: [{ n: 'a', v: 1, t: seconds }] })), {
      reason: /SenML: entry 1: the time is not in the years/,
    });
  }
  const log = (sourceTimestamp: number) => readLogEntry(Buffer.from(JSON.stringify({ sourceTimestamp })), now);
  t.match(log(last + 1), { time: now, custom: { sourceTimestamp: last + 1 } }, 'of a log entry it is kept as it came');
  t.match(log(last), { time: last, custom: null });
});

t.test('every list of points that CSV can hold is read back from it', async (t) => {
  const unit = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 1 });
  const text = fc
    .string({ unit, maxLength: 40 })
    .filter((value) => value === value.replace(/^[ \t]+|[ \t]+$/g, '') && !/[\n\r\ufeff]|\0$/.test(value));
  const points = fc.array(
    fc.record(
      {
        time: fc.integer({ min: years.first, max: years.last }).filter((time) => !areSeconds(time)),
        category: text.filter((value) => !value.includes(',')),
        numericValue: fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => (number === 0 ? 0 : number)),
        stringValue: fc.option(text.filter((value) => value !== '')),
      },
      { noNullPrototype: true },
    ),
    { minLength: 1 },
  );
  fc.assert(
    fc.property(points, fc.constantFrom('\n', '\r\n'), (written, feed) => {
      const csv = written.map((p) => `${p.time},${p.category},${p.numericValue},${p.stringValue ?? ''}`).join(feed);
      t.strictSame(read(csv), { points: written });
    }),
  );
});

t.test('any bytes at all are read or refused, and what is read can be stored', async (t) => {
  const payload = fc.oneof(
    fc.uint8Array({ maxLength: 64 }),
    fc.json().map((text) => Buffer.from(text)),
    fc.stringMatching(/^[-0-9eE.,:TZ \n]{0,40}$/).map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(payload, (bytes) => {
      const reading = readPoints(Buffer.from(bytes), now);
      if ('reason' in reading) return;
      if (reading.points.length === 0) t.fail('a reading without points');
      for (const { time, numericValue, stringValue } of reading.points) {
        if (!Number.isInteger(time) || time < years.first || time > years.last) t.fail(`time ${time}`);
        if (numericValue !== null && !Number.isFinite(numericValue)) t.fail(`number ${numericValue}`);
        if (numericValue === null && stringValue === null) t.fail('no value');
      }
    }),
    { numRuns: 1000 },
  );
});

t.test('a long run of blanks costs no more than its length', async (t) => {
  const started = performance.now();
  read(`,t,1,a${' '.repeat(130_000)}b`);
  // Going back over them for each blank takes some ten seconds.
  t.ok(performance.now() - started < 3000);
});

t.test('JSON: a number, or an object of values by category', async (t) => {
  t.strictSame(read('21.5'), { points: [point('', 21.5)] });
  t.strictSame(read(' 3\n'), { points: [point('', 3)] });
  t.strictSame(read('{"t": 21.5, "door": "open", "on": true, "off": false, "none": null}'), {
    points: [point('t', 21.5), point('door', null, 'open'), point('on', 1), point('off', 0)],
  });
  t.strictSame(read('{"__proto__": 1}'), { points: [point('__proto__', 1)] });
  for (const json of ['{}', '{"a":null}', '{"a":[1]}', '{"a":{"b":1}}', '"text"', 'false', '1e999', '{"a":1e999}'])
    t.match(read(json), { reason: /JSON|CSV/ }, json);
  t.match(read('{"a":"\\ud800"}'), { reason: /half a character/ });
});

t.test('SenML, the old form', async (t) => {
  const old = {
    bn: 'dev/',
    bt: 1_700_000_000,
    bu: 'C',
    e: [
      { n: 'a', v: 1.5, t: 1.25 },
      { n: 'b', sv: 'x' },
      { n: 'c', bv: true },
    ],
  };
  t.strictSame(read(JSON.stringify(old)), {
    points: [
      point('dev/a', 1.5, null, 1_700_000_001_250),
      point('dev/b', null, 'x', 1_700_000_000_000),
      point('dev/c', 1, null, 1_700_000_000_000),
    ],
  });
  t.strictSame(read('{"e":[{"n":"a","v":1,"t":-10}]}'), { points: [point('a', 1, null, now - 10_000)] });
  for (const e of [
    [],
    [{ n: 'a' }],
    [{ n: 1, v: 1 }],
    [{ n: 'a', v: '1' }],
    [{ n: 'a', bv: 1 }],
    [{ n: 'a', v: 1 }, 5],
  ])
    t.match(read(JSON.stringify({ e })), { reason: /SenML/ }, JSON.stringify(e));
});

t.test('SenML, the records of RFC 8428', async (t) => {
  const records = [
    { bn: 'urn:dev:', bt: 1_700_000_000, bu: 'A', bver: 5, n: 'voltage', u: 'V', v: 120.1 },
    { n: 'current', t: -5, v: 1.2 },
    { bt: 0, bv: 100, n: 'offset', t: -1, v: 1 },
    { n: 'open', vb: false },
    { n: 'label', vs: 'x' },
    { n: 'data', vd: 'aGk' },
    { n: 'energy', s: 5 },
  ];
  t.strictSame(read(JSON.stringify(records)), {
    points: [
      point('urn:dev:voltage', 120.1, null, 1_700_000_000_000),
      point('urn:dev:current', 1.2, null, 1_699_999_995_000),
      point('urn:dev:offset', 101, null, now - 1000),
      point('urn:dev:open', 0),
      point('urn:dev:label', null, 'x'),
      point('urn:dev:data', null, 'aGk'),
    ],
  });
  for (const bad of [
    [],
    [{ n: 'a' }],
    [{ bn: 'a' }],
    [
      { n: 'a', v: 1 },
      { n: 'b', v: null },
    ],
    [1],
  ])
    t.match(read(JSON.stringify(bad)), { reason: /SenML/ }, JSON.stringify(bad));
});

t.test('four bytes are a float only when they are no text form', async (t) => {
  const float = Buffer.alloc(4);
  float.writeFloatLE(23.5);
  t.strictSame(readPoints(float, now), { points: [point('', 23.5)] });
  t.strictSame(read('1.50'), { points: [point('', 1.5)] });
  t.strictSame(read(',,1,'), { points: [point('', 1)] });
  t.match(read('abcd'), { points: [{ category: '', stringValue: null }] }, 'text that is no form is a float');
  for (const number of [Number.NaN, Number.POSITIVE_INFINITY]) {
    float.writeFloatLE(number);
    t.match(readPoints(float, now), { reason: /not finite/ });
  }
  t.match(readPoints(Buffer.from([0xff, 0xfe, 0xfd]), now), { reason: /UTF-8/ });
  t.match(readPoints(Buffer.alloc(5, 0xff), now), { reason: /UTF-8/ });
});

const readLog = (payload: unknown) =>
  readLogEntry(Buffer.from(typeof payload === 'string' ? payload : JSON.stringify(payload)), now);
const entry = { time: now, severity: 'info', message: null, code: null, details: null, tags: [], custom: null };

t.test('a log payload of every shape makes an entry', async (t) => {
  t.strictSame(readLog('pump stopped'), { ...entry, message: 'pump stopped' });
  t.strictSame(readLog('{}'), entry);
  t.strictSame(readLog('[1]'), { ...entry, message: '[1]' });
  t.strictSame(readLog('5'), { ...entry, message: '5' });
  t.strictSame(readLog(''), { ...entry, message: '' });
  t.equal(readLogEntry(Buffer.from([0xff]), now).message, '\ufffd');
  const full = {
    message: 'm',
    details: 'd',
    severity: 'ERROR',
    code: 42,
    tags: ['a', 1],
    sourceTimestamp: 1_700_000_000_000,
  };
  t.strictSame(readLog({ ...full, custom: { pump: 1 }, extra: [2], deviceId: 'another', accountId: 'another' }), {
    time: 1_700_000_000_000,
    severity: 'error',
    message: 'm',
    code: '42',
    codeIsNumber: true,
    details: 'd',
    tags: ['a', '1'],
    custom: { pump: 1, extra: [2] },
  });
  t.strictSame(readLog({ sourceTimestamp: '2026-01-31T09:30:00Z', details: { a: 1 }, tags: 'one' }), {
    ...entry,
    time: Date.parse('2026-01-31T09:30:00Z'),
    details: '{"a":1}',
    tags: ['one'],
  });
  t.match(readLog({ message: '\ud800' }), { message: '\ufffd' });
});

t.test('a NUL at the end, as programs in C send it, and a byte order mark are no part of a text', async (t) => {
  t.strictSame(read('123\0'), { points: [point('', 123)] }, 'and no float of four bytes');
  t.strictSame(read(',temperature,21.5,\0\0'), { points: [point('temperature', 21.5)] });
  t.strictSame(read('{"a":1}\0'), { points: [point('a', 1)] });
  t.strictSame(read('\ufeff{"a":1}'), { points: [point('a', 1)] });
  t.strictSame(readPoints(Buffer.alloc(4), now), { points: [point('', 0)] }, 'a float of zero');
  const failed = { message: 'failed', severity: 'error' };
  for (const text of [`${JSON.stringify(failed)}\0`, `\ufeff${JSON.stringify(failed)}`])
    t.strictSame(readLog(text), { ...entry, ...failed });
  t.equal(readLog('pump stopped\0').message, 'pump stopped');
});

t.test('a log entry has one of the levels, by any of its names', async (t) => {
  const names = {
    info: 'info',
    informational: 'info',
    warn: 'warn',
    Warning: 'warn',
    lifecycle: 'lifecycle',
    alert: 'alert',
  };
  for (const [name, severity] of Object.entries(names)) t.equal(readLog({ severity: name }).severity, severity);
  t.strictSame(readLog({ severity: 'fatal', sourceTimestamp: 'now', custom: 5 }), {
    ...entry,
    custom: { severity: 'fatal', sourceTimestamp: 'now', custom: 5 },
  });
  t.equal(readLog({ severity: 'toString' }).severity, 'info');
});

t.test('nesting without end is kept as text', async (t) => {
  const deep = `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  t.strictSame(readLog(deep), { ...entry, message: deep });
  t.match(read(deep), { reason: /JSON/ });
});

t.end();
