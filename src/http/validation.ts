/** Turns errors of ajv, JSON.parse and Fastify into details of an error. */
import type { ErrorObject } from 'ajv';
import type { ErrorDetail } from '../core/errors.ts';

/** The part of ajv's errors that Fastify passes on. */
export type Fault = Pick<ErrorObject, 'keyword' | 'instancePath' | 'params' | 'message' | 'parentSchema' | 'data'>;

/** The used part of an object's schema. */
type Schema = { required?: string[]; properties?: object };

/** One detail for each thing that is wrong; `place` is the part of the request, where no path says more. */
export function detailsOf(faults: readonly Fault[], place: string): ErrorDetail[] {
  const last = faults.at(-1);
  const named = last && ['anyOf', 'oneOf'].includes(last.keyword) ? [nearest(faults, last)] : faults;
  return named.flatMap(eachMissing).map((fault) => ({ path: pathOf(fault) || place, message: sentenceOf(fault) }));
}

/** ajv stops at the first property that is missing; a caller wants to know them all. */
function eachMissing(fault: Fault): Fault[] {
  const { keyword, parentSchema, data, params } = fault;
  if (keyword !== 'required') return [fault];
  const required = (parentSchema as Schema | undefined)?.required ?? [params.missingProperty];
  const missing = required.filter((name) => !Object.hasOwn((data ?? {}) as object, name));
  return missing.map((missingProperty) => ({ ...fault, params: { missingProperty } }));
}

/**
 * Of a value that fits none of several schemas: what is wrong inside it with the one that it was meant for; when its type
 * fits none, the types that would.
 */
function nearest(faults: readonly Fault[], choice: Fault): Fault {
  const branches = faults.filter(({ keyword }) => keyword !== 'anyOf' && keyword !== 'oneOf');
  const inside = branches.find(
    ({ keyword, instancePath }) => keyword !== 'type' || instancePath !== choice.instancePath,
  );
  if (inside) return inside;
  return { ...choice, keyword: 'type', params: { type: branches.flatMap(({ params }) => params.type as string) } };
}

/** Paths that begin with these have slashes, the others dots. */
const withSlashes: ReadonlySet<string | undefined> = new Set(['commands', 'payload']);

function pathOf({ instancePath, params }: Fault): string {
  const own = params.missingProperty ?? params.additionalProperty;
  const parts = [...instancePath.split('/').slice(1), ...(typeof own === 'string' ? [own.slice(0, 100)] : [])];
  return parts.join(withSlashes.has(parts[0]) ? '/' : '.');
}

function sentenceOf({ keyword, params, message, parentSchema }: Fault): string {
  if (keyword === 'enum') return `must be one of ${(params.allowedValues as unknown[]).join(', ')}`;
  if (keyword === 'additionalProperties')
    return `is not supported here; supported: ${Object.keys((parentSchema as Schema | undefined)?.properties ?? {}).join(', ')}`;
  if (keyword === 'required') return 'is required';
  if (keyword === 'type') return `must be ${[...new Set([params.type].flat())].join(' or ')}`;
  return message ?? 'is invalid';
}

/** Characters of a body in which the place of a fault is looked for, in a dozen readings of it. */
const maxSearchedLength = 16_384;

/**
 * What is wrong with a text that is no JSON, without anything of it. V8 tells the place of some faults only, and repeats
 * the text for the others, so the longest beginning that could still become JSON is looked for.
 */
export function jsonFault(text: string): string {
  if (text.length > maxSearchedLength) return 'is not JSON';
  if (canBegin(text)) return 'is not JSON: it ends too early';
  let good = 0;
  let bad = text.length;
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (canBegin(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  const before = text.slice(0, good).split('\n');
  return `is not JSON at line ${before.length}, column ${(before.at(-1) ?? '').length + 1}`;
}

/** Whether JSON can begin like this: it is JSON, or its only fault is at its end. */
function canBegin(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const { message } = error as SyntaxError;
    const [, place] = /at position (\d+)/.exec(message) ?? [];
    return /^Unexpected end/.test(message) || Number(place) === text.length;
  }
}

/** Whether a text can be read as JSON at all. */
export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
