/**
 * `npm run test:image`: builds the Dockerfile with Debian's buildah, on a base of debootstrap with the Node and the npm of this
 * machine, and runs the image as its user. Needs root, buildah and debootstrap. Ends 1 when a step fails.
 */
import { strict as assert } from 'node:assert';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { blocksOf } from '../docs/snippets/pages.ts';
import { makeCertificate } from '../support/certificates.ts';

const run = promisify(execFile);
const project = fileURLToPath(new URL('../../', import.meta.url));
/** Milliseconds that one command may take. */
const timeout = 900_000;
/** Bytes that the image may have more than its base. */
const maxBytes = 100e6;
const { npm_execpath: npm = '', NODE_EXTRA_CA_CERTS: authorities } = process.env;
const [, suite = ''] = /^ARG NODE=\d+-(\w+)-slim$/m.exec(readFileSync(join(project, 'Dockerfile'), 'utf8')) ?? [];

const directory = mkdtempSync(join(tmpdir(), 'slipway-image-'));
const places = ['--root', join(directory, 'storage'), '--runroot', join(directory, 'run'), '--storage-driver', 'vfs'];
const buildah = async (...args: string[]) =>
  (await run('buildah', [...places, ...args], { cwd: project, timeout, maxBuffer: 1e8 })).stdout.trim();

async function step<R>(title: string, work: () => Promise<R>): Promise<R> {
  const from = performance.now();
  const result = await work();
  console.log(`${title} (${((performance.now() - from) / 1000).toFixed(1)} s)`);
  return result;
}

/** A small Debian with Node and npm. It is kept for the next run, which takes a minute less. */
async function makeBase(): Promise<string> {
  const kept = join(project, 'node_modules/.cache/image', `${suite}-${process.version}`);
  if (existsSync(kept)) return kept;
  const made = join(directory, 'base');
  await run('debootstrap', ['--variant=minbase', '--include=libatomic1,libstdc++6', suite, made], { timeout });
  cpSync(process.execPath, join(made, 'usr/local/bin/node'));
  const packages = join(made, 'usr/local/lib/node_modules');
  cpSync(join(dirname(npm), '..'), join(packages, 'npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(made, 'usr/local/bin/npm'));
  if (authorities) cpSync(authorities, join(made, 'etc/authorities.pem'));
  mkdirSync(dirname(kept), { recursive: true });
  await run('mv', [made, kept]);
  return kept;
}

/** Puts the base where the Dockerfile looks for it. */
async function storeBase(base: string): Promise<void> {
  const container = await buildah('from', 'scratch');
  await buildah('copy', '--quiet', container, base, '/');
  const env = [
    'PATH=/usr/local/bin:/usr/bin:/bin',
    ...(authorities ? ['NODE_EXTRA_CA_CERTS=/etc/authorities.pem'] : []),
  ];
  await buildah('config', ...env.flatMap((one) => ['--env', one]), container);
  await buildah('commit', '--quiet', '--rm', container, 'docker.io/library/node:here');
}

const build = (...args: string[]) =>
  buildah('bud', '--format', 'docker', '--isolation', 'chroot', '--network', 'host', '--pull-never', ...args);

/** A command in the container, as the user of the image, with the network of this machine. */
function start(container: string, command: string[], env: Record<string, string>, tls: string) {
  const options = Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
  const more = ['--isolation', 'chroot', '--volume', `${tls}:/app/tls:ro`, ...options, container, '--', ...command];
  const child = spawn('buildah', [...places, 'run', ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  const ended = once(child, 'close').then(([code]) => code as number);
  return { child, ended, output: () => output };
}

/** The server once it listens. `stop` signals it alone: buildah would kill it. @returns its exit code. */
async function serve(...given: Parameters<typeof start>) {
  const server = start(...given);
  while (!/API http/.test(server.output())) {
    await Promise.race([once(server.child.stdout, 'data'), server.ended]);
    assert.equal(server.child.exitCode, null, server.output());
  }
  const stop = (signal: NodeJS.Signals) => {
    let pid = server.child.pid as number;
    for (let next: number | undefined = pid; next; next = childOf(pid)) pid = next;
    process.kill(pid, signal);
    return server.ended;
  };
  return { ...server, stop };
}

/** Whichever thread has started it. */
function childOf(pid: number): number | undefined {
  const threads = readdirSync(`/proc/${pid}/task`);
  const children = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8')).join('');
  return Number.parseInt(children, 10) || undefined;
}

/** Ports that are free now. */
async function freePorts(count: number): Promise<string[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => String((server.address() as { port: number }).port));
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}

async function statusOf(url: string): Promise<number | undefined> {
  const [answer] = await once(request(url, { rejectUnauthorized: false }).end(), 'response');
  answer.resume();
  return answer.statusCode;
}

if (npm === '') throw new Error('Start it as `npm run test:image`: the base gets the npm that runs it.');
try {
  const base = await step('the base', makeBase);
  await step('the base is stored', () => storeBase(base));
  await step('the image is built', () => build('--build-arg', 'NODE=here', '--tag', 'slipway', '.'));
  const container = await buildah('from', '--pull-never', 'localhost/slipway');
  const { config } = JSON.parse(await buildah('inspect', container)).Docker;
  assert.equal(config.User, '1000:1000');
  assert.deepEqual(config.Cmd, ['node', 'dist/src/main.js']);

  const tls = join(directory, 'tls');
  mkdirSync(tls);
  const [http = '', mqtt = '', mqtts = ''] = await freePorts(3);
  const ports = { SLIPWAY_HTTP_PORT: http, SLIPWAY_MQTT_PORT: mqtt, SLIPWAY_MQTTS_PORT: mqtts };
  const plain = { ...ports, SLIPWAY_HOST: '127.0.0.1', SLIPWAY_METRICS_TOKEN: 'of-Prometheus' };
  const secured = { ...plain, SLIPWAY_TLS_CERT: 'tls/cert.pem', SLIPWAY_TLS_KEY: 'tls/key.pem' };
  const call = async (command: string[], env: Record<string, string>) => {
    const { ended, output } = start(container, command, env, tls);
    return { code: await ended, output: output() };
  };
  const health = (env: Record<string, string>, ...more: string[]) =>
    call([...config.Healthcheck.Test.slice(1), ...more], env);

  await step('its size, its user and what that user may write', async () => {
    const { output } = await call(['sh', '-c', 'id -u; du -s -b /app; touch /app/x; touch /data && ls /data'], {});
    const [, user, bytes] = /^(\d+)\n(\d+)\t/.exec(output) ?? [];
    assert.equal(user, '1000', output);
    console.log(`  ${(Number(bytes) / 1e6).toFixed(0)} MB`);
    assert.ok(Number(bytes) < maxBytes, `${bytes} bytes`);
    assert.match(output, /cannot touch '\/app\/x'/);
  });
  await step('a certificate that cannot be read stops the start, and nothing has been made', async () => {
    const refused = await call(config.Cmd, secured);
    assert.notEqual(refused.code, 0);
    assert.match(refused.output, /SLIPWAY_TLS_CERT names a file that cannot be read: .*tls\/cert\.pem/);
    assert.equal((await call(['ls', '/data'], {})).output, '');
  });
  const { cert, key } = await makeCertificate({ subject: 'CN=things.example.com' });
  await writeFile(join(tls, 'cert.pem'), cert);
  await writeFile(join(tls, 'key.pem'), key);
  for (const file of [directory, tls, join(tls, 'cert.pem')]) chmodSync(file, 0o755);
  // A key that others may read is refused.
  chmodSync(join(tls, 'key.pem'), 0o400);
  chownSync(join(tls, 'key.pem'), 1000, 1000);
  await step('it runs with TLS, says whether it is healthy, and ends when it is told to', async () => {
    const server = await serve(container, config.Cmd, secured, tls);
    assert.match(server.output(), /API https:/);
    assert.match(server.output(), /password/);
    assert.equal(await statusOf(`https://127.0.0.1:${http}/docs/static/swagger-ui-bundle.js`), 200);
    assert.equal(await statusOf(`https://127.0.0.1:${http}/console/`), 200);
    assert.equal(await statusOf(`https://127.0.0.1:${http}/guide/mqtt`), 200);
    assert.match((await health(secured)).output, /"live":true/);
    assert.notEqual((await health({ ...secured, SLIPWAY_METRICS_TOKEN: 'another' })).code, 0);
    assert.equal(await server.stop('SIGTERM'), 0, server.output());
  });
  await step('it starts again with its data, and is ready', async () => {
    const server = await serve(container, config.Cmd, plain, tls);
    assert.doesNotMatch(server.output(), /password/);
    assert.match((await health(plain, '--ready')).output, /"ready":true/);
    assert.match((await call(['slipway', 'account', 'list'], plain)).output, /\S{36}/);
    assert.equal(await server.stop('SIGINT'), 0, server.output());
    assert.match((await health(plain)).output, /The server does not answer/);
  });
  await step('an image of your own with the library of a bridge, as docs/operations.md has it', async () => {
    const own = blocksOf('docs/operations.md').find(({ text }) => text.startsWith('FROM slipway'))?.text ?? '';
    await writeFile(join(directory, 'Dockerfile'), own);
    await build('--tag', 'own', '--file', join(directory, 'Dockerfile'), tls);
    const other = await buildah('from', '--pull-never', 'localhost/own');
    const found = "console.log(import.meta.resolve('@platformatic/kafka'))";
    const { ended, output } = start(other, ['node', '--input-type=module', '-e', found], {}, tls);
    assert.equal(await ended, 0, output());
    assert.match(output(), /node_modules\/@platformatic\/kafka/);
  });
} finally {
  rmSync(directory, { recursive: true, force: true });
}
