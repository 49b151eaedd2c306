/** JSON Schemas that callers declare (2020-12), compiled. It takes too long for the event loop: `worker.ts` does it in a thread. */
import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import formats, { type FormatName } from 'ajv-formats';
import { sizedCache } from '../../../db/sqlite/cache.ts';
import { type ErrorDetail, invalid, PlatformError } from '../../core/errors.ts';
import { detailsOf } from '../../http/validation.ts';
import { isQuick, type Weight, weightOf } from './weight.ts';

/** What is asked: whether `schema` is one, or whether `value` fits it. Both are JSON; paths of details begin with `place`. */
export interface SchemaQuestion {
  schema: string;
  value?: string;
  place: string;
}
/** What is wrong. */
export type SchemaAnswer = ErrorDetail[];

interface Compiled {
  weight: Weight;
  fits: ValidateFunction;
}

/** Characters of the schemas that are kept compiled. What is compiled takes thirty times as much. */
const keptCharacters = 1024 * 1024;

/** Formats that are checked: those of 2020-12. The library's `url` takes seconds for a long text; each of these is quick. */
const checked: FormatName[] = [
  ...(['date', 'time', 'date-time', 'duration', 'uri', 'uri-reference', 'uri-template', 'email', 'hostname'] as const),
  ...(['ipv4', 'ipv6', 'uuid', 'json-pointer', 'relative-json-pointer', 'regex'] as const),
];

const options = { strict: false, allErrors: false, verbose: true, logger: false, addUsedSchema: false } as const;
const dialect = 'https://json-schema.org/draft/2020-12/schema';
const kept = sizedCache<string, Compiled & { size: number }>(keptCharacters, ({ size }) => size);
let isSchema: ValidateFunction | undefined;

/** The answer to a question; the same schema is compiled once. */
export function checkSchema({ schema: text, value, place }: SchemaQuestion): SchemaAnswer {
  try {
    const schema = JSON.parse(text) as object;
    if (value === undefined) demandSchema(schema, place);
    const { fits, weight } = compiled(text, schema, place);
    if (value === undefined) return [];
    const given = JSON.parse(value) as unknown;
    if (!isQuick(weight, given))
      throw invalid(place, 'has too many values to check them with what the command declares');
    return fits(given) ? [] : toldFrom(fits.errors, place);
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
    return error.details;
  }
}

function demandSchema(schema: object, place: string): void {
  isSchema ??= withFormats(new Ajv2020(options)).getSchema(dialect) as ValidateFunction;
  if (!isSchema(schema)) throw new PlatformError('invalid', { details: toldFrom(isSchema.errors, place) });
}

function compiled(text: string, schema: object, place: string): Compiled {
  const known = kept.get(text);
  if (known) return known;
  const weight = weightOf(schema, place);
  let fits: ValidateFunction;
  try {
    // One for each: an instance keeps all that it has ever compiled.
    fits = withFormats(new Ajv2020({ ...options, meta: false, validateSchema: false, inlineRefs: false })).compile(
      schema,
    );
  } catch (error) {
    throw invalid(place, `cannot be read: ${(error as Error).message.slice(0, 200)}`);
  }
  const made = { weight, fits, size: text.length };
  kept.set(text, made);
  return made;
}

function withFormats(ajv: Ajv2020): Ajv2020 {
  formats.default(ajv, checked);
  return ajv;
}

/** The first thing that is wrong; of a value that fits none of several schemas, the one that it was meant for. */
function toldFrom(errors: readonly ErrorObject[] | null | undefined, place: string): ErrorDetail[] {
  const inPlace = (errors ?? []).map((error) => ({ ...error, instancePath: `/${place}${error.instancePath}` }));
  return detailsOf(inPlace, place);
}
