/**
 * `npm run test:nodes [-- 22 24 26]`: the package of the last build on each of these Nodes, which npm fetches into
 * node_modules/.cache, side by side. It is installed into an empty folder where no compiler is found. Ends 1 when a step fails.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const project = fileURLToPath(new URL('../../', import.meta.url));
const { npm_execpath: npm = '', NODE_OPTIONS: _, ...environment } = process.env;
/** Milliseconds that one command may take. */
const timeout = 120_000;
const versions = process.argv.length > 2 ? process.argv.slice(2) : ['22.14', '24', '26'];

/** The executable of the newest Node of a version. */
async function nodeOf(version: string): Promise<string> {
  const prefix = join(project, 'node_modules/.cache/nodes', version);
  const executable = join(prefix, 'node_modules/node/bin/node');
  mkdirSync(prefix, { recursive: true });
  if (!existsSync(executable))
    await run(process.execPath, [npm, 'install', '--prefix', prefix, '--no-audit', '--no-fund', `node@${version}`], {
      cwd: prefix,
      env: environment,
      timeout,
    });
  return executable;
}

async function step(node: string, title: string, work: () => Promise<unknown>): Promise<void> {
  const from = performance.now();
  try {
    await work();
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string };
    throw new Error(`Node ${node}: ${title} failed: ${(error as Error).message}\n${stdout}${stderr}`);
  }
  console.log(`Node ${node}: ${title} (${((performance.now() - from) / 1000).toFixed(1)} s)`);
}

/** As the README says: `npx slipway start`, and the printed password logs in. */
async function start(
  command: string[],
  cwd: string,
  env: Record<string, string>,
  check: (url: string, accountId: string | undefined, token: string) => Promise<void>,
): Promise<void> {
  const [node = '', ...args] = command;
  const settings = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0', SLIPWAY_DATA_DIR: join(cwd, 'data') };
  // A group of its own: npx, the shell and the server end together, whatever happens here.
  const child = spawn(node, args, { cwd, env: { ...env, ...settings }, stdio: 'pipe', detached: true });
  const ended = once(child, 'close');
  const watchdog = setTimeout(() => process.kill(-(child.pid as number), 'SIGKILL'), timeout);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  try {
    while (!/^MQTT \S+/m.test(output) && child.exitCode === null)
      await Promise.race([once(child.stdout, 'data'), ended]);
    const [, url] = /API (http\S+)\/api\/v1/.exec(output) ?? [];
    const [, accountId] = /account\s+(\S{36})/.exec(output) ?? [];
    const [, emailAddress] = /e-?mail\s+(\S+)/.exec(output) ?? [];
    const [, password] = /password\s+(\S+)\n/.exec(output) ?? [];
    if (!url) throw new Error(`it printed no address: ${output}`);
    const login = await fetch(`${url}/api/v1/auth/login-user`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ accountId, emailAddress, password }),
    });
    if (login.status !== 200) throw new Error(`login answered ${login.status}: ${output}`);
    await check(url, accountId, ((await login.json()) as { jwt: string }).jwt);
    for (const path of ['/docs/static/swagger-ui-bundle.js', '/guide/mqtt']) {
      const { status } = await fetch(`${url}${path}`);
      if (status !== 200) throw new Error(`${path} answered ${status}`);
    }
    process.kill(-(child.pid as number), 'SIGTERM');
    await ended;
  } finally {
    clearTimeout(watchdog);
    if (child.exitCode === null && child.signalCode === null) process.kill(-(child.pid as number), 'SIGKILL');
  }
}

async function demandLibrary(url: string, accountId: string | undefined, token: string): Promise<void> {
  const answer = await fetch(`${url}/api/v1/bridges`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ accountId, name: 'Kafka', kind: 'kafka', url: 'kafkas://kafka.example.com' }),
  });
  const text = await answer.text();
  if (answer.status !== 400 || !text.includes('npm install @platformatic/kafka'))
    throw new Error(`the bridge answered ${answer.status}: ${text}`);
}

async function tryPackage(version: string, packed: string, directory: string): Promise<void> {
  const node = await nodeOf(version);
  const name = (await run(node, ['--version'])).stdout.trim().slice(1);
  const tools = join(directory, 'bin');
  const folder = join(directory, 'project');
  for (const place of [tools, folder]) mkdirSync(place, { recursive: true });
  // Without it npm would look for a project in the folders above.
  writeFileSync(join(folder, 'package.json'), '{}');
  symlinkSync(node, join(tools, 'node'));
  symlinkSync('/bin/sh', join(tools, 'sh'));
  // Nothing else is found: no compiler, no Python.
  const env = { ...environment, PATH: tools };
  const npx = join(dirname(npm), 'npx-cli.js');
  await step(name, 'the package, installed without a compiler', () =>
    run(node, [npm, 'install', '--no-audit', '--no-fund', packed], { cwd: folder, env, timeout }),
  );
  await step(name, 'npx slipway start, a login, and a bridge that says which library is missing', () =>
    start([node, npx, 'slipway', 'start'], folder, env, demandLibrary),
  );
  await step(name, 'the list of packages', async () => {
    const list = JSON.parse(readFileSync(join(folder, 'node_modules/slipway/sbom.cdx.json'), 'utf8'));
    const names: string[] = list.components.map(({ name }: { name: string }) => name);
    if (list.bomFormat !== 'CycloneDX' || !names.includes('fastify') || names.includes('tap'))
      throw new Error(`it lists ${names}`);
  });
  await step(name, "the package's demo", () =>
    run(node, ['node_modules/slipway/dist/demo/demo.js'], { cwd: folder, env, timeout }),
  );
}

if (npm === '') throw new Error('Start it as `npm run test:nodes`: npm fetches the Nodes and packs the package.');
const directory = mkdtempSync(join(tmpdir(), 'slipway-nodes-'));
try {
  const options = { cwd: project, env: environment, timeout };
  await run(process.execPath, [npm, 'run', 'prepack'], options);
  // Without its scripts npm does not build again.
  await run(process.execPath, [npm, 'pack', '--ignore-scripts', '--pack-destination', directory], options);
  const [filename = ''] = readdirSync(directory);
  console.log(`${filename}, ${(statSync(join(directory, filename)).size / 1e6).toFixed(1)} MB`);
  const packed = join(directory, filename);
  const tried = versions.map((version) => tryPackage(version, packed, join(directory, version)));
  for (const result of await Promise.allSettled(tried)) if (result.status === 'rejected') throw result.reason;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
