/** `slipway completion SHELL`: a script made from the table of commands, so that a TAB starts no process. */
import { type Command, type Flag, flagOf } from './command.ts';

/** What has been typed so far: a command, its first word, or nothing ('') after `slipway`. */
interface TypedPlace {
  path: string;
  row: Command | undefined;
  /** The words that may follow, with the summary of what they name. */
  next: Array<{ word: string; about: string }>;
}

/** Prints the script for bash, zsh or fish. */
export async function completion(shell: string, commands: readonly Command[]): Promise<void> {
  const places = placesOf(commands);
  const script = { bash: bashScript, zsh: zshScript, fish: fishScript }[shell];
  process.stdout.write(script?.(places) ?? '');
}

function placesOf(commands: readonly Command[]): TypedPlace[] {
  const firstWords = commands.flatMap(({ words }) => words.split(' ').slice(0, -1));
  const paths = new Set(['', ...firstWords, ...commands.map(({ words }) => words)]);
  const rowOf = (path: string) => commands.find(({ words }) => words === path);
  return [...paths].map((path) => {
    const before = path === '' ? 0 : path.split(' ').length;
    const below = [...paths].filter((one) => one !== path && one.startsWith(path && `${path} `));
    const next = new Set(
      below.map((one) =>
        one
          .split(' ')
          .slice(0, before + 1)
          .join(' '),
      ),
    );
    return {
      path,
      row: rowOf(path),
      next: [...next].map((one) => {
        const word = one.split(' ').at(-1) ?? '';
        return { word, about: rowOf(one)?.summary ?? `commands of ${word}` };
      }),
    };
  });
}

function flagsOf({ row, path }: TypedPlace): string[] {
  const own = Object.keys(row?.flags ?? {}).map(flagOf);
  return [...own, '--help', ...(path === '' ? ['--version'] : [])];
}

/** The completion of values and operands: words, files, directories or nothing. */
function bashValue({ choices, completes }: Pick<Flag, 'choices' | 'completes'>): string {
  if (choices) return `COMPREPLY=( $(compgen -W '${choices.join(' ')}' -- "$current") )`;
  if (completes === 'directories') return 'COMPREPLY=( $(compgen -d -- "$current") )';
  return completes === 'files' ? 'COMPREPLY=( $(compgen -f -- "$current") )' : 'COMPREPLY=()';
}

function bashScript(places: readonly TypedPlace[]): string {
  const steps = places.filter(({ path }) => path !== '').map(({ path }) => `'${path}'`);
  const cases = places.map((place) => {
    const values = Object.entries(place.row?.flags ?? {})
      .filter(([, { value }]) => value !== undefined)
      // A value that may be left out is offered together with the flags that may follow instead.
      .map(([key, flag]) => `        ${flagOf(key)}) ${bashValue(flag)}${flag.bare ? '' : '; return'} ;;`);
    const [operand] = place.row?.operands ?? [];
    const words = [...place.next.map(({ word }) => word), ...(operand?.choices ?? []), ...flagsOf(place)].join(' ');
    const offered = `COMPREPLY+=( $(compgen -W '${words}' -- "$current") )`;
    const files = operand && !operand.choices ? '\n      COMPREPLY+=( $(compgen -f -- "$current") )' : '';
    const branch = values.length > 0 ? `      case "$previous" in\n${values.join('\n')}\n      esac\n` : '';
    return `    '${place.path}')\n${branch}      ${offered}${files}\n      ;;`;
  });
  return `# Completion of slipway for bash: source <(slipway completion bash)
_slipway() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" path='' word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case "\${path:+$path }$word" in
      ${steps.join('|')}) path="\${path:+$path }$word" ;;
      *) break ;;
    esac
  done
  COMPREPLY=()
  case "$path" in
${cases.join('\n')}
  esac
}
complete -o filenames -F _slipway slipway
`;
}

/** Zsh runs the script of bash. */
function zshScript(places: readonly TypedPlace[]): string {
  return `autoload -U +X bashcompinit && bashcompinit\n${bashScript(places)}`;
}

function fishScript(places: readonly TypedPlace[]): string {
  const quoted = (text: string) => `'${text.replace(/[\\']/g, '\\$&')}'`;
  const lines = places.flatMap(({ path, row, next }) => {
    const rule = `complete -c slipway -n ${quoted(`__slipway_at ${path}`)}`;
    const below = next.map(({ word, about }) => `${rule} -a ${word} -d ${quoted(about)}`);
    const flags = Object.entries(row?.flags ?? {}).map(([key, flag]) => {
      const { value, choices, completes, bare } = flag;
      const needs = value === undefined || bare !== undefined ? '' : completes ? ' -r -F' : ' -x';
      const values = choices ? ` -a ${quoted(choices.join(' '))}` : '';
      return `${rule} -l ${flagOf(key).slice(2)}${needs}${values} -d ${quoted(flag.about)}`;
    });
    const operands = (row?.operands ?? []).map(({ choices }) =>
      choices ? `${rule} -a ${quoted(choices.join(' '))}` : `${rule} -F`,
    );
    return [...below, ...flags, `${rule} -l help -d 'shows help'`, ...operands];
  });
  return `# Completion of slipway for fish: slipway completion fish > ~/.config/fish/completions/slipway.fish
# True when the command so far is these words, and the next word is no further part of it.
function __slipway_at
    set -l typed (commandline -opc)[2..]
    set -l count (count $argv)
    test (count $typed) -ge $count; or return 1
    if test $count -gt 0
        test "$typed[1..$count]" = "$argv"; or return 1
    end
    test (count $typed) -gt $count; or return 0
    set -l longer (string join ' ' -- $typed[1..(math $count + 1)])
    not contains -- "$longer" ${places
      .filter(({ path }) => path !== '')
      .map(({ path }) => `'${path}'`)
      .join(' ')}
end
complete -c slipway -f
${lines.join('\n')}
`;
}
