/** The real HAProxy: the installed one, or Debian's package unpacked into a folder of our own. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endingWithUs } from './ending.ts';

/** The package, and the libraries of it that a small system does not have. */
const packages = ['haproxy', 'liblua5.3-0', 'libopentracing-c-wrapper0', 'libopentracing1', 'libpcre2-8-0'];
const cache = fileURLToPath(new URL('../../node_modules/.cache/haproxy', import.meta.url));
/** Milliseconds that the download may take. */
const patience = 60_000;

interface Program {
  command: string;
  env: Record<string, string>;
}

const program = find();

/** Options of a test: it says so when there is no HAProxy to test with. */
export const withHaproxy = program ? {} : { skip: 'haproxy is not installed' };

function find(): Program | undefined {
  const installed = { command: 'haproxy', env: {} };
  if (isUsable(installed)) return installed;
  const unpacked = {
    command: join(cache, 'usr/sbin/haproxy'),
    env: { LD_LIBRARY_PATH: librariesIn(cache) },
  };
  if (!existsSync(unpacked.command)) unpack();
  unpacked.env.LD_LIBRARY_PATH = librariesIn(cache);
  return isUsable(unpacked) ? unpacked : undefined;
}

function isUsable({ command, env }: Program): boolean {
  return spawnSync(command, ['-v'], { env: { ...process.env, ...env } }).status === 0;
}

/** Debian keeps libraries in a folder for each kind of machine. */
function librariesIn(directory: string): string {
  const root = join(directory, 'usr/lib');
  return existsSync(root)
    ? readdirSync(root)
        .map((name) => join(root, name))
        .join(':')
    : '';
}

/** Touches nothing of the system. Leaves nothing behind if it fails. */
function unpack(): void {
  const parent = join(cache, '..');
  mkdirSync(parent, { recursive: true });
  const partial = mkdtempSync(join(parent, 'haproxy-'));
  const { status } = spawnSync('apt-get', ['download', ...packages], { cwd: partial, timeout: patience });
  const files = status === 0 ? readdirSync(partial).filter((name) => name.endsWith('.deb')) : [];
  const isUnpacked = files.map((file) => spawnSync('dpkg', ['-x', join(partial, file), partial]).status === 0);
  if (files.length === packages.length && isUnpacked.every(Boolean) && !existsSync(cache)) renameSync(partial, cache);
  else rmSync(partial, { recursive: true, force: true });
}

/** What HAProxy says of a configuration: nothing when it is right. */
export function checkConfiguration(file: string): { status: number | null; said: string } {
  const { command, env } = program ?? { command: 'haproxy', env: {} };
  const { status, stderr } = spawnSync(command, ['-c', '-q', '-f', file], { env: { ...process.env, ...env } });
  return { status, said: stderr.toString() };
}

export interface Haproxy {
  pid: number;
  /** One command of the admin socket. */
  ask(command: string): Promise<string>;
  stop(): Promise<void>;
}

/** Starts it on a configuration with this admin socket, and waits until it answers there. */
export async function startHaproxy(
  file: string,
  adminSocket: string,
  more: Record<string, string> = {},
): Promise<Haproxy> {
  const { command, env } = program ?? { command: 'haproxy', env: {} };
  const [first, ...args] = endingWithUs([command, '-db', '-f', file]);
  const child: ChildProcess = spawn(first, args, {
    env: { PATH: process.env.PATH, ...env, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk) => {
      said += chunk;
    });
  const ended = once(child, 'exit');
  const ask = (question: string) => askSocket(adminSocket, question);
  const answered = async () => {
    while (child.exitCode === null)
      if (
        await ask('show info').then(
          () => true,
          () => false,
        )
      )
        return;
    throw new Error(`haproxy ended with ${child.exitCode}: ${said}`);
  };
  await answered();
  return {
    pid: child.pid ?? 0,
    ask,
    stop: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

async function askSocket(path: string, question: string): Promise<string> {
  const socket = connect(path);
  socket.end(`${question}\n`);
  let answer = '';
  for await (const chunk of socket) answer += chunk;
  return answer;
}
