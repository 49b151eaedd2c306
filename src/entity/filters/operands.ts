/** What attributes are compared as: conditions of SQL on a value of each type. None of them is true of a missing value. */
import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import { folded } from '../../../db/registry/text.ts';
import { instantOf, parseDate } from '../../../db/sqlite/dates.ts';
import { fold } from '../../../db/sqlite/fold.ts';
import { versionKey } from '../../../db/sqlite/versions.ts';
import { parseNumber } from '../../core/formats/numbers.ts';
import {
  byOrder,
  type Comparison,
  compareNumbers,
  compareTexts,
  type Given,
  type Test,
  textTest,
} from './comparisons.ts';
import { type Operator, operators } from './parser.ts';

export type { Comparison, Given } from './comparisons.ts';

export type Condition = Expression<SqlBool>;

export interface Operand {
  type: 'text' | 'version' | 'number' | 'degrees' | 'date' | 'flag' | 'organization' | 'gone';
  /** What it is compared with, for people. */
  takes: string;
  operators: readonly Operator[];
  /** Undefined for a value of another type. */
  compare(operator: Comparison, value: Given): Condition | undefined;
  /** The same in memory. Undefined for a value of another type. */
  test(operator: Comparison, value: Given): Test | undefined;
  /** Of a given value that is relative to now, how much later it is, in milliseconds. */
  offsetOf?(value: Given): number | undefined;
  /** Undefined where a filter cannot ask it. */
  present?: Condition;
  /** The value as a text of JSON; null where there is none. */
  shown: RawBuilder<string | null>;
}

const ordered = operators.filter((one) => !['co', 'sw', 'ew'].includes(one));
const signs: Partial<Record<Comparison, RawBuilder<unknown>>> = {
  eq: sql`=`,
  gt: sql`>`,
  ge: sql`>=`,
  lt: sql`<`,
  le: sql`<=`,
};
const never = sql<SqlBool>`0`;
const isNever = () => false;

/** A value as JSON has it. */
export function jsonOf(value: RawBuilder<unknown>): RawBuilder<string | null> {
  return sql`nullif(json_quote(${value}), 'null')`;
}

/** Of what is not there any more: nothing but `ne`, and `eq` of null, is true of it. */
export const gone: Operand = {
  type: 'gone',
  takes: '',
  operators,
  compare: () => never,
  test: () => isNever,
  present: never,
  shown: sql`null`,
};

/** Without letter case, in the order of code points. `form` is the value as `fold` has it. */
export function textOperand(value: RawBuilder<unknown>, form = folded(value)): Operand {
  return {
    type: 'text',
    takes: 'a text in double quotes',
    operators,
    compare: (operator, given) => (typeof given === 'string' ? compareText(operator, form, given) : undefined),
    test: textTest,
    present: sql`${value} <> ''`,
    shown: jsonOf(value),
  };
}

function compareText(operator: Comparison, value: RawBuilder<string>, given: string): Condition | undefined {
  const text = fold(given);
  const { length } = [...text];
  const sign = signs[operator];
  if (sign) return sql`${value} ${sign} ${text}`;
  // Every text contains the empty one: a variable that is not set must not select everything.
  if (length === 0) return undefined;
  if (operator === 'co') return sql`instr(${value}, ${text}) > 0`;
  return operator === 'sw'
    ? sql`substr(${value}, 1, ${length}) = ${text}`
    : sql`substr(${value}, -${length}) = ${text}`;
}

/** Ordered by precedence. A text that is no version is equal to the same text, and neither before nor after anything. */
export function versionOperand(value: RawBuilder<unknown>, form = folded(value)): Operand {
  const text = textOperand(value, form);
  return {
    ...text,
    type: 'version',
    takes: 'a version in double quotes, such as "1.10.0"',
    compare: (operator, given) => {
      const sign = signs[operator];
      if (typeof given !== 'string' || !sign) return text.compare(operator, given);
      const key = versionKey(given);
      if (key !== null) return sql`version(${value}) ${sign} ${key}`;
      return operator === 'eq' ? text.compare(operator, given) : never;
    },
    test: (operator, given) => {
      const key = typeof given === 'string' && signs[operator] ? versionKey(given) : null;
      if (key !== null)
        return byOrder(
          operator,
          ({ version }) => version,
          () => key,
          compareTexts,
        );
      const isOrdered = typeof given === 'string' && signs[operator] && operator !== 'eq';
      return isOrdered ? isNever : textTest(operator, given);
    },
  };
}

export function numberOperand(value: RawBuilder<unknown>): Operand {
  return {
    type: 'number',
    takes: 'a number',
    operators: ordered,
    compare: (operator, given) =>
      typeof given === 'number' && Number.isFinite(given) ? sql`${value} ${signs[operator]} ${given}` : undefined,
    test: (operator, given) =>
      typeof given === 'number' && Number.isFinite(given)
        ? byOrder(
            operator,
            ({ value: number }) => Number(number),
            () => given,
            compareNumbers,
          )
        : undefined,
    present: sql`${value} is not null`,
    shown: jsonOf(value),
  };
}

/** Degrees, which are kept as text. */
export function degreesOperand(value: RawBuilder<unknown>): Operand {
  const number = numberOperand(sql`cast(${value} as real)`);
  const read = (given: Given) => (typeof given === 'boolean' ? given : (parseNumber(given) ?? false));
  return {
    ...number,
    type: 'degrees',
    compare: (operator, given) => number.compare(operator, read(given)),
    test: (operator, given) => number.test(operator, read(given)),
  };
}

/** Dates as instantOf has them, compared with dates or with what is so long after `now`, in milliseconds since 1970. */
export function dateOperand(value: RawBuilder<unknown>, now: number): Operand {
  return {
    type: 'date',
    takes: 'an ISO 8601 date, or a duration from now, such as "-PT1H"; years and months are not durations',
    operators: ordered,
    compare: (operator, given) => {
      const instant = instantAt(now, given);
      return instant === null ? undefined : sql`${value} ${signs[operator]} ${instant}`;
    },
    test: (operator, given) => {
      if (instantAt(now, given) === null) return undefined;
      // Many rows are looked at in the same millisecond.
      let [known, instant] = [Number.NaN, ''];
      const instantNow = (time: number) => {
        if (time !== known) [known, instant] = [time, instantAt(time, given) ?? ''];
        return instant;
      };
      return byOrder(operator, ({ value: date }) => String(date), instantNow, compareTexts);
    },
    offsetOf: (given) => (parseDate(given) === undefined ? lengthOf(given) : undefined),
    present: sql`${value} is not null`,
    shown: jsonOf(value),
  };
}

export function flagOperand(value: RawBuilder<unknown>): Operand {
  return {
    type: 'flag',
    takes: 'true or false',
    operators: ['eq', 'ne'],
    compare: (_, given) => (typeof given === 'boolean' ? sql`${value} = ${given ? 1 : 0}` : undefined),
    test: (_, given) => (typeof given === 'boolean' ? ({ value: flag }) => flag === (given ? 1 : 0) : undefined),
    present: sql`${value} is not null`,
    shown: sql`case ${value} when 1 then 'true' when 0 then 'false' end`,
  };
}

const duration = /^(-?)P(?=\d|T\d)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/;
const seconds = [7 * 86_400, 86_400, 3600, 60, 1];

/** A date, or what is so long after `now`, as dates are stored; null for what is neither. */
function instantAt(now: number, given: Given): string | null {
  const length = lengthOf(given);
  return instantOf(parseDate(given) ?? (length === undefined ? undefined : now + length));
}

/** Milliseconds of a duration; undefined for what is none. */
function lengthOf(given: Given): number | undefined {
  const [whole, sign, ...parts] = duration.exec(String(given)) ?? [];
  if (whole === undefined) return undefined;
  const length = parts.reduce((sum, part, at) => sum + Number(part ?? 0) * (seconds[at] ?? 0), 0) * 1000;
  return Math.round(sign === '-' ? -length : length);
}
