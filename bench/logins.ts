/** What logins cost others, and whether their time tells who exists. The server is a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const tries = 200;
const atOnce = 100;
/** The longest that a request of somebody else may take while so many log in, p99 in milliseconds. */
const figure = 200;
const admin = { emailAddress: 'bench@bench.example', password: 'a password of the bench' };

export async function measureLogins(directory: string): Promise<void> {
  const accountId = '00000000-0000-7000-8000-00000000b0b0';
  const server = spawn(process.execPath, [fileURLToPath(new URL('../src/main.js', import.meta.url))], {
    env: {
      PATH: process.env.PATH,
      SLIPWAY_DATA_DIR: directory,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_LOG_LEVEL: 'warn',
      SLIPWAY_ACCOUNT_ID: accountId,
      SLIPWAY_ADMIN_EMAIL: admin.emailAddress,
      SLIPWAY_ADMIN_PASSWORD: admin.password,
      SLIPWAY_LOGIN_FAILURES_PER_IDENTITY: '0',
      SLIPWAY_LOGIN_FAILURES_PER_ADDRESS: '0',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const url = await addressOf(server.stdout);
    const login = async (body: object) => {
      const response = await fetch(`${url}/auth/login-user`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...admin, accountId, ...body }),
      });
      return (await response.json()) as { jwt?: string };
    };
    await measureTelling(login);
    const { jwt } = await login({});
    const list = () => fetch(`${url}/devices?accountId=${accountId}`, { headers: { authorization: `Bearer ${jwt}` } });
    await measureOthers(login, list);
  } finally {
    server.kill('SIGTERM');
    await once(server, 'exit');
  }
}

/** The time of each kind of failure; the kinds take turns in any order, so that noise is the same for all. */
async function measureTelling(login: (body: object) => Promise<unknown>): Promise<void> {
  const kinds = {
    'unknown e-mail': { emailAddress: 'nobody@bench.example' },
    'wrong password': { password: 'another password' },
    'wrong account': { accountId: '00000000-0000-7000-8000-000000000000' },
  };
  const times = new Map<string, number[]>(Object.keys(kinds).map((name) => [name, []]));
  for (let n = -5; n < tries; n += 1)
    for (const [name, body] of Object.entries(kinds).sort(() => Math.random() - 0.5)) {
      const from = performance.now();
      await login(body);
      if (n >= 0) times.get(name)?.push(performance.now() - from);
    }
  console.log(`\nFailed logins, ${tries} tries of each kind\n`);
  for (const [name, taken] of times) console.log(`  ${name.padEnd(15)} ${described(taken)}`);
  const medians = [...times.values()].map((taken) => at(taken, 0.5));
  console.log(`\n  medians differ by ${(Math.max(...medians) - Math.min(...medians)).toFixed(2)} ms`);
}

/** What somebody else's requests take, alone and while many log in at once. */
async function measureOthers(login: (body: object) => Promise<unknown>, list: () => Promise<Response>): Promise<void> {
  const ask = async (until: () => boolean): Promise<number[]> => {
    const times: number[] = [];
    while (!until()) {
      const from = performance.now();
      await (await list()).arrayBuffer();
      times.push(performance.now() - from);
    }
    return times;
  };
  let left = 500;
  const alone = await ask(() => left-- === 0);
  let open = true;
  const from = performance.now();
  const logins = Promise.all(Array.from({ length: atOnce }, () => login({}))).then(() => {
    open = false;
  });
  const meanwhile = await ask(() => !open);
  await logins;
  console.log(`\nGET /devices for somebody else (figure: p99 < ${figure} ms)\n`);
  console.log(`  alone                  ${described(alone)}`);
  const seconds = ((performance.now() - from) / 1000).toFixed(1);
  console.log(`  beside ${atOnce} logins      ${described(meanwhile)}  (all logged in after ${seconds} s)`);
  console.log(`\n${at(meanwhile, 0.99) < figure ? 'within' : 'NOT within'} the figure`);
}

function at(times: number[], share: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function described(times: number[]): string {
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => at(times, share).toFixed(1).padStart(7));
  return `p50 ${p50}  p95 ${p95}  p99 ${p99} ms, ${times.length} requests`;
}

/** Where the API is, from what the start prints. */
function addressOf(stdout: NodeJS.ReadableStream): Promise<string> {
  let printed = '';
  return new Promise((resolve, reject) => {
    stdout.on('data', (chunk) => {
      printed += chunk;
      const [, url] = /API (http\S+\/api\/v1)/.exec(printed) ?? [];
      if (url) resolve(url);
    });
    stdout.once('end', () => reject(new Error(`the server did not start: ${printed}`)));
  });
}
