import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { readConfig } from '../../src/config.ts';
import { makeCertificate } from '../support/certificates.ts';
import { temporaryDirectory } from '../support/directory.ts';

const run = promisify(execFile);
const project = fileURLToPath(new URL('../../../', import.meta.url));
const page = (file: string) => readFileSync(join(project, file), 'utf8');

/** Of each instruction of the Dockerfile its name and the rest, in one line. */
const instructions = page('Dockerfile')
  .replace(/^#.*\n/gm, '')
  .replaceAll(/\s*\\\n\s*/g, ' ')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => [line.slice(0, line.indexOf(' ')), line.slice(line.indexOf(' ') + 1)] as const);
const second = instructions.findLastIndex(([name]) => name === 'FROM');
const all = (name: string) => instructions.filter(([one]) => one === name).map(([, rest]) => rest);
/** In the stage that runs: the last one counts. */
const last = (name: string) => instructions.slice(second).findLast(([one]) => one === name)?.[1] ?? '';
const commandOf = (text: string): string[] => JSON.parse(text.slice(text.indexOf('[')));
const pairs = (text: string) =>
  Object.fromEntries([...text.matchAll(/(\S+?)=(\S+)/g)].map(([, key, value]) => [key, value]));

interface ComposeService {
  profiles?: string[];
  image: string;
  ports: string[];
  volumes: string[];
  secrets?: string[];
  environment: Record<string, string>;
  mem_limit?: string;
  pids_limit?: number;
  ulimits: { nofile?: number };
  stop_grace_period: string;
}

interface Compose {
  services: Record<'slipway' | 'prometheus' | 'grafana', ComposeService>;
  volumes: Record<string, unknown>;
  secrets: Record<string, { environment?: string }>;
}

/** As compose reads its file, with these variables. */
function compose(variables: Record<string, string | undefined> = {}): Compose {
  const value = (name: string) => variables[name] ?? '';
  return parse(
    page('docker-compose.yml').replaceAll(/\$\{(\w+)(?::([-+])([^}]*))?\}/g, (_, name, sign, word) =>
      sign === '+' ? value(name) && word : value(name) || (word ?? ''),
    ),
  );
}

/** Another user than the one who runs the tests, where that is possible, as in the image. */
const [uid = 0] = last('USER').split(':').map(Number);
const asUser = process.getuid?.() === 0 ? { uid, gid: uid } : {};

/** What the image has: the application, the command on the path, and a directory for the data. */
let image: { app: string; data: string; path: string };
t.before(async () => {
  const directory = temporaryDirectory(t);
  // The image's files are for every user, as COPY leaves them.
  process.umask(0o022);
  chmodSync(directory, 0o755);
  // Built where nothing lies but what the Dockerfile copies.
  const context = join(directory, 'context');
  for (const source of copied()) cpSync(join(project, source), join(context, source), { recursive: true });
  symlinkSync(join(project, 'node_modules'), join(context, 'node_modules'));
  const app = join(directory, 'app');
  const [, target = ''] = /^node build\.mjs --image (\S+)$/.exec(all('RUN').at(-2) ?? '') ?? [];
  t.equal(last('COPY'), `--from=build ${target} ./`);
  const build = ['-u', 'NODE_OPTIONS', process.execPath, 'build.mjs', '--image'];
  await run('env', [...build, app], { cwd: context });
  await t.rejects(run('env', [...build, context], { cwd: context }), 'what is there already is not taken away');
  t.ok(existsSync(join(context, 'build.mjs')));
  const [, command = '', name = ''] = /ln -s (\S+) \/usr\/local\/bin\/(\w+) /.exec(last('RUN')) ?? [];
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  symlinkSync(command.replace(last('WORKDIR'), app), join(bin, name));
  const data = join(directory, 'data');
  mkdirSync(data, { mode: 0o700 });
  if (asUser.uid !== undefined) chownSync(data, uid, uid);
  image = { app, data, path: `${bin}:${dirname(process.execPath)}:/usr/bin:/bin` };
});

/** What the build stage takes from the repository. */
function copied(): string[] {
  return all('COPY').flatMap((rest) => (rest.startsWith('--from') ? [] : rest.split(' ').slice(0, -1)));
}

/** Nothing of the application can be written any more, by the user that runs it; until the test ends. */
function makeReadOnly(t: Test): void {
  const folders = readdirSync(image.app, { recursive: true, withFileTypes: true }).filter((one) => one.isDirectory());
  const places = [image.app, ...folders.map(({ parentPath, name }) => join(parentPath, name))];
  for (const place of places) chmodSync(place, 0o555);
  t.teardown(() => places.map((place) => chmodSync(place, 0o755)));
}

/** A process as a container would start it. */
function start(command: string[], env: Record<string, string>) {
  const child = spawn('env', ['-u', 'NODE_OPTIONS', ...command], {
    cwd: image.app,
    env: { ...pairs(last('ENV')), PATH: image.path, ...env },
    stdio: 'pipe',
    ...asUser,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk;
    });
  const ended = once(child, 'close').then(([code, signal]) => code ?? signal);
  return { child, ended, output: () => output };
}

async function service(t: Test, env: Record<string, string>): Promise<ReturnType<typeof start>> {
  const started = start(commandOf(last('CMD')), env);
  t.teardown(() => started.child.kill('SIGKILL'));
  const listening = (async () => {
    while (!/API http/.test(started.output())) await once(started.child.stdout, 'data');
  })();
  await Promise.race([listening, started.ended]);
  t.match(started.output(), /API http/);
  return started;
}

async function health(env: Record<string, string>, ...more: string[]): Promise<{ code: number; output: string }> {
  const { ended, output } = start([...commandOf(last('HEALTHCHECK')), ...more], env);
  return { code: await ended, output: output() };
}

/** Ports that are free now. */
async function freePorts(count: number): Promise<string[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => String((server.address() as { port: number }).port));
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}

t.test(
  'the Dockerfile copies what is there, lets nothing else in, and runs what `npm start` runs, not as root',
  async (t) => {
    const known = 'ARG CMD COPY ENV EXPOSE FROM HEALTHCHECK LABEL RUN STOPSIGNAL USER VOLUME WORKDIR'.split(' ');
    t.same([...new Set(instructions.map(([name]) => name))].sort(), known);
    const ignored = page('.dockerignore')
      .split('\n')
      .filter((line) => line && !line.startsWith('#'));
    t.equal(ignored[0], '*');
    t.same(
      ignored.slice(1).sort(),
      copied()
        .map((source) => `!${source}`)
        .sort(),
    );
    const bases = all('FROM').map((rest) => rest.replace(/ AS .*/, ''));
    t.equal(bases.length, 2);
    t.equal(bases[0], bases[1], 'built with the Node that runs it');
    t.notOk(
      all('RUN').some((command) => /apt-get|g\+\+|rebuild/.test(command)),
      'nothing is compiled',
    );
    t.match(all('ARG'), [/^NODE=\d+-\w+-slim$/]);
    t.ok(uid > 0);
    t.equal(commandOf(last('CMD')).join(' '), JSON.parse(page('package.json')).scripts.start);
  },
);

t.test('every variable in Dockerfile and docker-compose.yml is a setting', async (t) => {
  const names = [page('Dockerfile'), page('docker-compose.yml')].flatMap(
    (text) => text.match(/SLIPWAY_[A-Z0-9_]+/g) ?? [],
  );
  t.ok(names.length > 10);
  t.same(readConfig(Object.fromEntries(names.map((name) => [name, '']))).unknown, []);
});

t.test('compose starts one node, closed to the network, with nothing to write but its data', async (t) => {
  const { services, volumes, secrets } = compose();
  const byDefault = Object.entries(services).flatMap(([name, { profiles }]) => (profiles ? [] : [name]));
  t.same(byDefault, ['slipway']);
  const { slipway } = services;
  t.match(slipway, { read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] });
  t.ok(slipway.mem_limit && slipway.pids_limit && slipway.ulimits.nofile);
  t.ok(Number.parseInt(slipway.stop_grace_period, 10) >= 10, 'twice as long as it takes to end');
  t.same(
    slipway.ports.map((port) => Number(port.split(':').at(-1))).sort(),
    last('EXPOSE').split(' ').map(Number).sort(),
  );
  t.equal(slipway.environment.SLIPWAY_DATA_DIR, last('VOLUME'));
  for (const variables of [{}, { SLIPWAY_TLS_CERT: 'tls/cert.pem' }])
    for (const [name, { ports, image: tag, volumes: mounts, secrets: used = [] }] of Object.entries(
      compose(variables).services,
    )) {
      for (const port of ports) t.match(port, /^127\.0\.0\.1:\d+:\d+$/, `${name} is published here only`);
      if (name !== 'slipway') t.match(tag, /:v?\d+\.\d+\.\d+$/, `${name} has a version`);
      for (const secret of used) t.ok(secrets[secret]?.environment);
      for (const mount of mounts) {
        const [source = ''] = mount.split(':');
        // The certificates are the operator's.
        if (source !== './tls')
          t.ok(source.startsWith('./') ? existsSync(join(project, source)) : source in volumes, mount);
      }
    }
  const open = compose({ PUBLISH_ADDRESS: '0.0.0.0' }).services.slipway.ports;
  t.same(
    open,
    ['0.0.0.0:3000:3000', '0.0.0.0:8883:8883', '127.0.0.1:1883:1883'],
    'MQTT without TLS is asked for by itself',
  );
});

t.test('Prometheus and Grafana find what they are told, with TLS and without', async (t) => {
  const { prometheus, slipway } = compose().services;
  const settings = parse(page('docs/prometheus/prometheus.yml'));
  for (const file of settings.rule_files) t.ok(parse(page(`docs/prometheus/${file}`)).groups.length > 0);
  const [{ authorization, file_sd_configs: found, job_name: job }] = settings.scrape_configs;
  t.equal(job, 'slipway', 'as in alarms and dashboard');
  t.equal(authorization.credentials_file, `/run/secrets/${prometheus.secrets?.[0]}`);
  for (const [variables, scheme] of [
    [{}, 'http'],
    [{ SLIPWAY_TLS_CERT: 'tls/cert.pem' }, 'https'],
  ] as const) {
    const mounts = compose(variables).services.prometheus.volumes;
    const [source = ''] = mounts.find((mount) => mount.includes(`:${found[0].files[0]}:`))?.split(':') ?? [];
    const target = { targets: [`slipway:${slipway.environment.SLIPWAY_HTTP_PORT}`], labels: { __scheme__: scheme } };
    t.same(parse(page(source)), [target]);
  }
  const [{ url }] = parse(page('docs/grafana/provisioning/datasources/prometheus.yml')).datasources;
  t.equal(url, 'http://prometheus:9090');
  const [{ options }] = parse(page('docs/grafana/provisioning/dashboards/slipway.yml')).providers;
  const mounted = compose().services.grafana.volumes;
  t.ok(mounted.includes(`./docs/grafana:${options.path}:ro`));
  const boards = readdirSync(join(project, 'docs/grafana')).filter((file) => file.endsWith('.json'));
  t.ok(boards.length > 0);
  for (const board of boards) t.ok(JSON.parse(page(`docs/grafana/${board}`)).panels.length > 0);
});

t.test('what is loaded next to the modules of the build is in the image, and nothing is left over', async (t) => {
  const dist = join(image.app, 'dist');
  const files = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.js'));
  t.same(
    files.filter((file) => /demo|test|bench/.test(dirname(file))),
    [],
  );
  const resolve = createRequire(join(dist, 'x.js')).resolve;
  for (const file of files) {
    const text = readFileSync(join(dist, file), 'utf8');
    const asked = text.matchAll(/createRequire\d*\(.{1,160}?\)\("([^"]+)"\)/g);
    // cbor-x works without its compiled part, and tries whether it is there.
    for (const [, name = ''] of [...asked].filter(([, one]) => one !== 'cbor-extract'))
      t.ok(resolve(name).startsWith(image.app) || name.startsWith('node:'), `${file}: ${name}`);
  }
  const size = readdirSync(image.app, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  t.ok(size < 20e6, `${size} bytes`);
});

t.test('it runs as the image runs it: another user, nothing to write; TLS, health, its end', async (t) => {
  const { app, data } = image;
  const [http = '', mqtt = '', mqtts = ''] = await freePorts(3);
  const settings = {
    SLIPWAY_TLS_CERT: 'tls/cert.pem',
    SLIPWAY_TLS_KEY: 'tls/key.pem',
    SLIPWAY_METRICS_TOKEN: 'of-Prometheus',
  };
  const here = {
    SLIPWAY_HOST: '127.0.0.1',
    SLIPWAY_HTTP_PORT: http,
    SLIPWAY_MQTT_PORT: mqtt,
    SLIPWAY_MQTTS_PORT: mqtts,
    SLIPWAY_DATA_DIR: data,
    SLIPWAY_DNS_SERVERS: '127.0.0.1:9',
  };
  const env = { ...compose(settings).services.slipway.environment, ...settings, ...here };

  const refused = start(commandOf(last('CMD')), env);
  t.equal(await refused.ended, 1);
  t.match(
    refused.output(),
    'SLIPWAY_TLS_CERT names a file that cannot be read: tls/cert.pem',
    'and is not half secure',
  );
  t.same(readdirSync(data), [], 'nothing has been made');

  const { cert, key } = await makeCertificate({ subject: 'CN=things.example.com' });
  mkdirSync(join(app, 'tls'));
  writeFileSync(join(app, 'tls/cert.pem'), cert);
  writeFileSync(join(app, 'tls/key.pem'), key, { mode: 0o600 });
  if (asUser.uid !== undefined) chownSync(join(app, 'tls/key.pem'), uid, uid);
  writeFileSync(join(app, '.env'), 'SLIPWAY_LOG_LEVEL=warn\nSLIPWAY_HTTP_PORT=1\n');
  makeReadOnly(t);
  const secured = await service(t, env);
  t.match(secured.output(), new RegExp(`API https://127.0.0.1:${http}`));
  t.match(await health(env), { code: 0, output: '"live":true' });
  t.match(await health({ ...env, SLIPWAY_METRICS_TOKEN: 'another' }), { code: 1, output: 'The server answers 401' });
  const ended = secured.ended;
  secured.child.kill(last('STOPSIGNAL') as NodeJS.Signals);
  t.equal(await ended, 0);

  const plain = { ...compose().services.slipway.environment, ...here };
  const again = await service(t, plain);
  t.notMatch(again.output(), 'password', 'with the data of before');
  t.match(await health(plain, '--ready'), { code: 0, output: '"ready":true' });
  const pages = await fetch(`http://127.0.0.1:${http}/docs/static/swagger-ui-bundle.js`);
  t.equal(pages.status, 200);
  again.child.kill('SIGINT');
  t.equal(await again.ended, 0);
  t.match(await health(plain), { code: 1, output: 'The server does not answer' });
});
