/** How much work a declared JSON Schema can cause: what it may hold, and a bound of what checking a value with it takes. */
import { invalid } from '../../core/errors.ts';
import { isObject } from '../../http/schema-names.ts';

/** What a check takes at most: `parts` for each value of what is checked, and `pairs` for each two of them. */
export interface Weight {
  parts: number;
  pairs: number;
}

/** Values in a schema, each counted as often as `$ref`s lead to it. One of 16 KiB without them has no more. */
const maxParts = 6000;
/** Steps of one check: they take a few tenths of a second of a thread. */
const maxSteps = 4_000_000;
/** Characters of a text that take as long as a value. */
const charactersOfValue = 32;

type Schema = Record<string, unknown>;

/** Keywords whose value is a schema, and those that hold several: in an array, or by name. */
const single = new Set([
  ...['additionalProperties', 'contains', 'contentSchema', 'if', 'then', 'else', 'items', 'not', 'propertyNames'],
  ...['unevaluatedItems', 'unevaluatedProperties'],
]);
const definitions = ['$defs', 'definitions'];
const several = new Set([
  ...['allOf', 'anyOf', 'oneOf', 'prefixItems', 'properties', 'dependentSchemas', 'dependencies'],
  ...definitions,
]);
/** What only people and forms read. */
const annotations = new Set(['title', 'description', 'default', 'examples', '$comment']);
/** Patterns can take forever; the others give a schema another base, other rules, or a promise as its answer. */
const refused = [
  ...['pattern', 'patternProperties', '$id', '$anchor', '$dynamicRef', '$dynamicAnchor', '$recursiveRef'],
  ...['$recursiveAnchor', '$vocabulary', '$async'],
];
const dialect = /^https:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/;

/**
 * The weight of a schema that is one by the schema of schemas. @throws PlatformError 400/106 with the path, which begins with `place`,
 * for what it may not hold: patterns, a `$ref` to elsewhere or in a circle, too many parts.
 */
export function weightOf(root: unknown, place: string): Weight {
  if (!isObject(root) || `${root.type}` !== 'object') throw invalid(place, 'must be the schema of an object');
  const all = new Map(withParts(root, ''));
  for (const [path, schema] of all) demandAllowed(schema, path, place);
  const known = new Map<string, Weight | 'begun'>();
  const weigh = (path: string): Weight => {
    const weight = known.get(path);
    if (weight === 'begun') throw invalid(place + path, 'contains itself by a $ref');
    if (weight) return weight;
    known.set(path, 'begun');
    const schema = all.get(path) as Schema;
    const sum = { parts: ownParts(schema), pairs: schema.uniqueItems === true ? 1 : 0 };
    const add = (part: string) => {
      const { parts, pairs } = weigh(part);
      sum.parts += parts;
      sum.pairs += pairs;
      if (sum.parts > maxParts) throw invalid(place, `has more than ${maxParts} parts, counting each $ref again`);
    };
    for (const [at] of partsOf(schema)) if (all.has(path + at)) add(path + at);
    if (typeof schema.$ref === 'string') {
      const target = targetOf(schema.$ref);
      if (target === undefined || !all.has(target))
        throw invalid(`${place}${path}/$ref`, 'must lead to a schema in the same schema, such as #/$defs/name');
      add(target);
    }
    known.set(path, sum);
    return sum;
  };
  return weigh('');
}

/** Whether checking `value` takes no more than a few tenths of a second. */
export function isQuick({ parts, pairs }: Weight, value: unknown): boolean {
  const values = countValues(value);
  return values * (parts + pairs * values) <= maxSteps;
}

function demandAllowed(schema: Schema, path: string, place: string): void {
  const name = refused.find((one) => one in schema);
  if (name !== undefined) throw invalid(`${place}${path}/${name}`, 'is not allowed here');
  if ('$schema' in schema && (path !== '' || !dialect.test(String(schema.$schema))))
    throw invalid(`${place}${path}/$schema`, 'must be https://json-schema.org/draft/2020-12/schema, at the top');
}

/** A schema and all within it, with their JSON pointers. */
function* withParts(schema: Schema, path: string): Generator<[path: string, schema: Schema]> {
  yield [path, schema];
  for (const [at, part] of partsOf(schema)) if (isObject(part)) yield* withParts(part, path + at);
}

/** The schemas right in a schema; some are true or false. */
function partsOf(schema: Schema): Array<[path: string, part: unknown]> {
  return Object.entries(schema).flatMap(([keyword, value]): Array<[string, unknown]> => {
    if (single.has(keyword)) return [[`/${keyword}`, value]];
    if (!several.has(keyword)) return [];
    return Object.entries(value as object).map(([name, part]) => [`/${keyword}/${escaped(name)}`, part]);
  });
}

/** What a schema has besides the schemas in it. */
function ownParts(schema: Schema): number {
  const isOwn = (keyword: string) => !single.has(keyword) && !several.has(keyword) && !annotations.has(keyword);
  const others = Object.entries(schema).filter(([keyword]) => isOwn(keyword));
  const inParts = partsOf(schema).filter(([, part]) => !isObject(part));
  return 1 + countValues(others.map(([, value]) => value)) + countValues(inParts.map(([, part]) => part));
}

function countValues(value: unknown): number {
  if (typeof value === 'string') return 1 + value.length / charactersOfValue;
  if (typeof value !== 'object' || value === null) return 1;
  return Object.entries(value).reduce(
    (sum, [name, one]) => sum + name.length / charactersOfValue + countValues(one),
    1,
  );
}

/** The JSON pointer in a `$ref` that leads to the same document. */
function targetOf(ref: string): string | undefined {
  if (!ref.startsWith('#')) return undefined;
  try {
    return decodeURIComponent(ref.slice(1));
  } catch {
    return undefined;
  }
}

function escaped(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
