/** The command line itself: help, mistyped words, completion. What each command does is tested with its part. */
import { execFileSync } from 'node:child_process';
import { flagOf } from '../../cli/command.ts';
import { commands } from '../../cli/table/index.ts';
import { part } from '../support/part.ts';
import { cliFile, runToEnd } from '../support/process.ts';

const t = await part(import.meta);

const slipway = (...args: string[]) => runToEnd(cliFile, args, {});

t.test('help of a command has each flag with its default, the exit codes and an example', async (t) => {
  for (const words of ['provision', 'provision one', 'app create']) {
    const { code, stdout } = await slipway(...words.split(' '), '--help');
    t.equal(code, 0, words);
    const row = commands.find((one) => one.words === words);
    const flags = Object.keys(row?.flags ?? {}).map(flagOf);
    t.strictSame(
      flags.filter((flag) => !stdout.includes(` ${flag} `)),
      [],
      words,
    );
    t.match(stdout, /\nExit codes:\n +0 .*\nExamples:\n {2}slipway /s, words);
  }
  const { stdout } = await slipway('help', 'provision');
  t.match(stdout, /--chunk-rows <N> +rows of one job \(1 to 50000; default: 5000\)/);
});

t.test('help lists every command; without a command it is shown too', async (t) => {
  const { code, stdout } = await slipway();
  t.equal(code, 0);
  const all = commands.map(({ words }) => words);
  t.strictSame(
    all.filter((words) => !stdout.includes(`\n  ${words} `)),
    [],
  );
  t.equal((await slipway('--help')).stdout, stdout);
});

t.test('an example of help names only flags that its command has', (t) => {
  const wrong = commands.flatMap(({ words, flags, examples }) =>
    examples.filter((example) => {
      const named = example.match(/(?<= )--[a-z-]+/g) ?? [];
      return (
        !example.includes(`slipway ${words}`) || named.some((one) => !Object.keys(flags).map(flagOf).includes(one))
      );
    }),
  );
  t.strictSame(wrong, []);
  t.end();
});

t.test('what cannot be understood ends with exit code 2, and the nearest command or flag is named', async (t) => {
  for (const [args, sentence] of [
    ['acount list', /There is no command acount\. Did you mean account\?/],
    ['keys rotat', /There is no command keys rotat\. Did you mean rotate\? See slipway keys --help/],
    ['provision oen --serial x', /There is no command provision oen\./],
    ['provision --drry-run', /Unknown option '--drry-run'\. Did you mean --dry-run\? See slipway provision --help/],
    ['provision --csv x --chunk-rows 0', /--chunk-rows must be a whole number from 1 to 50000\./],
    ['provision one --serial --json', /--serial needs a value/],
    ['app create --name x --kind', /--kind/],
    ['app list more', /Expected 0 arguments but got 1: more/],
    ['admin list --account=', /--account must not be empty/],
    ['start --port 1', /Unknown option '--port'/],
    ['completion tcsh', /SHELL must be one of bash, zsh, fish/],
    ['account', /slipway account is not a command by itself/],
  ] as const) {
    const { code, stderr, stdout } = await slipway(...args.split(' '));
    t.equal(code, 2, args);
    t.match(stderr, sentence, args);
    t.equal(stdout, '', args);
  }
});

t.test('completion of bash offers commands, flags, values and files', async (t) => {
  const cases: Array<[typed: string, offered: string[]]> = [
    ['acc', ['account']],
    ['account ', ['create', 'list', 'move', '--help']],
    ['provision one --dr', []],
    ['provision --dr', ['--dry-run']],
    ['app create --kind ', ['endUserApp', 'backEnd', 'station']],
    ['app create --kind station --max', ['--max-devices']],
    ['provision --csv package.js', ['package.json']],
    ['provision one --template ', []],
    ['backup package.js', ['package.json']],
  ];
  const asked = cases.map(([typed]) => {
    const words = typed.split(' ');
    return `COMP_WORDS=(slipway ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}
      _slipway; echo "\${COMPREPLY[*]}"`;
  });
  const script = `source <(${process.execPath} ${cliFile} completion bash)\n${asked.join('\n')}`;
  const env = { PATH: process.env.PATH };
  const said = execFileSync('bash', ['--norc', '--noprofile', '-c', script], { encoding: 'utf8', env });
  t.strictSame(
    said.trimEnd().split('\n'),
    cases.map(([, offered]) => offered.join(' ')),
  );
});

t.test('zsh runs the completion of bash, and that of fish names each flag', async (t) => {
  const print = async (shell: string) => (await slipway('completion', shell)).stdout;
  const [bash, zsh, fish] = [await print('bash'), await print('zsh'), await print('fish')];
  t.match(zsh, /^autoload -U \+X bashcompinit/);
  t.ok(zsh.endsWith(bash));
  const rules = commands.flatMap(({ words, flags }) =>
    Object.keys(flags).map((key) => `'__slipway_at ${words}' -l ${flagOf(key).slice(2)} `),
  );
  t.strictSame(
    rules.filter((rule) => !fish.includes(rule)),
    [],
  );
});

t.end();
