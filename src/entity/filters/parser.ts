/**
 * Filters of RFC 7644, 3.4.2.2: `userName eq "ada" and not (emails[type eq "work" and value co "@example."])`. Names of operators are
 * the same in any letter case. A filter is bounded in length, terms and depth.
 */

export const maxLength = 4000;
const usualTerms = 100;
const maxDepth = 20;

export const operators = ['eq', 'ne', 'co', 'sw', 'ew', 'gt', 'ge', 'lt', 'le'] as const;
export type Operator = (typeof operators)[number];
export type Literal = string | number | boolean | null;

/** An attribute: the URN of its schema if it is named, its names downwards, and the character where it begins, from 1. */
export interface AttributePath {
  schema: string | undefined;
  names: readonly string[];
  at: number;
}

/** A term stands from the character of its path up to, and without, the one at `end`, and blanks before that. */
interface Term {
  path: AttributePath;
  end: number;
}

export type Filter =
  | { is: 'and'; of: readonly Filter[] }
  | { is: 'or'; of: readonly Filter[] }
  | { is: 'not'; of: Filter }
  | ({ is: 'present' } & Term)
  | ({ is: Operator; value: Literal } & Term)
  /** One value of a multi-valued attribute fits. */
  | { is: 'some'; path: AttributePath; of: Filter };

/** A path of PATCH: an attribute, those of its values that fit, and a part of them. */
export interface ValuePath {
  path: AttributePath;
  where: Filter | undefined;
  sub: string | undefined;
}

/** A text that is no filter, or no path; the message says where it ceases to be one. */
export class BadFilter extends Error {}

/** @throws BadFilter */
export function parseFilter(text: string, maxTerms = usualTerms): Filter {
  const reader = new Reader(text, maxTerms);
  const filter = reader.either();
  reader.end();
  return filter;
}

/** A part of a filter: from the character `at`, counted from 1, up to and without the one at `end`, and blanks before that. */
export interface FilterPart {
  filter: Filter;
  at: number;
  end: number;
}

/** The parts of a filter all of which must be true; none of one that is no list of such. @throws BadFilter */
export function parseParts(text: string, maxTerms = usualTerms): FilterPart[] {
  parseFilter(text, maxTerms);
  return new Reader(text, maxTerms).parts();
}

/** @throws BadFilter */
export function parsePath(text: string): ValuePath {
  const reader = new Reader(text);
  const found = reader.valuePath();
  reader.end();
  return found;
}

const attribute = /^(?:(urn:[\w.:-]+):)?([\p{L}$][\p{L}\p{M}\p{N}_$-]*)/iu;
/** A further name of an attribute; between quotes it may be any text. */
const furtherName = /^\.(?:([\p{L}\p{N}_$][\p{L}\p{M}\p{N}_$-]*)|("(?:[^"\\]|\\.)*"))/u;
const token = /^(?:[()[\]]|"(?:[^"\\]|\\.)*"|[^\s()[\]"]+)/;

/** Reads a filter from the left. */
class Reader {
  #rest: string;
  readonly #whole: string;
  readonly #maxTerms: number;
  #terms = 0;
  #depth = 0;

  constructor(text: string, maxTerms = usualTerms) {
    if (text.length > maxLength) throw new BadFilter(`It has more than ${maxLength} characters.`);
    this.#whole = text.trimEnd();
    this.#rest = text.trim();
    this.#maxTerms = maxTerms;
  }

  end(): void {
    if (this.#rest !== '') throw this.#expected('and, or, or the end');
  }

  either(): Filter {
    return this.#chain('or', () => this.#chain('and', () => this.#term()));
  }

  /** The parts between `and`, unless there is something else. */
  parts(): FilterPart[] {
    const parts: FilterPart[] = [];
    do {
      const at = this.#at();
      parts.push({ filter: this.#term(), at, end: this.#at() });
    } while (this.#take('and'));
    return this.#rest === '' ? parts : [];
  }

  valuePath(): ValuePath {
    const path = this.#path();
    if (!this.#take('[')) return { path, where: undefined, sub: undefined };
    const where = this.#nested(']');
    return { path, where, sub: this.#sub() };
  }

  #chain(word: 'and' | 'or', next: () => Filter): Filter {
    const of = [next()];
    while (this.#take(word)) of.push(next());
    const [only] = of;
    return only && of.length === 1 ? only : { is: word, of };
  }

  #term(): Filter {
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
    const inner = this.#comparison({ schema: undefined, names: [sub], at: path.at });
    return { is: 'some', path, of: { is: 'and', of: [where, inner] } };
  }

  #nested(close: ')' | ']'): Filter {
    this.#depth += 1;
    if (this.#depth > maxDepth)
      throw new BadFilter(`At character ${this.#at()}: it is more than ${maxDepth} levels deep.`);
    const filter = this.either();
    this.#depth -= 1;
    if (!this.#take(close)) throw this.#expected(`and, or, or ${close}`);
    return filter;
  }

  #comparison(path: AttributePath): Filter {
    this.#terms += 1;
    if (this.#terms > this.#maxTerms)
      throw new BadFilter(`At character ${path.at}: it has more than ${this.#maxTerms} terms.`);
    if (this.#take('pr')) return { is: 'present', path, end: this.#at() };
    const operator = operators.find((one) => this.#take(one));
    if (operator) {
      const value = this.#value();
      return { is: operator, path, value, end: this.#at() };
    }
    const isNot = path.names.length === 1 && path.names[0]?.toLowerCase() === 'not';
    throw this.#expected(isNot ? '( after not' : `an operator (${operators.join(', ')} or pr)`);
  }

  #path(): AttributePath {
    const at = this.#at();
    const [whole, schema, first] = attribute.exec(this.#rest) ?? [];
    if (whole === undefined || first === undefined) throw this.#expected('the name of an attribute');
    this.#rest = this.#rest.slice(whole.length);
    const names = [first];
    for (let next = furtherName.exec(this.#rest); next; next = furtherName.exec(this.#rest)) {
      const [part, name, quoted] = next;
      names.push(name ?? String(this.#read(String(quoted))));
      this.#rest = this.#rest.slice(part.length);
    }
    this.#rest = this.#rest.trimStart();
    return { schema, names, at };
  }

  /** The part of a value that a path names behind its brackets. */
  #sub(): string | undefined {
    const [whole, name] = /^\.([a-z$][\w$-]*)\s*/i.exec(this.#rest) ?? [];
    if (whole === undefined) return undefined;
    this.#rest = this.#rest.slice(whole.length);
    return name;
  }

  #value(): Literal {
    const [text = ''] = token.exec(this.#rest) ?? [];
    const isWord = /^(true|false|null)$/i.test(text);
    const isValue = isWord || text.startsWith('"') || /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text);
    if (!isValue) throw this.#expected('a value: a text in double quotes, a number, true, false or null');
    const value = this.#read(isWord ? text.toLowerCase() : text);
    this.#rest = this.#rest.slice(text.length).trimStart();
    return value;
  }

  #read(text: string): Literal {
    try {
      return JSON.parse(text) as Literal;
    } catch {
      throw this.#expected('a value as in JSON');
    }
  }

  /** Goes past a word or a sign, if it is next. */
  #take(wanted: string): boolean {
    const [next = ''] = token.exec(this.#rest) ?? [];
    if (next.toLowerCase() !== wanted) return false;
    this.#rest = this.#rest.slice(next.length).trimStart();
    return true;
  }

  /** The character that is next, counted from 1. */
  #at(): number {
    return [...this.#whole.slice(0, this.#whole.length - this.#rest.length)].length + 1;
  }

  #expected(what: string): BadFilter {
    const found = this.#rest === '' ? 'it ends here' : `there is ${this.#rest.slice(0, 20).toWellFormed()}`;
    return new BadFilter(`At character ${this.#at()}: ${what} is expected, but ${found}.`);
  }
}
