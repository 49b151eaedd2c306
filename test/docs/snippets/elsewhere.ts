/** What pages show and a test cannot run, why, and what is checked instead. */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { transformSync } from 'esbuild';
import { parse as parseYaml } from 'yaml';
import { flagOf } from '../../../cli/command.ts';
import { commands } from '../../../cli/table/index.ts';

export interface Elsewhere {
  page: string;
  /** A text that the block has. */
  has: string;
  reason: string;
  /** @throws Error when the block is wrong. */
  check(text: string): void;
}

/** A row for each block that is not run. */
const row = (page: string, has: string, reason: string, check: Elsewhere['check']): Elsewhere => ({
  page,
  has,
  reason,
  check,
});

const root = 'needs root, and changes the machine';
const container = 'needs a container engine';
const fleet = 'needs another machine';
const picture = 'is a picture or the form of an answer';

export const elsewhere: readonly Elsewhere[] = [
  row('README.md', 'Slipway, one process', picture, () => {}),
  row('README.md', 'npm ci && npm start', 'is what the tests begin with: .ci/run, npm run test:nodes', shell),
  row('CONTRIBUTING.md', 'sqlStep(', 'is a part of a program', (text) => typescript(`[${text}]`)),
  row('CONTRIBUTING.md', 'modelName: column(', 'is a part of a program', (text) => typescript(`({${text}})`)),
  row('CONTRIBUTING.md', 'commonColumns', 'is a part of a program', (text) => typescript(`async () => { ${text} }`)),
  row('CONTRIBUTING.md', 'EntityList<', 'is a part of a program', typescript),
  row('docs/architecture.md', 'src/http', picture, () => {}),
  row('docs/architecture.md', 'broker/packets', picture, () => {}),
  row('docs/bridges.md', 'nats stream add', 'needs the nats command, which Debian does not have', shell),
  row('docs/debugging.md', 'journalctl', 'needs systemd', shell),
  row('docs/debugging.md', '--cpu-prof', 'starts the service of a checkout for a profile', shell),
  row(
    'examples/README.md',
    'request.py',
    'runs until it is stopped; test/docs/snippets/devices.test.ts runs it',
    shell,
  ),
  row('examples/README.md', 'enroll.py', 'asks a group; test/docs/snippets/devices.test.ts runs it', shell),
  row('docs/factory.md', '/usr/local/bin/slipway', root, shell),
  row(
    'docs/factory.md',
    'slipway start',
    'listens on the ports of the machine; test/flows/process.test.ts starts it',
    shell,
  ),
  row('docs/high-availability.md', 'kubectl taint', fleet, shell),
  row('docs/high-availability.md', 'umount', root, shell),
  row('docs/high-availability.md', 'while sleep 0.2', fleet, shell),
  row('docs/identity.md', 'groupsClaim', 'is a part of a body; test/identity/groups.test.ts sends it', JSON.parse),
  row('docs/messages.md', 'event: gap', picture, () => {}),
  row('docs/operations.md', 'useradd', root, shell),
  row('docs/operations.md', 'docker compose logs', container, shell),
  row('docs/operations.md', 'fullchain.pem', container, shell),
  row('docs/operations.md', '--profile monitoring', container, shell),
  row('docs/operations.md', 'FROM slipway', `${container}; npm run test:image builds it`, () => {}),
  row('docs/operations.md', 'before-upgrade', root, shell),
  row(
    'docs/operations.md',
    'slipway data give-up',
    'it gives data up; test/operations/used-directory.test.ts runs it',
    shell,
  ),
  row('docs/operations.md', 'scrape_configs', 'needs Prometheus', (text) => parseYaml(text)),
  row('docs/operations.md', 'slipway account move', `${root}; test/slow/account-move.test.ts runs it`, shell),
  row('docs/performance.md', 'npm run bench', 'takes an hour; test/bench/figures.test.ts runs a part of it', shell),
  row('docs/permissions.md', '"principal"', picture, (text) => {
    for (const line of text.trim().split('\n')) JSON.parse(line);
  }),
  row('docs/scaling.md', 'cells:', 'is a file; test/commands/cells reads such files', (text) => parseYaml(text)),
  row('docs/scaling.md', 'accounts:', 'is a part of a file', (text) => parseYaml(text)),
  row('docs/scaling.md', 'slipway cells check', 'needs HAProxy; test/commands/cells runs it', shell),
  row('docs/scaling.md', 'slipway account move', 'needs HAProxy; test/slow/account-move-live.test.ts runs it', shell),
];

/** Commands of a shell: they can be parsed, and those of ours exist with their flags. */
function shell(text: string): void {
  const { status, stderr } = spawnSync('bash', ['-n'], { input: text, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${text}\n${stderr}`);
  for (const line of text.replaceAll('\\\n', ' ').split('\n')) {
    const wrong = ownCommand(line.replace(/(^| )#.*/, ''));
    if (wrong) throw new Error(`${line}: ${wrong}`);
  }
}

function typescript(text: string): void {
  transformSync(text, { loader: 'ts' });
}

const scripts: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

/** What is wrong with the calls of npm and slipway in a line. */
function ownCommand(line: string): string | undefined {
  for (const [, name = ''] of line.matchAll(/\bnpm run (?:-s )?([\w:]+)/g))
    if (!(name in scripts)) return `package.json has no script ${name}`;
  for (const [, name = '', args = ''] of line.matchAll(/\bnpm run (?:-s )?([\w:]+) -- ([^`|;&]*)/g)) {
    const unknown = (args.match(/(?<![\w-])--[\w-]+/g) ?? []).find((flag) => !takesFlag(name, flag));
    if (unknown) return `npm run ${name} has no flag ${unknown}`;
  }
  for (const [, path = ''] of line.matchAll(/\bnode (?:\/opt\/slipway\/)?((?!-)[\w/.]+\.m?js)\b/g)) {
    const source = path.replace(/^dist\//, '').replace(/\.js$/, '.ts');
    if (![path, source].some((one) => existsSync(one) || existsSync(`examples/node/${one}`)))
      return `${path} does not exist`;
  }
  const calls = /(?<=(?:^|[|;&(]|exec (?:-T )?slipway|run --rm slipway) *(?:[A-Z_]+=\S* +)*)slipway [a-z-][^|;&)`]*/g;
  for (const [call = ''] of line.matchAll(calls)) {
    const wrong = ownCall(call);
    if (wrong) return wrong;
  }
  return undefined;
}

/** Whether the folder of the program that a script starts names a flag; --help is shown by all. */
function takesFlag(script: string, flag: string): boolean {
  const [, program] = /node dist\/(\S+)\.js/.exec(scripts[script] ?? '') ?? [];
  if (program === undefined || flag === '--help') return true;
  const name = new RegExp(`\\b${flag.slice(2)}\\b`);
  return globSync(`${dirname(program)}/*.ts`).some((file) => name.test(readFileSync(file, 'utf8')));
}

/** A call of slipway, as the table of commands has it. Capitals and dots stand for something. */
function ownCall(call: string): string | undefined {
  const [, ...words] = call.trim().split(/\s+/);
  const named = words.filter((word) => /^[a-z][a-z-]*$/.test(word));
  const known = (count: number) =>
    commands.filter((one) => `${one.words} `.startsWith(`${named.slice(0, count).join(' ')} `));
  if (named.length === 0 || named[0] === 'completion' || named[0] === 'help') return undefined;
  let count = named.length;
  while (count > 0 && known(count).length === 0) count -= 1;
  if (count === 0) return `there is no command ${named[0]}`;
  const flags = new Set(known(count).flatMap((one) => Object.keys(one.flags).map(flagOf)));
  const unknown = (call.match(/(?<![\w-])--[a-z-]+/g) ?? []).find((flag) => !flags.has(flag) && flag !== '--help');
  return unknown && `slipway ${named.slice(0, count).join(' ')} has no flag ${unknown}`;
}

/** Programs that sentences tell people to run, and that are not ours: the commands are parsed. */
const others =
  /^(?:sudo |[A-Z_]+=\S+ )*(?:curl|docker|kubectl|drbdadm|crm|systemctl|journalctl|haproxy|git|idf\.py|go|pip|make|cp|cd|nats-server|mosquitto|mosquitto_pub|python3|chmod|openssl|mkfs\.ext4|ulimit|age|gpg|rsync|echo|nats|brew|apt) \S/;

/** What is wrong with the code in a sentence, if it is a command. */
export function checkWords(text: string): string | undefined {
  if (/^(?:[A-Z_]+=\S+ )*(?:npm|npx|node|slipway) /.test(text)) return ownCommand(text);
  if (!others.test(text)) return undefined;
  const input = text.replaceAll(/[…<>[\]]/g, '_');
  const { status, stderr } = spawnSync('bash', ['-n'], { input, encoding: 'utf8' });
  return status === 0 ? undefined : stderr;
}
