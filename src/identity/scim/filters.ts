/**
 * Filters of RFC 7644, 3.4.2.2, read and decided: `userName eq "ada" and not (emails[type eq "work" and value co "@example."])`.
 * Names of attributes and of operators are the same in any letter case. A filter is bounded in length, terms and depth.
 */

const maxLength = 4000;
const maxTerms = 100;
const maxDepth = 20;

const operators = ['eq', 'ne', 'co', 'sw', 'ew', 'gt', 'ge', 'lt', 'le'] as const;
type Operator = (typeof operators)[number];
type Value = string | number | boolean | null;

/** An attribute: the URN of its schema if it is named, and its names downwards. */
export interface AttributePath {
  schema: string | undefined;
  names: readonly string[];
}

export type ScimFilter =
  | { is: 'and'; of: readonly ScimFilter[] }
  | { is: 'or'; of: readonly ScimFilter[] }
  | { is: 'not'; of: ScimFilter }
  | { is: 'present'; path: AttributePath }
  | { is: Operator; path: AttributePath; value: Value }
  /** One value of a multi-valued attribute fits. */
  | { is: 'some'; path: AttributePath; of: ScimFilter };

/** A path of PATCH: an attribute, those of its values that fit, and a part of them. */
export interface ValuePath {
  path: AttributePath;
  where: ScimFilter | undefined;
  sub: string | undefined;
}

/** A text that is no filter, or no path; the message says where it ceases to be one. */
export class BadFilter extends Error {}

/** @throws BadFilter */
export function parseFilter(text: string): ScimFilter {
  const reader = new Reader(text);
  const filter = reader.either();
  reader.end();
  return filter;
}

/** @throws BadFilter */
export function parsePath(text: string): ValuePath {
  const reader = new Reader(text);
  const found = reader.valuePath();
  reader.end();
  return found;
}

const attribute = /^(?:(urn:[\w.:-]+):)?([a-z$][\w$-]*(?:\.[a-z$][\w$-]*)*)/i;
const token = /^(?:[()[\]]|"(?:[^"\\]|\\.)*"|[^\s()[\]"]+)/;

/** Reads a filter from the left. */
class Reader {
  #rest: string;
  readonly #whole: string;
  #terms = 0;
  #depth = 0;

  constructor(text: string) {
    if (text.length > maxLength) throw new BadFilter(`It has more than ${maxLength} characters.`);
    this.#whole = text;
    this.#rest = text.trim();
  }

  end(): void {
    if (this.#rest !== '') throw this.#unexpected();
  }

  either(): ScimFilter {
    return this.#chain('or', () => this.#chain('and', () => this.#term()));
  }

  valuePath(): ValuePath {
    const path = this.#path();
    if (!this.#take('[')) return { path, where: undefined, sub: undefined };
    const where = this.#nested(']');
    return { path, where, sub: this.#sub() };
  }

  #chain(word: 'and' | 'or', next: () => ScimFilter): ScimFilter {
    const of = [next()];
    while (this.#take(word)) of.push(next());
    const [only] = of;
    return only && of.length === 1 ? only : { is: word, of };
  }

  #term(): ScimFilter {
    this.#terms += 1;
    if (this.#terms > maxTerms) throw new BadFilter(`It has more than ${maxTerms} terms.`);
    if (/^not\s*\(/i.test(this.#rest)) {
      this.#take('not');
      this.#take('(');
      return { is: 'not', of: this.#nested(')') };
    }
    if (this.#take('(')) return this.#nested(')');
    const { path, where, sub } = this.valuePath();
    if (!where) return this.#comparison(path);
    if (sub === undefined) return { is: 'some', path, of: where };
    // Entra ID asks so: `emails[type eq "work"].value eq "…"`.
    const inner = this.#comparison({ schema: undefined, names: [sub] });
    return { is: 'some', path, of: { is: 'and', of: [where, inner] } };
  }

  #nested(close: string): ScimFilter {
    this.#depth += 1;
    if (this.#depth > maxDepth) throw new BadFilter(`It is more than ${maxDepth} levels deep.`);
    const filter = this.either();
    this.#depth -= 1;
    if (!this.#take(close)) throw this.#unexpected();
    return filter;
  }

  #comparison(path: AttributePath): ScimFilter {
    if (this.#take('pr')) return { is: 'present', path };
    const operator = operators.find((one) => this.#take(one));
    if (!operator) throw this.#unexpected();
    return { is: operator, path, value: this.#value() };
  }

  #path(): AttributePath {
    const [whole, schema, names] = attribute.exec(this.#rest) ?? [];
    if (whole === undefined || names === undefined) throw this.#unexpected();
    this.#rest = this.#rest.slice(whole.length).trimStart();
    return { schema, names: names.split('.') };
  }

  /** The part of a value that a path names behind its brackets. */
  #sub(): string | undefined {
    const [whole, name] = /^\.([a-z$][\w$-]*)\s*/i.exec(this.#rest) ?? [];
    if (whole === undefined) return undefined;
    this.#rest = this.#rest.slice(whole.length);
    return name;
  }

  #value(): Value {
    const [text = ''] = token.exec(this.#rest) ?? [];
    const isWord = /^(true|false|null)$/i.test(text);
    const isValue = isWord || text.startsWith('"') || /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text);
    if (!isValue) throw this.#unexpected();
    this.#rest = this.#rest.slice(text.length).trimStart();
    try {
      return JSON.parse(isWord ? text.toLowerCase() : text) as Value;
    } catch {
      throw new BadFilter(`${text} is not a value.`);
    }
  }

  /** Goes past a word or a sign, if it is next. */
  #take(wanted: string): boolean {
    const [next = ''] = token.exec(this.#rest) ?? [];
    if (next.toLowerCase() !== wanted) return false;
    this.#rest = this.#rest.slice(next.length).trimStart();
    return true;
  }

  #unexpected(): BadFilter {
    if (this.#rest === '') return new BadFilter('It ends too early.');
    const at = this.#whole.trimEnd().length - this.#rest.trimEnd().length;
    return new BadFilter(`At character ${at + 1} comes something unexpected: ${this.#rest.slice(0, 20)}`);
  }
}

/** What a kind of resource says of its attributes. */
export interface Attributes {
  /** Whether the letter case of its texts counts. */
  isExact(path: AttributePath): boolean;
}

/** Whether a filter fits a resource. Attributes that the resource does not have fit `ne` and `not` alone. */
export function fits(filter: ScimFilter, resource: object, attributes: Attributes): boolean {
  if (filter.is === 'and') return filter.of.every((one) => fits(one, resource, attributes));
  if (filter.is === 'or') return filter.of.some((one) => fits(one, resource, attributes));
  if (filter.is === 'not') return !fits(filter.of, resource, attributes);
  const values = valuesOf(resource, filter.path);
  if (filter.is === 'some')
    return values.some((value) => typeof value === 'object' && fits(filter.of, value as object, attributes));
  const plain = values.map(plainValue).filter((value) => value !== undefined);
  if (filter.is === 'present') return values.some(isPresent);
  if (filter.value === null) return plain.length === 0 ? filter.is === 'eq' : filter.is === 'ne';
  const isExact = attributes.isExact(filter.path);
  if (filter.is === 'ne') return !plain.some((value) => compare('eq', value, filter.value, isExact));
  const { is, value: wanted } = filter;
  return plain.some((value) => compare(is, value, wanted, isExact));
}

/** The values of an attribute: all of those of a multi-valued one. */
function valuesOf(resource: object, { schema, names }: AttributePath): unknown[] {
  const inSchema = schema === undefined ? undefined : propertyOf(resource, schema);
  let values: unknown[] = [inSchema ?? resource];
  for (const name of names)
    values = values.flatMap((value) => (isObject(value) ? [propertyOf(value, name)].flat() : [])).filter(isGiven);
  return values;
}

/** A property in any letter case. */
export function propertyOf(of: object, name: string): unknown {
  const key = keyOf(of, name);
  return key === undefined ? undefined : (of as Record<string, unknown>)[key];
}

/** Under which name an object has a property in any letter case. */
export function keyOf(of: object, name: string): string | undefined {
  if (Object.hasOwn(of, name)) return name;
  const wanted = name.toLowerCase();
  return Object.keys(of).find((key) => key.toLowerCase() === wanted);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function isPresent(value: unknown): boolean {
  return isObject(value) ? Object.keys(value).length > 0 : isGiven(value) && value !== '';
}

/** Of a complex value its `value`: `emails co "x"` means `emails.value co "x"`. */
function plainValue(value: unknown): string | number | boolean | undefined {
  const plain = isObject(value) ? propertyOf(value, 'value') : value;
  return ['string', 'number', 'boolean'].includes(typeof plain) ? (plain as string | number | boolean) : undefined;
}

function compare(operator: Operator, value: string | number | boolean, wanted: Value, isExact: boolean): boolean {
  if (typeof value === 'number' && typeof wanted === 'number') return compareOrdered(operator, value, wanted);
  const form = (text: unknown) => (isExact ? String(text) : String(text).toLowerCase());
  const [left, right] = [form(value), form(wanted)];
  if (operator === 'co') return left.includes(right);
  if (operator === 'sw') return left.startsWith(right);
  if (operator === 'ew') return left.endsWith(right);
  const [date, other] = [readTime(value), readTime(wanted)];
  if (date !== undefined && other !== undefined) return compareOrdered(operator, date, other);
  return compareOrdered(operator, left, right);
}

function compareOrdered<T extends string | number>(operator: Operator, left: T, right: T): boolean {
  if (operator === 'eq') return left === right;
  if (operator === 'gt') return left > right;
  if (operator === 'ge') return left >= right;
  if (operator === 'lt') return left < right;
  return operator === 'le' && left <= right;
}

/** The instant that a text names. */
function readTime(text: unknown): number | undefined {
  if (typeof text !== 'string' || !/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return undefined;
  const time = Date.parse(text);
  return Number.isNaN(time) ? undefined : time;
}

/** The texts that an attribute must be equal to, whatever else a filter says; undefined where it may be anything. */
export function demandedValue(filter: ScimFilter, ...names: string[]): string | undefined {
  if (filter.is === 'and') return filter.of.map((one) => demandedValue(one, ...names)).find((one) => one !== undefined);
  if (filter.is === 'some' && names.length === 2 && isNamed(filter.path, names.slice(0, 1)))
    return demandedValue(filter.of, ...names.slice(1));
  if (filter.is !== 'eq' || typeof filter.value !== 'string') return undefined;
  return isNamed(filter.path, names) ? filter.value : undefined;
}

function isNamed({ names }: AttributePath, wanted: readonly string[]): boolean {
  return names.length === wanted.length && names.every((name, at) => name.toLowerCase() === wanted[at]?.toLowerCase());
}
