/** One limit. A row in one of the lists of limits is all that a new one needs, besides the code that enforces it. */
export interface Limit {
  name: string;
  variable: string;
  default: number;
  /** The smallest and the largest value that the variable takes. */
  min: number;
  max: number;
  /** Whether 0 switches it off. */
  off: boolean;
  unit: 'items' | 'bytes' | 'seconds' | 'hours' | 'per second' | 'per minute' | 'per 15 minutes' | 'per hour';
  /** The scope: what has this limit each. Accounts do not see limits of the whole service. */
  per: string;
  /** The bounded thing and the effect of exceeding it, for docs/limits.md. */
  about: string;
  /** Whether an account's current use is counted; `limitUse` then has a function of this name. */
  counted: boolean;
  /** Bytes of memory that one unit of it takes at most while it is kept, or why it takes none of its own. */
  memory:
    | number
    | 'on disk'
    | 'of a connection'
    | 'of a request'
    | 'of a message'
    | 'a rate'
    | 'a time'
    | `in ${string}`;
}

/** A row whose name and `counted` are known to the types. */
export const row = <const L extends Limit>(limit: L): L => limit;
export const million = 1_000_000;
export const maxBytes = 999_999_999_999_999;
