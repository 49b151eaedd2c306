/** Schemas that callers declare do not hold the event loop, whatever they are: `TEST_SCHEMAS=10000` tries more of them. */
import t, { type Test } from 'tap';
import { devices } from '../firmware/fleet.ts';
import { dice } from '../support/dice.ts';
import { feel } from '../support/feel.ts';
import { type Service, startService } from '../support/service.ts';

const rounds = Number(process.env.TEST_SCHEMAS ?? 200);
/** Milliseconds of work in one turn of the event loop, and of the thread for one schema and one payload. */
const longest = 20;
const longestCheck = 3000;
/** Bytes of a schema; of payloads, about: some are refused, as checking them might take long. */
const schemaBytes = 16 * 1024;
const sizes = [60_000, 6000];

type Schema = Record<string, unknown>;

let service: Service;
let device: { id: string } | undefined;
let templatePath: string;

t.before(async () => {
  const env = { SLIPWAY_COMMANDS_PER_DEVICE: '10000', SLIPWAY_COMMAND_BYTES_PER_ACCOUNT: '0' };
  service = await startService(t, { env });
  const { id } = await service.template();
  templatePath = `/api/v1/devices/templates/${id}`;
  [device] = await devices(service, id, 1);
});

/** Declares a command with this schema and sends one. @returns both statuses, milliseconds of the longest turn, and of all threads. */
async function attempt(schema: object, payload: unknown) {
  const { deviceTemplate } = await service.ok('GET', templatePath);
  // Another text each time: the thread keeps what it has compiled.
  const commands = [{ name: 'x', title: 'x', parameters: { ...schema, title: service.unique('T') } }];
  const before = process.cpuUsage();
  const { result, held } = await feel(async () => {
    const request = { headers: { etag: deviceTemplate.version }, body: { commands } };
    const declared = await service.http('PUT', templatePath, request);
    if (declared.status !== 200) return [declared.status];
    const body = { name: 'x', payload };
    return [200, (await service.http('POST', `/api/v1/devices/${device?.id}/commands`, { body })).status];
  });
  const { user, system } = process.cpuUsage(before);
  return { statuses: result, held, worked: (user + system) / 1000 };
}

/** Nobody waits longer than the limit; a turn that was long once, for another reason, is short the next time. */
async function demandQuick(t: Test, schema: object, payload: unknown): Promise<number[]> {
  let [least, work] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  let statuses: number[] = [];
  for (let tries = 0; tries < 3 && (least >= longest || work >= longestCheck); tries += 1) {
    const tried = await attempt(schema, payload);
    [least, work, statuses] = [Math.min(least, tried.held), Math.min(work, tried.worked), tried.statuses];
  }
  const isAnswered = statuses.every((status) => status === 200 || status === 400);
  if (least >= longest || work >= longestCheck || !isAnswered)
    t.fail(`${statuses}, ${least} ms in one turn, ${work} ms in all: ${JSON.stringify(schema).slice(0, 2000)}`);
  return statuses;
}

/** As many of these as a schema or a payload may have. */
function fill<T>(bytes: number, make: (n: number) => T): T[] {
  const all: T[] = [];
  for (let left = bytes; ; ) {
    const one = make(all.length);
    left -= JSON.stringify(one).length + 1;
    if (left < 0) return all;
    all.push(one);
  }
}

const many = (make: (n: number) => object) => fill(schemaBytes - 300, make);
const items = (schema: object) => ({ type: 'object', properties: { a: { items: schema } } });
const numbers = (bytes: number) => ({ a: fill(bytes, (n) => -n) });
const objects = (bytes: number) => ({ a: fill(bytes, (n) => ({ a: -n })) });
const names = (bytes: number) => Object.fromEntries(fill(bytes, (n) => [`name ${n}`, n]));
const texts = (part: string) => (bytes: number) => ({ a: part.repeat(bytes / part.length) });
const doubled = (target: string) => ({ allOf: [{ $ref: target }, { $ref: target }] });
const tower = (height: number) =>
  Object.fromEntries(Array.from({ length: height + 1 }, (_, n) => [`d${n}`, n ? doubled(`#/$defs/d${n - 1}`) : {}]));
const nested = (depth: number): object => (depth === 0 ? { type: 'null' } : { anyOf: [nested(depth - 1)] });

/** The longest schemas of each kind, and what takes longest to check with them. */
const large: Array<[what: string, schema: object, payloads: Array<(bytes: number) => object>]> = [
  ['alternatives', items({ anyOf: many(() => ({ type: 'null' })) }), [numbers, objects]],
  ['exactly one', items({ oneOf: many((n) => ({ const: n })) }), [numbers]],
  ['objects to compare with', items({ enum: many((n) => ({ a: n })) }), [objects]],
  ['conditions', items({ allOf: many(() => ({ if: { type: 'null' }, else: { minLength: 1 } })) }), [numbers]],
  ['searches', { type: 'object', properties: { a: { not: { anyOf: many(() => ({ contains: false })) } } } }, [numbers]],
  ['names', { type: 'object', allOf: many(() => ({ propertyNames: { maxLength: 9 } })) }, [names]],
  ['lengths', { type: 'object', additionalProperties: { allOf: many(() => ({ minLength: 1 })) } }, [texts('x')]],
  ...['email', 'uri', 'url', 'uri-template', 'regex', 'date-time'].map((format): (typeof large)[number] => [
    format,
    { type: 'object', additionalProperties: { allOf: many(() => ({ format })) } },
    [texts('x@'), texts('http://::')],
  ]),
  [
    'what is left',
    { type: 'object', anyOf: many((n) => ({ properties: { [n]: {} } })), unevaluatedProperties: false },
    [names],
  ],
  [
    'properties',
    { type: 'object', properties: Object.fromEntries(many((n) => [`p${n}`, { type: 'integer' }]) as never) },
    [names],
  ],
  ['no two alike', items({}), [numbers]],
  ['no two objects alike', { type: 'object', properties: { a: { uniqueItems: true } } }, [numbers, objects]],
  ['a tower', { ...items({ $ref: '#/$defs/d10' }), $defs: tower(10) }, [numbers]],
  ['a high tower', { ...items({ $ref: '#/$defs/d60' }), $defs: tower(60) }, [numbers]],
  ['depth', { type: 'object', properties: { a: nested(10) } }, [numbers]],
];

t.test('the longest schemas of each kind hold nobody', async (t) => {
  for (const [what, schema, payloads] of large)
    for (const payload of payloads)
      for (const bytes of sizes) t.comment(`${what}, ${bytes}: ${await demandQuick(t, schema, payload(bytes))}`);
});

const words = ['a', 'b', 'a/b', 'é', '__proto_', 'length', 'a'.repeat(50)];
const types = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
const formats = ['date-time', 'email', 'uri', 'ipv4', 'uuid', 'regex', 'nothing'];

/** Random schemas, nearly all of which are some, and random values. */
class Random {
  readonly roll: () => number;

  constructor(seed: number) {
    this.roll = dice(seed);
  }

  below(count: number): number {
    return Math.floor(this.roll() * count);
  }

  one<T>(all: readonly T[]): T {
    return all[this.below(all.length)] as T;
  }

  some<T>(most: number, make: () => T): T[] {
    return Array.from({ length: this.below(most + 1) }, make);
  }

  named<T>(make: () => T): Record<string, T> {
    return Object.fromEntries(this.some(6, () => [this.one(words), make()] as const));
  }

  value(depth = 3): unknown {
    if (depth > 0 && this.roll() < 0.3) return this.some(this.one([3, 3, 200]), () => this.value(depth - 1));
    if (depth > 0 && this.roll() < 0.4) return this.named(() => this.value(depth - 1));
    return this.one([null, true, false, 0, -1, 1.5, 1e300, 'a', 'x'.repeat(this.below(100)), '2026-01-01T00:00:00Z']);
  }

  schema(depth: number): unknown {
    if (this.roll() < 0.05) return this.roll() < 0.9;
    if (this.roll() < 0.005) return this.value(1);
    const within = () => this.schema(depth - 1);
    const any: Array<() => Schema> = [
      () => ({ type: this.one(types) }),
      () => ({ type: [...new Set([this.one(types), ...this.some(2, () => this.one(types))])] }),
      () => ({ enum: [0, ...this.some(20, () => this.value(2))] }),
      () => ({ const: this.value(2) }),
      () => ({ minimum: this.below(9) - 4, exclusiveMaximum: this.below(9) }),
      () => ({ multipleOf: this.one([1, 0.1, 7, 1e-9]) }),
      () => ({ minLength: this.below(5), maxLength: this.below(99) }),
      () => ({ format: this.one(formats) }),
      () => ({ required: this.some(3, () => this.one(words)), minProperties: this.below(3) }),
      () => ({ uniqueItems: this.roll() < 0.8, maxItems: this.below(300) }),
      () => ({ default: this.value(1), description: 'x'.repeat(this.below(200)) }),
      () => ({ $ref: this.one(['#/$defs/a', '#/$defs/b', '#/properties/a']) }),
      () => ({ $ref: this.one(['#', 'other', '#/$defs/%zz', 'https://example.com']) }),
      () => ({ [this.one(['pattern', '$id', '$async', 'nullable', 'discriminator', 'id'])]: this.value(1) }),
    ];
    const deep: Array<() => Schema> = [
      () => ({ properties: this.named(within), additionalProperties: within() }),
      () => ({
        [this.one(['items', 'contains', 'not', 'propertyNames', 'unevaluatedItems', 'unevaluatedProperties'])]:
          within(),
      }),
      () => ({ [this.one(['allOf', 'anyOf', 'oneOf', 'prefixItems'])]: [within(), ...this.some(8, within)] }),
      () => ({ [this.one(['dependentSchemas', 'properties'])]: this.named(within) }),
      () => Object.fromEntries(['if', 'then', 'else'].map((keyword) => [keyword, within()])),
    ];
    // Seldom one of the last three: they are often refused.
    const usual = this.roll() < 0.01 ? any : any.slice(0, -3);
    const parts = this.some(3, () => this.one(depth > 0 ? [...usual, ...deep, ...deep] : usual)());
    return Object.assign({}, ...parts);
  }

  /** One that is not too long. */
  declared(): Schema {
    for (;;) {
      const schema = this.object();
      if (JSON.stringify(schema).length < schemaBytes - 100) return schema;
    }
  }

  object(): Schema {
    const depth = 1 + this.below(5);
    return {
      ...(this.schema(depth) as object),
      type: 'object',
      properties: this.named(() => this.schema(depth)),
      ...(this.roll() < 0.3 && { $defs: { a: this.schema(2), b: this.schema(2) } }),
    };
  }
}

t.test(`${rounds} random schemas hold nobody`, async (t) => {
  const seed = Number(process.env.TEST_SEED ?? 1);
  const random = new Random(seed);
  const counts: Record<string, number> = {};
  for (let round = 0; round < rounds; round += 1) {
    const statuses = await demandQuick(
      t,
      random.declared(),
      random.named(() => random.value()),
    );
    counts[`${statuses}`] = (counts[`${statuses}`] ?? 0) + 1;
  }
  t.comment(JSON.stringify(counts));
  t.ok((counts['200,200'] ?? 0) + (counts['200,400'] ?? 0) > rounds / 3, 'most can be declared');
});
