/** What the Dockerfile and docker-compose.yml say. `npm run test:image` builds the image and runs it. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { readConfig } from '../../src/core/config.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const run = promisify(execFile);
const project = fileURLToPath(new URL('../../', import.meta.url));
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

interface ComposeService {
  profiles?: string[];
  image: string;
  ports?: string[];
  volumes: string[];
  secrets?: string[];
  environment: Record<string, string>;
  mem_limit?: string;
  pids_limit?: number;
  ulimits: { nofile?: number };
  stop_grace_period: string;
}

interface Compose {
  services: Record<'slipway' | 'prometheus' | 'grafana' | 'nats', ComposeService>;
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

t.test('the image is built from what is listed, and runs what `npm start` runs, not as root', async (t) => {
  const known = 'ARG CMD COPY ENV EXPOSE FROM HEALTHCHECK LABEL RUN STOPSIGNAL USER VOLUME WORKDIR'.split(' ');
  t.same([...new Set(instructions.map(([name]) => name))].sort(), known);
  const [first, ...listed] = page('.dockerignore')
    .split('\n')
    .filter((line) => line && !line.startsWith('#'));
  t.equal(first, '*');
  for (const line of listed) t.ok(line.startsWith('!') && existsSync(join(project, line.slice(1))), line);
  const bases = all('FROM').map((rest) => rest.replace(/ AS .*/, ''));
  t.equal(bases.length, 2);
  t.equal(bases[0], bases[1], 'built with the Node that runs it');
  t.match(all('ARG'), [/^NODE=\d+-\w+-slim$/]);
  t.equal(/\d+/.exec(String(all('ARG')))?.[0], process.versions.node.split('.')[0], 'the Node of the checkout');
  t.match(last('USER'), /^[1-9]\d*:[1-9]\d*$/);
  t.equal(commandOf(last('CMD')).join(' '), JSON.parse(page('package.json')).scripts.start);
});

t.test('docker-compose.yml is a valid compose file', async (t) => {
  // An address in a variable counts as none for it.
  const options = ['--quiet', '--disable-rule', 'no-unbound-port-interfaces'];
  await t.resolves(run('node_modules/.bin/dclint', ['docker-compose.yml', ...options], { cwd: project }));
});

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
    slipway.ports?.map((port) => Number(port.split(':').at(-1))).sort(),
    last('EXPOSE').split(' ').map(Number).sort(),
  );
  t.equal(slipway.environment.SLIPWAY_DATA_DIR, last('VOLUME'));
  for (const variables of [{}, { SLIPWAY_TLS_CERT: 'tls/cert.pem' }])
    for (const [name, { ports = [], image: tag, volumes: mounts, secrets: used = [] }] of Object.entries(
      compose(variables).services,
    )) {
      for (const port of ports) t.match(port, /^127\.0\.0\.1:\d+:\d+$/, `${name} is published here only`);
      if (name !== 'slipway') t.match(tag, /:v?\d+\.\d+\.\d+(-\w+)?$/, `${name} has a version`);
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

t.end();
