/** deploy/ against the product, the Dockerfile and each other; its scripts are run with stand-ins for what they call. */
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';
import { ConfigError, readConfig } from '../../src/core/config.ts';
import { limits } from '../../src/core/limits/table.ts';
import { commandSettings, settings } from '../../src/core/settings.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { startProcess } from '../support/process.ts';
import type { List } from '../support/service.ts';

const t = await part(import.meta);

const project = fileURLToPath(new URL('../../', import.meta.url));
const page = (...path: string[]) => readFileSync(join(project, ...path), 'utf8');
const dockerfile = page('Dockerfile');
const known = new Set([...Object.values(settings), ...limits, ...commandSettings].map(({ variable }) => variable));

t.test('every setting that deploy/ names is one', (t) => {
  const files = readdirSync(join(project, 'deploy'), { recursive: true, withFileTypes: true });
  let named = 0;
  for (const file of files.filter((one) => one.isFile()))
    for (const [name] of readFileSync(join(file.parentPath, file.name), 'utf8').matchAll(/\bSLIPWAY_[A-Z_]+\b/g)) {
      named += 1;
      t.ok(known.has(name), `${file.name}: ${name}`);
    }
  t.ok(named > 10);
  t.end();
});

interface Named {
  metadata: { name: string };
}
interface Container {
  image: string;
  ports: Array<{ name: string; containerPort: number }>;
  volumeMounts: Array<{ name: string; mountPath: string }>;
  envFrom: object[];
  securityContext: { readOnlyRootFilesystem?: boolean };
  startupProbe: Probe;
  livenessProbe: Probe;
  readinessProbe: Probe;
}
interface Probe {
  exec: { command: string[] };
}
interface Pod {
  containers: List<Container>;
  volumes: List<{ name: string; secret: { secretName: string } }>;
  securityContext: { runAsUser: number; runAsGroup: number; runAsNonRoot?: boolean };
  enableServiceLinks: boolean;
}
interface Selector {
  matchLabels: object;
}

/** What the tests read of each kind of document in deploy/kubernetes. */
interface Kinds {
  ConfigMap: Named & { data: Record<string, string> };
  Kustomization: { resources: string[]; images: object[]; namespace: string };
  Namespace: Named;
  NetworkPolicy: {
    spec: { podSelector: Selector; ingress: Array<{ ports: List<{ port: string }>; from: object[] }> };
  };
  PodDisruptionBudget: { spec: { selector: Selector } };
  Service: Named & { spec: { selector: object; ports: List<{ port: number; targetPort: string }> } };
  StatefulSet: {
    spec: {
      replicas: number;
      serviceName: string;
      selector: Selector;
      template: { metadata: { labels: object }; spec: Pod };
      volumeClaimTemplates: Named[];
    };
  };
}

t.test('deploy/kubernetes', async (t) => {
  const folder = 'deploy/kubernetes';
  const documents = readdirSync(join(project, folder)).flatMap((file) =>
    parseAllDocuments(page(folder, file), { merge: true }).map((document) => {
      t.strictSame(document.errors, [], file);
      return { file, ...(document.toJS() as { kind: string }) };
    }),
  );
  const all = <K extends keyof Kinds>(kind: K) => {
    const found: unknown[] = documents.filter((one) => one.kind === kind);
    return found as List<Kinds[K]>;
  };
  const [set] = all('StatefulSet');
  const pod = set.spec.template.spec;
  const [container] = pod.containers;
  const labels = set.spec.template.metadata.labels;
  const ports: Record<string, number> = Object.fromEntries(
    container.ports.map(({ name, containerPort }) => [name, containerPort]),
  );
  const [{ data: given }] = all('ConfigMap');

  t.test('the kustomization has every file but the example of a storage class, and the version of the product', (t) => {
    const [{ resources, images, namespace }] = all('Kustomization');
    const others = documents.map(({ file }) => file).filter((file) => !/kustomization|storage-class/.test(file));
    t.strictSame([...new Set(others)].sort(), [...resources].sort());
    t.strictSame(images, [{ name: container.image, newTag: JSON.parse(page('package.json')).version }]);
    t.equal(namespace, all('Namespace')[0].metadata.name);
    t.end();
  });

  t.test('one process, with the ports, the user and the health check of the image', (t) => {
    t.equal(set.spec.replicas, 1);
    t.strictSame(Object.values(ports), /^EXPOSE (.*)$/m.exec(dockerfile)?.[1]?.split(' ').map(Number));
    const { runAsUser, runAsGroup, runAsNonRoot } = pod.securityContext;
    t.equal(`${runAsUser}:${runAsGroup}`, /^USER (.*)$/m.exec(dockerfile)?.[1]);
    t.ok(runAsNonRoot && container.securityContext.readOnlyRootFilesystem);
    const check = JSON.parse(/^HEALTHCHECK .* CMD (\[.*\])$/m.exec(dockerfile)?.[1] ?? '[]');
    t.strictSame(container.startupProbe.exec.command, check);
    t.strictSame(container.livenessProbe.exec.command, check);
    t.strictSame(container.readinessProbe.exec.command, [...check, '--ready']);
    t.end();
  });

  t.test('its mounts exist, and the settings point into them', (t) => {
    const volumes = [
      ...pod.volumes.map(({ name }) => name),
      ...set.spec.volumeClaimTemplates.map((claim) => claim.metadata.name),
    ];
    const mounts: Record<string, string> = Object.fromEntries(
      container.volumeMounts.map(({ name, mountPath }) => [name, mountPath]),
    );
    t.strictSame(Object.keys(mounts).sort(), volumes.sort());
    t.match(
      given.SLIPWAY_DATA_DIR,
      new RegExp(`^${mounts.data}/.`),
      'not the root of the volume, which the group can open',
    );
    for (const name of ['SLIPWAY_TLS_CERT', 'SLIPWAY_TLS_KEY'])
      t.match(given[name], new RegExp(`^${mounts.tls}/tls\\.`));
    const { SLIPWAY_TLS_CERT, SLIPWAY_TLS_KEY, ...rest } = given;
    t.strictSame(readConfig({ ...rest }, '/').unknown, []);
    t.strictSame(
      container.envFrom.map((from) => Object.values(from)[0]),
      [{ name: all('ConfigMap')[0].metadata.name }, { name: 'slipway-secrets' }],
    );
    t.equal(pod.volumes[0].secret.secretName, 'slipway-tls');
    t.end();
  });

  t.test('Services, budget and policy select the pod and name its ports', (t) => {
    t.strictSame(set.spec.selector.matchLabels, labels);
    for (const { spec } of all('Service')) {
      t.strictSame(spec.selector, labels);
      for (const { targetPort } of spec.ports) t.ok(targetPort in ports, targetPort);
    }
    t.ok(all('Service').some(({ metadata }) => metadata.name === set.spec.serviceName));
    t.strictSame(all('PodDisruptionBudget')[0].spec.selector.matchLabels, labels);
    const { podSelector, ingress } = all('NetworkPolicy')[0].spec;
    t.strictSame(podSelector.matchLabels, labels);
    const open = ingress.flatMap((rule) => rule.ports.map(({ port }) => port));
    t.strictSame(open.sort(), Object.keys(ports).sort());
    t.equal(ingress.find((rule) => rule.ports[0].port === 'mqtt')?.from.length, 1, 'not for everyone');
    t.end();
  });

  t.test('variables that Kubernetes makes of the Services would stop the start, so they are off', (t) => {
    t.equal(pod.enableServiceLinks, false);
    const link = Object.fromEntries(
      all('Service').map(({ metadata, spec }) => [
        `${metadata.name.toUpperCase().replaceAll('-', '_')}_PORT`,
        `tcp://10.0.0.1:${spec.ports[0].port}`,
      ]),
    );
    t.throws(() => readConfig(link, '/'), ConfigError);
    t.end();
  });
});

t.test('deploy/systemd: the units are valid, and fit the program', async (t) => {
  const directory = temporaryDirectory(t);
  const unit = page('deploy/systemd/slipway.service');
  const value = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1];
  const [program = '', file = ''] = (value('ExecStart') ?? '').split(' ');
  t.equal(program, `${value('WorkingDirectory')}/node_modules/.bin/node`);
  t.ok(existsSync(join(project, file)), file);
  t.equal(value('RestartPreventExitStatus'), /fencedCode = (\d+)/.exec(page('src/process/run.ts'))?.[1]);
  t.equal(value('ExecReload'), '/bin/kill -HUP $MAINPID');
  t.match(page('docs/operations.md'), 'deploy/systemd');
  if (!existsSync('/usr/bin/systemd-analyze')) {
    t.comment('systemd-analyze is not installed, so the units are not verified');
    return;
  }
  for (const name of readdirSync(join(project, 'deploy/systemd')))
    writeFileSync(
      join(directory, name),
      page('deploy/systemd', name).replaceAll(program, '/bin/true').replaceAll('/opt/slipway', directory),
    );
  const units = readdirSync(directory).map((name) => join(directory, name));
  const { code, stderr } = await runShell(['systemd-analyze', 'verify', ...units]);
  t.strictSame({ code, stderr }, { code: 0, stderr: '' });
});

t.test('a reload does not end a server without TLS', async (t) => {
  const server = await startProcess(t, temporaryDirectory(t));
  process.kill(server.child.pid as number, 'SIGHUP');
  t.equal((await fetch(`${server.url}/health/live`)).status, 200);
  t.equal(await server.stop('SIGTERM'), 0, 'it ended by SIGTERM');
});

/** Runs a command with `stand-ins` first on the path; each is a shell script. */
async function runShell(command: string[], path = '', env: Record<string, string> = {}) {
  try {
    const options = { env: { ...process.env, PATH: `${path}:${process.env.PATH}`, ...env }, stdio: 'pipe' as const };
    const stdout = execFileSync(command[0] as string, command.slice(1), options).toString();
    return { code: 0, stdout, stderr: '' };
  } catch (error) {
    const { status, stdout, stderr } = error as { status: number; stdout: Buffer; stderr: Buffer };
    return { code: status, stdout: `${stdout}`, stderr: `${stderr}` };
  }
}

function standIns(directory: string, scripts: Record<string, string>): string {
  const path = join(directory, 'bin');
  mkdirSync(path, { recursive: true });
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(path, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(path, name), 0o755);
  }
  return path;
}

t.test('the resource agent tells a stopped server from one that hangs, and waits for both ends', async (t) => {
  const directory = temporaryDirectory(t);
  const state = join(directory, 'state');
  const bin = standIns(directory, {
    systemctl: `case "$1" in
      is-active) grep -q active ${state} ;;
      start) [ -e ${directory}/broken ] || { printf 'active starting' > ${state}; echo started >> ${directory}/calls; } ;;
      stop) [ -e ${directory}/stuck ] || printf stopped > ${state} ;;
    esac`,
    runuser: `grep -q healthy ${state}`,
    // The wait between two looks: the server answers after it.
    sleep: `printf 'active healthy' > ${state}`,
  });
  mkdirSync(join(directory, 'bin'), { recursive: true });
  writeFileSync(join(directory, 'bin/slipway.cjs'), '');
  const agent = join(directory, 'agent');
  cpSync(join(project, 'deploy/pacemaker/slipway'), agent);
  const run = (action: string) => runShell(['sh', agent, action], bin, { OCF_RESKEY_directory: directory });
  const codeOf = async (action: string) => (await run(action)).code;
  writeFileSync(state, 'stopped');
  t.equal(await codeOf('monitor'), 7);
  t.equal(await codeOf('start'), 0, 'returns when it answers');
  t.equal(await codeOf('monitor'), 0);
  t.equal(await codeOf('start'), 0, 'again has no effect');
  t.equal(readFileSync(join(directory, 'calls'), 'utf8'), 'started\n');
  writeFileSync(state, 'active hanging');
  t.equal(await codeOf('monitor'), 1);
  writeFileSync(join(directory, 'stuck'), '');
  t.equal(await codeOf('stop'), 1, 'what still runs has not stopped');
  execFileSync('rm', [join(directory, 'stuck')]);
  t.equal(await codeOf('stop'), 0);
  t.equal(await codeOf('stop'), 0, 'again has no effect');
  writeFileSync(join(directory, 'broken'), '');
  t.equal(await codeOf('start'), 1, 'a unit that ends at once');
  t.equal(await codeOf('promote'), 3);
  const { stdout } = await run('meta-data');
  t.match(stdout, /^<\?xml version="1\.0"\?>/);
  for (const action of ['start', 'stop', 'monitor', 'validate-all', 'meta-data'])
    t.match(stdout, `action name="${action}"`);
  execFileSync('rm', [join(directory, 'bin/slipway.cjs')]);
  t.equal(await codeOf('validate-all'), 5);
});

t.test('the cluster configuration names one volume, in the order that keeps the bytes safe', (t) => {
  const text = page('deploy/pacemaker/cluster.crm').replace(/\\\n/g, ' ');
  const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
  const of = (kind: string) => lines.filter((line) => line.startsWith(`${kind} `)).map((line) => line.split(/\s+/));
  const names = [...of('primitive'), ...of('clone'), ...of('group')].map(([, name]) => name);
  const [[, group, ...members] = []] = of('group');
  t.strictSame(members, ['slipway-volume', 'slipway-server', 'slipway-address']);
  for (const name of members) t.ok(names.includes(name), name);
  t.match(of('colocation')[0]?.slice(2), ['inf:', group, 'slipway-drbd-clone:Promoted']);
  t.match(of('order')[0]?.slice(2), ['Mandatory:', 'slipway-drbd-clone:promote', `${group}:start`]);
  t.match(text, /property stonith-enabled=true/);
  const fenced = of('location').map(([, , device, score, node]) => [device, score, node]);
  t.strictSame(fenced, [
    ['fence-a', '-inf:', 'node-a'],
    ['fence-b', '-inf:', 'node-b'],
  ]);
  const drbd = page('deploy/pacemaker/slipway.res');
  t.match(drbd, /^ +protocol C;$/m);
  t.match(drbd, /^ +fencing resource-and-stonith;$/m);
  t.equal((drbd.match(/after-sb-\dpri disconnect;/g) ?? []).length, 3);
  t.match(text, `drbd_resource=${/^resource (\w+)/m.exec(drbd)?.[1]} `);
  t.match(text, `device=${/device (\S+);/.exec(drbd)?.[1]} directory=/var/lib/slipway `);
  for (const [, node = ''] of drbd.matchAll(/^ +on (\S+) /gm)) t.match(text, `pcmk_host_list=${node} `);
  const mount = /AssertPathIsMountPoint=(.*)/.exec(page('deploy/pacemaker/slipway.service.d/pacemaker.conf'))?.[1];
  t.equal(mount, '/var/lib/slipway');
  t.end();
});

t.test('the check of the cluster names what would keep the other node from taking over', async (t) => {
  const good = {
    drbdadm: `case "$1" in
      cstate) echo "\${CSTATE:-Connected}" ;;
      dstate) echo "\${DSTATE:-UpToDate/UpToDate}" ;;
      dump) printf '    net {\\n        protocol         %s;\\n        fencing          %s;\\n' "\${PROTOCOL:-C}" "\${FENCING:-resource-and-stonith}" ;;
    esac`,
    crm_attribute: `echo "\${STONITH:-true}"`,
    crm_mon: `printf '  * 2 nodes configured\\n  * Online: [ node-a node-b ]\\n%s    * slipway-server (ocf:slipway:slipway): %s node-a\\n' "\${MORE:-}" "\${SERVER:-Started}"`,
  };
  const bin = standIns(temporaryDirectory(t), good);
  const check = (env: Record<string, string> = {}) =>
    runShell(['sh', join(project, 'deploy/pacemaker/check.sh')], bin, env);
  const fine = await check();
  t.equal(fine.code, 0, fine.stdout);
  t.equal(fine.stdout.match(/^ok /gm)?.length, 10);
  for (const [name, value, line] of [
    ['CSTATE', 'Connecting', 'replicate'],
    ['DSTATE', 'UpToDate/Outdated', 'current'],
    ['PROTOCOL', 'A', 'protocol C'],
    ['FENCING', 'dont-care', 'waits for fencing'],
    ['STONITH', 'false', 'fencing is on'],
    ['MORE', '  * OFFLINE: [ node-b ]\n', 'offline'],
    ['MORE', 'Failed Resource Actions:\n', 'failed'],
    ['MORE', 'Negative Location Constraints:\n drbd-fence-by-handler-slipway\n', 'banned'],
    ['SERVER', 'Stopped', 'server runs'],
  ] as const) {
    const { code, stdout } = await check({ [name]: value });
    t.equal(code, 1, `${name}=${value}`);
    t.match(stdout, new RegExp(`^FAIL .*${line}`, 'm'));
    t.equal(stdout.match(/^FAIL/gm)?.length, 1, stdout);
  }
});

t.end();
