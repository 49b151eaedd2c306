/** The text of a filter as parts that must all be true, and back. What it means is the grammar of the service: docs/filters.md. */
import { BadFilter, type Filter, type Literal, type Operator, parseParts } from '../../../src/entity/filters/parser.ts';

/** Comparisons that the service takes in one filter. */
const maxTerms = 50;

/** `pr` has a value, and `none` has not. */
export type FormOperator = Operator | 'pr' | 'none';

/** A comparison as a form has it. */
export interface Term {
  names: readonly string[];
  operator: FormOperator;
  value: Literal;
}

/** A part as it is written. One that is no single comparison has no `term`. */
export interface Part {
  text: string;
  term?: Term | undefined;
}

/** The parts of a filter; undefined for a text that is none. */
export function partsOf(text: string): Part[] | undefined {
  if (text.trim() === '') return [];
  try {
    const characters = [...text];
    const written = (at: number, end: number) =>
      characters
        .slice(at - 1, end - 1)
        .join('')
        .trim();
    const parts = parseParts(text, maxTerms);
    if (parts.length === 0) return [{ text: `(${text.trim()})` }];
    return parts.map(({ filter, at, end }) => ({ text: written(at, end), term: termOf(filter) }));
  } catch (error) {
    if (error instanceof BadFilter) return undefined;
    throw error;
  }
}

export const joined = (parts: readonly Part[]) => parts.map(({ text }) => text).join(' and ');

function termOf(filter: Filter): Term | undefined {
  if (filter.is === 'and' || filter.is === 'or' || filter.is === 'not' || filter.is === 'some') return undefined;
  const { names, schema } = filter.path;
  if (schema !== undefined) return undefined;
  if (filter.is === 'present') return { names, operator: 'pr', value: null };
  if (filter.value !== null) return { names, operator: filter.is, value: filter.value };
  return { names, operator: filter.is === 'ne' ? 'pr' : 'none', value: null };
}

const plainName = /^[\p{L}\p{N}_$][\p{L}\p{M}\p{N}_$-]*$/u;

/** A comparison as it is written. */
export function termText({ names: [first = '', ...others], operator, value }: Term): string {
  const path = [first, ...others.map((name) => (plainName.test(name) ? name : JSON.stringify(name)))].join('.');
  if (operator === 'pr') return `${path} pr`;
  return operator === 'none' ? `${path} eq null` : `${path} ${operator} ${JSON.stringify(value)}`;
}

/** Names of attributes are the same in any letter case. */
export const isSame = (a: readonly string[], b: readonly string[]) =>
  a.join('.').toLowerCase() === b.join('.').toLowerCase();

/** What an attribute must be equal to, if a filter says so. */
export function demanded(text: string, name: string): string | undefined {
  const part = partsOf(text)?.find(({ term }) => term?.operator === 'eq' && isSame(term.names, [name]));
  return typeof part?.term?.value === 'string' ? part.term.value : undefined;
}

/** The parameters that addresses had for one condition each, and what each is now. They go on working. */
const former: Readonly<Record<string, (value: string) => Term[]>> = {
  organization: (value) =>
    value === 'null'
      ? [{ names: ['organizationId'], operator: 'none', value: null }]
      : [{ names: ['within'], operator: 'eq', value }],
  product: (value) => [{ names: ['deviceTemplateId'], operator: 'eq', value }],
  state: (value) => [{ names: ['provisioningState'], operator: 'eq', value }],
  connected: (value) => [{ names: ['connected'], operator: 'eq', value: value === 'true' }],
  firmware: firmwareOf,
  offlineSince: (value) => [{ names: ['offlineSince'], operator: 'ge', value }],
  silent: (value) => [{ names: ['silent'], operator: 'eq', value: value === 'true' }],
};

/** `1.*` begins with `1.`, `*.3` ends with `.3`, and a text between two stars is contained. */
function firmwareOf(value: string): Term[] {
  const names = ['firmwareVersion'];
  if (value === 'null') return [{ names, operator: 'none', value: null }];
  const texts = value.split('*');
  const last = texts.length - 1;
  if (last === 0) return [{ names, operator: 'co', value }];
  return texts.flatMap((text, at): Term[] => {
    if (text === '') return [];
    return [{ names, operator: at === 0 ? 'sw' : at === last ? 'ew' : 'co', value: text }];
  });
}

/** The filter of an address: its text, and what former parameters say. */
export function filterOf(search: URLSearchParams): string {
  const terms = Object.entries(former).flatMap(([name, term]) => {
    const value = search.get(name);
    return value ? term(value).map((one) => ({ text: termText(one) })) : [];
  });
  const text = search.get('filter') ?? '';
  return terms.length === 0 ? text : joined([...terms, ...(partsOf(text) ?? [{ text }])]);
}

/** The parameters of an address that has a filter, and nothing of what it had before. */
export const addressOf = (filter: string): Record<string, string> => ({
  ...Object.fromEntries(Object.keys(former).map((name) => [name, ''])),
  filter,
});

/** The place Devices with a filter. */
export const devicesWith = (filter: string) => `/devices?${new URLSearchParams({ filter })}`;
