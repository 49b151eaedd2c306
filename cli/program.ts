/** The command line: commander reads it by the table of commands. */
import { Argument, Command as CommanderCommand, CommanderError, Help, Option } from 'commander';
import { type Command, type Flag, flagOf, groups } from './command.ts';
import { commands } from './table/index.ts';
import { UsageError } from './usage.ts';

const usualCodes = { 0: 'done', 2: 'wrong usage, or it cannot be done' };

/** Runs the command that `args` names, or prints help. @throws UsageError for what it does not understand. */
export async function runCommand(args: string[]): Promise<void> {
  const program = buildProgram();
  const [first, ...more] = args;
  if (first === undefined || args.join() === 'help') return program.outputHelp();
  if (first === 'help') return runCommand([...more, '--help']);
  const at = commandAt(program, args);
  demandValues(at, args);
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode !== 0) throw new UsageError(sentenceOf(error, at, args));
  }
}

function buildProgram(): CommanderCommand {
  const program = new CommanderCommand('slipway')
    .description('Slipway, a device provisioning service')
    .usage('<command> [options]')
    .exitOverride()
    .enablePositionalOptions()
    .configureHelp({ formatHelp, subcommandTerm, subcommandDescription: (sub) => sub.summary(), optionDescription })
    // The sentences of errors are printed in one place, by cli.ts.
    .configureOutput({ outputError: () => {} })
    .helpOption('-h, --help', 'shows help; also: slipway COMMAND --help')
    .helpCommand(false)
    .addOption(new Option('-V, --version', 'prints the version'));
  for (const group of groups) for (const row of commands.filter((one) => one.group === group)) addCommand(program, row);
  return program;
}

function addCommand(program: CommanderCommand, row: Command): void {
  const words = row.words.split(' ');
  const name = words.pop() ?? '';
  let parent = program;
  for (const word of words)
    parent =
      parent.commands.find((one) => one.name() === word) ??
      parent.command(word).summary(`${word}: its commands`).helpOption('-h, --help', 'shows help').helpCommand(false);
  const added = parent
    .command(name)
    .summary(row.summary)
    .description(`${row.words}: ${row.summary}.${row.about ? `\n${row.about}` : ''}`)
    .usage([...(row.operands ?? []).map(operandOf), '[options]'].join(' '))
    .helpGroup(`${row.group}:`)
    .helpOption('-h, --help', 'shows help')
    .helpCommand(false)
    .addHelpText('after', afterHelp(row));
  for (const operand of row.operands ?? []) {
    const { about, choices, optional } = operand;
    const shown = optional ? operandOf(operand) : `<${operandOf(operand)}>`;
    added.addArgument(new Argument(shown, choices ? `${about}: ${choices.join(', ')}` : about));
  }
  for (const [key, flag] of Object.entries(row.flags)) added.addOption(optionOf(key, flag));
  added.action(async () => {
    const operands = added.processedArgs
      .flat()
      .filter((one) => one !== undefined)
      .map(String);
    for (const [place, { name, choices }] of (row.operands ?? []).entries())
      if (choices && !choices.includes(operands[place] ?? '')) throw notOne(name, choices);
    await row.run(valuesOf(row, added.opts()), operands);
  });
}

/** As help shows it: FILE, or FILE... */
function operandOf({ name, many, optional }: { name: string; many?: boolean; optional?: boolean }): string {
  return `${optional ? `[${name}]` : name}${many ? '...' : ''}`;
}

function afterHelp({ exitCodes, examples }: Command): string {
  const codes = Object.entries(exitCodes ?? usualCodes).map(([code, meaning]) => `  ${code.padEnd(4)} ${meaning}`);
  return ['', 'Exit codes:', ...codes, '', 'Examples:', ...examples.map((one) => `  ${one}`)].join('\n');
}

function optionOf(key: string, flag: Flag): Option {
  const { value, bare, list } = flag;
  const shown = value === undefined ? '' : bare === undefined ? ` <${value}>` : ` [${value}]`;
  const option = new Option(`${flagOf(key)}${shown}`, `${flag.about}${remarksOf(flag)}`);
  if (bare !== undefined) option.preset(bare);
  if (list) option.argParser((one: string, before: string[] | undefined) => [...(before ?? []), one]);
  return option;
}

function remarksOf({ required, list, choices, whole, otherwise }: Flag): string {
  const without = whole ? `${whole.default}` : otherwise;
  const remarks = [
    required && 'required',
    list && 'may be repeated',
    choices && `one of ${choices.join(', ')}`,
    whole && `${whole.min} to ${whole.max}`,
    without && `default: ${without}`,
  ].filter(Boolean);
  return remarks.length > 0 ? ` (${remarks.join('; ')})` : '';
}

/** The values of a command's flags. @throws UsageError naming the flag that is missing or wrong. */
function valuesOf(row: Command, read: Record<string, unknown>): Record<string, never> {
  const values = Object.entries(row.flags).map(([key, flag]) => [key, readValue(row, key, flag, read[key])]);
  return Object.fromEntries(values);
}

function readValue(row: Command, key: string, flag: Flag, read: unknown): unknown {
  if (flag.value === undefined) return read === true;
  if (flag.list) return read ?? [];
  const text = read === '' && (row.ignoresEmpty || flag.required) ? undefined : read;
  const name = flagOf(key);
  if (text === undefined) {
    if (flag.required) throw flag.choices ? notOne(name, flag.choices) : new UsageError(`${name} is missing.`);
    return flag.whole?.default;
  }
  if (text === '') throw new UsageError(`${name} must not be empty.`);
  if (flag.choices && !flag.choices.includes(`${text}`)) throw notOne(name, flag.choices);
  if (!flag.whole) return text;
  const { min, max } = flag.whole;
  if (!/^\d{1,9}$/.test(`${text}`) || Number(text) < min || Number(text) > max)
    throw new UsageError(`${name} must be a whole number from ${min} to ${max}.`);
  return Number(text);
}

function notOne(name: string, choices: readonly string[]): UsageError {
  return new UsageError(`${name} must be one of ${choices.join(', ')}.`);
}

/** The command that the first words name, as far as they name one. */
function commandAt(program: CommanderCommand, args: readonly string[]): CommanderCommand {
  let at = program;
  for (const word of args) {
    const next = at.commands.find((one) => one.name() === word);
    if (!next) break;
    at = next;
  }
  return at;
}

/** Commander would take `--json` in `--serial --json` as the value. @throws UsageError: a value was forgotten. */
function demandValues(at: CommanderCommand, args: readonly string[]): void {
  for (const [place, arg] of args.entries()) {
    if (arg === '--') return;
    const takesNext = at.options.find((one) => one.long === arg)?.required;
    const next = args[place + 1];
    if (takesNext && next !== undefined && /^-./.test(next))
      throw new UsageError(`${arg} needs a value. For a value that begins with a dash, write ${arg}=${next}.`);
  }
}

/** Commander's message as sentences, with where to look. */
function sentenceOf(error: CommanderError, at: CommanderCommand, args: readonly string[]): string {
  const path = pathOf(at);
  const named = path.join(' ');
  const [first = '', suggestion = ''] = error.message.replace(/^error: /, '').split('\n');
  const next = args[path.length - 1];
  const isMistyped = at.commands.length > 0 && next !== undefined && !next.startsWith('-');
  let wrong = `${first.charAt(0).toUpperCase()}${first.slice(1).replace(/\.?$/, '.')}`;
  if (isMistyped) wrong = `There is no command ${[...path.slice(1), next].join(' ')}.`;
  if (error.code === 'commander.help') wrong = `${named} is not a command by itself.`;
  return [wrong, suggestion.replace(/^\(|\)$/g, ''), `See ${named} --help.`].filter(Boolean).join(' ');
}

function pathOf(command: CommanderCommand): string[] {
  return [...(command.parent ? pathOf(command.parent) : []), command.name()];
}

/** Help lists whole commands, `account create`, and not first words. */
function formatHelp(this: Help, shown: CommanderCommand, helper: Help): string {
  helper.visibleCommands = (of) => leavesBelow(of);
  return Help.prototype.formatHelp.call(helper, shown, helper);
}

function leavesBelow(parent: CommanderCommand): CommanderCommand[] {
  return parent.commands.flatMap((one) => {
    const isCommand = commands.some(({ words }) => words === pathOf(one).slice(1).join(' '));
    return [...(isCommand ? [one] : []), ...leavesBelow(one)];
  });
}

function subcommandTerm(sub: CommanderCommand): string {
  const operands = sub.registeredArguments.map((one) => operandOf({ name: one.name(), many: one.variadic }));
  return [...pathOf(sub).slice(1), ...operands].join(' ');
}

/** Our own remarks say what commander would add. */
function optionDescription(option: Option): string {
  return option.description;
}
