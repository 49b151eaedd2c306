/**
 * Filters that are checked and made conditions of SQL. Nothing else makes a CompiledFilter, and lists take nothing else: a text never
 * selects by itself.
 */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { invalid, PlatformError } from '../../core/errors.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import { type Comparison, type Condition, type Given, gone, type Operand } from './operands.ts';
import { type AttributePath, BadFilter, type Filter, parseFilter } from './parser.ts';
import { type Predicate, predicateOf } from './predicate.ts';

/** Comparisons of one filter of a list. */
const maxTerms = 50;

/** Rows that an index finds: all that a term holds of. `isExact` where it holds of every one of them; `count` of what triggers count. */
export interface FoundRows {
  rows: RawBuilder<{ row: number }>;
  isExact: boolean;
  count?: RawBuilder<{ count: number }>;
}

export interface Attribute {
  /** As a row in memory has it (predicate.ts). */
  name: string;
  /** One for each type that its value may have. */
  operands: readonly Operand[];
  /** Where its value is in another row than the one that is looked at: what an expression is there, and null without such a row. */
  where?(expression: Expression<unknown>): RawBuilder<unknown>;
  /** The filter of lists that means the same as `eq`. */
  listFilter?: string;
  rows?(operator: Comparison, value: Given): FoundRows | undefined;
}

/** The attributes of a kind. `hint` is a sentence about names that are nearly the same. */
export interface Attributes {
  find(names: readonly string[]): Attribute | undefined;
  hint(names: readonly string[]): Promise<string>;
}

/** What must be true: one part of a filter, all of whose parts must be. */
interface Part {
  condition: Condition;
  listFilter?: { name: string; value: Given } | undefined;
  rows?: FoundRows | undefined;
}

/** Where the attribute of a path is found. */
type Find = (path: AttributePath) => Attribute;

/** A filter that was right when it was stored. */
export interface KeptFilter {
  filter: CompiledFilter;
  /** What it names that is gone, or is of another type now: that counts as missing. */
  problem: string | null;
  /** Its terms, in the order of the text: whether each holds of a row, and the value as a text of JSON. */
  explain(): Array<{ term: string; holds: Condition; value: RawBuilder<string | null> }>;
  /** The same of one row in memory. */
  predicate(): Predicate;
}

export class CompiledFilter {
  readonly #parts: readonly Part[];
  /** How many comparisons it has. */
  readonly terms: number;

  private constructor(parts: readonly Part[], terms: number) {
    this.#parts = parts;
    this.terms = terms;
  }

  /** @throws PlatformError 400/106, which says at which character the text is no filter, and what would be one. */
  static async compile(tree: FilterTree, attributes: Attributes): Promise<CompiledFilter> {
    for (const { path } of tree.terms)
      if (path.schema !== undefined || !attributes.find(path.names))
        throw wrong(path, `is unknown. ${await attributes.hint(path.names)}`);
    return CompiledFilter.#of(tree, ({ names }) => attributes.find(names) as Attribute);
  }

  /** Of a filter that is stored: attributes may have gone since it was checked. */
  static compileKept(tree: FilterTree, attributes: Attributes): KeptFilter {
    const problems = new Map<AttributePath, string>();
    const find: Find = (path) => (problems.has(path) ? missing : (attributes.find(path.names) as Attribute));
    for (const term of tree.terms) {
      const problem = attributes.find(term.path.names) ? refusalOf(term, find) : wrong(term.path, 'is unknown.');
      if (problem) problems.set(term.path, problem.details[0]?.message ?? problem.message);
    }
    return {
      filter: CompiledFilter.#of(tree, find),
      problem: [...problems.values()][0] ?? null,
      explain: () =>
        tree.terms.map((term) => ({
          term: tree.characters
            .slice(term.path.at - 1, term.end - 1)
            .join('')
            .trimEnd(),
          holds: partOf(term, find).condition,
          value: shownValue(find(term.path)),
        })),
      predicate: () => predicateOf(tree.root, tree.terms, find),
    };
  }

  /** All of these must match. */
  static all(filters: readonly CompiledFilter[]): CompiledFilter {
    const terms = filters.reduce((sum, one) => sum + one.terms, 0);
    return new CompiledFilter(
      filters.flatMap((one) => one.#parts),
      terms,
    );
  }

  static #of({ root, terms }: FilterTree, find: Find): CompiledFilter {
    const all = root.is === 'and' ? root.of : [root];
    return new CompiledFilter(
      all.map((one) => partOf(one, find)),
      terms.length,
    );
  }

  /** Whether a row matches. */
  get condition(): Condition {
    return joined(
      this.#parts.map(({ condition }) => condition),
      'and',
    );
  }

  /** The sets of rows, each of which has all rows that match. */
  get rows(): FoundRows[] {
    return this.#parts.flatMap(({ rows }) => rows ?? []);
  }

  /** Rows that are exactly those that match, where one index has them. */
  get exactRows(): FoundRows | undefined {
    const [only] = this.#parts;
    return this.#parts.length === 1 && only?.rows?.isExact ? only.rows : undefined;
  }

  /**
   * The filters of lists that mean the same as parts of it, and what is left. `isTaken` are names that the list is filtered by already.
   * A flag is left next to other parts: it is quickly read with a row, and slowly told from all rows that have it.
   */
  split(isTaken: (name: string) => boolean): { filters: Record<string, Given>; rest: CompiledFilter | undefined } {
    const filters: Record<string, Given> = {};
    const mayBeFlag = this.#parts.every(({ listFilter }) => listFilter);
    const rest = this.#parts.filter(({ listFilter }) => {
      if (!listFilter || isTaken(listFilter.name) || Object.hasOwn(filters, listFilter.name)) return true;
      if (typeof listFilter.value === 'boolean' && !mayBeFlag) return true;
      filters[listFilter.name] = listFilter.value;
      return false;
    });
    return { filters, rest: rest.length === 0 ? undefined : new CompiledFilter(rest, this.terms) };
  }
}

type Term = Exclude<Filter, { is: 'and' | 'or' | 'not' | 'some' }>;

/** A text that has the form of a filter. */
export interface FilterTree {
  characters: readonly string[];
  root: Filter;
  terms: readonly Term[];
}

/** @throws PlatformError 400/106 as CompiledFilter.compile. */
export function readTree(text: string): FilterTree {
  if (findUnstorable(text) !== undefined) throw invalid('filter', unstorable);
  try {
    const root = parseFilter(text, maxTerms);
    return { characters: [...text], root, terms: termsOf(root) };
  } catch (error) {
    if (error instanceof BadFilter) throw invalid('filter', error.message);
    throw error;
  }
}

function termsOf(filter: Filter): Term[] {
  if (filter.is === 'and' || filter.is === 'or') return filter.of.flatMap(termsOf);
  if (filter.is === 'not') return termsOf(filter.of);
  if (filter.is === 'some') throw wrong(filter.path, 'has no brackets.');
  return [filter];
}

/** @throws PlatformError 400/106 for what an attribute cannot be compared with. */
function partOf(filter: Filter, find: Find): Part {
  if (filter.is === 'and' || filter.is === 'or') {
    const conditions = filter.of.map((one) => partOf(one, find).condition);
    return { condition: joined(conditions, filter.is) };
  }
  if (filter.is === 'not') return { condition: sql`not ${partOf(filter.of, find).condition}` };
  if (filter.is === 'some') throw wrong(filter.path, 'has no brackets.');
  const attribute = find(filter.path);
  if (filter.is === 'present') return { condition: presence(filter.path, attribute) };
  const { is, path, value } = filter;
  if (value === null) {
    if (is !== 'eq' && is !== 'ne') throw wrong(path, 'takes null with eq and ne alone.');
    const present = presence(path, attribute);
    return { condition: is === 'ne' ? present : sql`not ${present}` };
  }
  if (findUnstorable(value) !== undefined) throw wrong(path, unstorable);
  const operator = is === 'ne' ? 'eq' : is;
  const { operands, listFilter, rows } = attribute;
  const fitting = operands.filter((one) => one.operators.includes(is)).map((one) => one.compare(operator, value));
  const condition = holds(
    attribute,
    fitting.filter((one) => one !== undefined),
  );
  if (!condition) throw wrong(path, `takes ${operands.map(takesOf).join('; or ')}.`);
  if (is === 'ne') return { condition: sql`not ${condition}` };
  const isListed =
    is === 'eq' && listFilter !== undefined && typeof value !== 'number' && !['', 'null'].includes(String(value));
  return {
    condition,
    listFilter: isListed
      ? { name: listFilter, value: typeof value === 'string' ? value.toLowerCase() : value }
      : undefined,
    rows: rows?.(operator, value),
  };
}

function presence(path: AttributePath, attribute: Attribute): Condition {
  const condition = holds(
    attribute,
    attribute.operands.flatMap(({ present }) => present ?? []),
  );
  if (!condition) throw wrong(path, `takes ${attribute.operands.map(takesOf).join('; or ')}.`);
  return condition;
}

/** Whether one of these conditions is true of an attribute; it is true or false, and never null. */
function holds({ where }: Attribute, conditions: readonly Condition[]): Condition | undefined {
  if (conditions.length === 0) return undefined;
  const one = joined(conditions, 'or');
  return sql`(${where ? where(one) : one} is true)`;
}

function joined(conditions: readonly Condition[], word: 'and' | 'or'): Condition {
  return sql<SqlBool>`(${sql.join(conditions, word === 'and' ? sql` and ` : sql` or `)})`;
}

const missing: Attribute = { name: '', operands: [gone] };

/** Why a term cannot be compared, if it cannot. */
function refusalOf(term: Term, find: Find): PlatformError | undefined {
  try {
    partOf(term, find);
    return undefined;
  } catch (error) {
    if (error instanceof PlatformError) return error;
    throw error;
  }
}

function shownValue({ operands, where }: Attribute): RawBuilder<string | null> {
  const values = operands.map(({ shown }) => shown);
  const value = sql<string | null>`coalesce(${sql.join(values)}, null)`;
  // Joined with a text it is one: what json_quote gives is JSON to the functions around it.
  return sql`(${where ? where(value) : value} || '')`;
}

function takesOf({ operators, takes, present }: Operand): string {
  return `${operators.join(', ')} with ${takes}${present ? ', and pr' : ''}`;
}

function wrong({ at, names }: AttributePath, what: string) {
  return invalid('filter', `At character ${at}: ${names.join('.').slice(0, 100)} ${what}`);
}
