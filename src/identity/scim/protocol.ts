/** What requests and answers of SCIM (RFC 7644) have in common: errors, pages, the attributes that are asked for. */
import type { Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { BadFilter, type Filter, parseFilter } from '../../entity/filters/parser.ts';
import { keyOf } from './filters.ts';

export type Json = Record<string, unknown>;

/** Attributes of one request that have no effect, by their names: the answer tells them. */
export type Ignored = Set<string>;

/** Who asks: a provider, by its token. */
export interface Provisioner {
  provider: Row<'identityProviders'>;
  by: Caller;
  /** Where its resources are: `https://…/scim/v2`. */
  address: string;
  /** What of its request has had no effect. */
  ignored: Ignored;
}

export const maxPageSize = 200;
const usualPageSize = 100;

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** 400 with a `scimType` of RFC 7644, 3.12. */
export function refused(scimType: string, message: string): PlatformError {
  return new PlatformError('invalid', { message, details: [{ message: '', scimType }] });
}

export function badValue(message: string): PlatformError {
  return refused('invalidValue', message);
}

/** 409: somebody else has it. */
export function taken(message: string): PlatformError {
  return new PlatformError('notUnique', { message });
}

/** @throws PlatformError 400/invalidSyntax for a body that is no object. */
export function demandObject(body: unknown): Json {
  if (!isObject(body)) throw refused('invalidSyntax', 'The body must be an object.');
  return body;
}

/** Which part of a list is asked for. */
export interface ListRequest {
  filter: Filter | undefined;
  startIndex: number;
  count: number;
}

/** @throws PlatformError 400/invalidFilter, or 400/106 where startIndex or count is not a number. */
export function readListRequest(query: unknown): ListRequest {
  const { filter, startIndex, count } = query as Json;
  return {
    filter: typeof filter === 'string' ? readFilter(filter) : undefined,
    startIndex: Math.max(readNumber('startIndex', startIndex, 1), 1),
    count: Math.min(Math.max(readNumber('count', count, usualPageSize), 0), maxPageSize),
  };
}

function readNumber(name: string, text: unknown, otherwise: number): number {
  if (text === undefined) return otherwise;
  if (typeof text !== 'string' || !/^-?\d{1,9}$/.test(text)) throw invalid(name, 'must be an integer');
  return Number(text);
}

function readFilter(text: string): Filter {
  try {
    return parseFilter(text);
  } catch (error) {
    if (error instanceof BadFilter) throw refused('invalidFilter', `filter: ${error.message}`);
    throw error;
  }
}

/** Names of attributes that a request may ask for, or not to have. */
const maxNames = 100;

/** Which attributes an answer has (RFC 7644, 3.9). */
export interface Projection {
  wanted: readonly string[] | undefined;
  excluded: readonly string[];
}

/** @throws PlatformError 400/invalidValue for too many names. */
export function readProjection(query: unknown): Projection {
  const { attributes, excludedAttributes } = query as Json;
  const names = (text: unknown) => {
    if (typeof text !== 'string' || text === '') return undefined;
    const all = text.split(',').map((name) => name.trim().toLowerCase());
    if (all.length > maxNames) throw badValue(`A request names at most ${maxNames} attributes.`);
    return all;
  };
  return { wanted: names(attributes), excluded: names(excludedAttributes) ?? [] };
}

/** Whether an answer has this attribute: what is expensive to read is read only then. */
export function isAsked({ wanted, excluded }: Projection, name: string): boolean {
  const isOf = (one: string) => one === name || one.startsWith(`${name}.`);
  return wanted ? wanted.some(isOf) : !excluded.includes(name);
}

/** The resource with what is asked for; `id` and `schemas` always. */
export function project(resource: Json, { wanted, excluded }: Projection): Json {
  if (!wanted && excluded.length === 0) return resource;
  const { schemas, id } = resource;
  if (!wanted) {
    const left = structuredClone(resource);
    for (const name of excluded) removeAt(left, name);
    return { ...left, schemas, id };
  }
  const chosen: Json = { schemas, id };
  for (const name of wanted) copyAt(resource, chosen, name);
  return chosen;
}

/** An attribute as its first name and the rest; the URN of a core schema is left out, that of an extension is the first. */
function split(resource: object, name: string): [key: string | undefined, rest: string] {
  const plain = name.replace(/^urn:ietf:params:scim:schemas:core:2\.0:\w+:/, '');
  const extension = Object.keys(resource).find((key) => key.startsWith('urn:') && plain.startsWith(key.toLowerCase()));
  if (extension !== undefined) return [extension, plain.slice(extension.length + 1)];
  const [first = '', ...more] = plain.split('.');
  return [keyOf(resource, first), more.join('.')];
}

function removeAt(resource: Json, name: string): void {
  const [key, rest] = split(resource, name);
  if (key === undefined) return;
  if (rest === '') delete resource[key];
  else for (const one of [resource[key]].flat()) if (isObject(one)) removeAt(one, rest);
}

function copyAt(from: Json, to: Json, name: string): void {
  const [key, rest] = split(from, name);
  if (key === undefined) return;
  const value = from[key];
  if (rest === '') {
    to[key] = value;
    return;
  }
  const part = (one: unknown, before: unknown) => {
    const chosen = isObject(before) ? before : {};
    if (isObject(one)) copyAt(one, chosen, rest);
    return chosen;
  };
  const before = to[key];
  to[key] = Array.isArray(value)
    ? value.map((one, at) => part(one, Array.isArray(before) ? before[at] : undefined))
    : part(value, before);
}
