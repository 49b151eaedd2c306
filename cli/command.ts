/** What a command of `slipway` says about itself: help, suggestions, completion and the parsed values follow from it. */

/** A flag. Without `value` it is a switch. Its name on the command line is its key in kebab-case. */
export interface Flag {
  /** What its value is called in help: FILE, SECONDS. */
  readonly value?: string;
  readonly about: string;
  readonly required?: true;
  /** May be given several times. */
  readonly list?: true;
  /** A whole number in this range. */
  readonly whole?: { readonly min: number; readonly max: number; readonly default: number };
  readonly choices?: readonly string[];
  /** The value when the flag stands alone. */
  readonly bare?: string;
  /** What the command does without it. */
  readonly otherwise?: string;
  /** What completion offers. */
  readonly completes?: 'files' | 'directories';
}

export type Flags = Readonly<Record<string, Flag>>;

/** The type of a flag's value: text, number, list or switch. */
type Value<F extends Flag> = F extends { readonly list: true }
  ? string[]
  : F extends { readonly whole: object }
    ? number
    : F extends { readonly value: string }
      ? F extends { readonly required: true }
        ? Text<F>
        : Text<F> | undefined
      : boolean;

type Text<F extends Flag> = F extends { readonly choices: readonly (infer Choice)[] } ? Choice : string;

/** The values of a command's flags, by their keys. */
export type Given<F extends Flags> = { readonly [Name in keyof F]: Value<F[Name]> };

/** An argument without a flag, such as a file. */
export interface Operand {
  readonly name: string;
  readonly about: string;
  readonly many?: true;
  readonly optional?: true;
  readonly choices?: readonly string[];
}

/** Headings of `slipway --help`, in its order. */
export const groups = [
  'Login',
  'Server',
  'Accounts and keys',
  'Backup',
  'Factory and firmware',
  'Devices',
  'Several servers',
  'Shell',
] as const;

export interface Command<F extends Flags = Flags> {
  /** As it is typed after `slipway`: one or two words. */
  readonly words: string;
  readonly group: (typeof groups)[number];
  /** One line without a full stop. */
  readonly summary: string;
  /** Sentences that its own help adds. */
  readonly about?: string;
  readonly operands?: readonly Operand[];
  readonly flags: F;
  /** An empty value counts as not given, so that a script may pass an unset variable. Otherwise it is refused. */
  readonly ignoresEmpty?: true;
  /** What its exit codes mean, where that is more than 0 done and 2 not done. */
  readonly exitCodes?: Readonly<Record<number, string>>;
  readonly examples: readonly string[];
  /** Loads the code of the command only when it is called. */
  run(given: Given<F>, operands: readonly string[]): Promise<void>;
}

/** Checks that the code of a command takes the flags of its row. */
export function command<const F extends Flags>(row: Command<F>): Command {
  return row as unknown as Command;
}

/** The flag of a key: adminEmail is --admin-email. */
export function flagOf(key: string): string {
  return `--${key.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`)}`;
}
