import { execFile, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';
import type { Test } from 'tap';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { mainFile, plainNode } from '../support/process.ts';

const t = await part(import.meta);

const project = fileURLToPath(new URL('../../', import.meta.url));
const json = (file: string) => JSON.parse(readFileSync(join(project, file), 'utf8'));

/** The checks in a folder with these files, where Slipway needs this Node. */
function folder(t: Test, files: string[], needs = '>=22.14') {
  const directory = temporaryDirectory(t);
  cpSync(join(project, 'bin'), join(directory, 'bin'), { recursive: true });
  writeFileSync(join(directory, 'package.json'), JSON.stringify({ engines: { node: needs } }));
  for (const file of files) {
    mkdirSync(join(directory, file, '..'), { recursive: true });
    writeFileSync(join(directory, file), 'console.log("it runs");');
  }
  return (...command: string[]) =>
    new Promise<{ code: unknown; said: string }>((resolve) => {
      execFile('env', [...plainNode, ...command], { cwd: directory }, (error, stdout, stderr) =>
        resolve({ code: error?.code ?? 0, said: stdout + stderr }),
      );
    });
}

const checkout = ['tsconfig.build.json', 'dist/src/main.js', 'dist/cli/main.js', 'node_modules/typescript'];

t.test('a Node that is too old is named in the first line, with what to do', async (t) => {
  const runIn = folder(t, checkout, '>=99.12');
  for (const command of [['bin/check.cjs'], ['bin/check.cjs', 'build'], ['bin/slipway.cjs', 'start']]) {
    const { code, said } = await runIn(...command);
    t.equal(code, 1);
    t.equal(
      said.split('\n')[0],
      `Slipway needs Node 99.12 or newer; this is Node ${process.versions.node} (${process.execPath}).`,
    );
    t.match(said, 'Run `npm ci` without --omit=dev and --ignore-scripts');
    t.notMatch(said, 'it runs');
  }
  const installed = folder(t, checkout.slice(1), '>=99.12');
  t.match(await installed('bin/slipway.cjs'), { code: 1, said: /Install a newer Node\.\n$/ });
});

t.test('the next minor version counts too, and the Node of the checkout is new enough', async (t) => {
  const [major, minor] = process.versions.node.split('.').map(Number);
  t.match(await folder(t, checkout, `>=${major}.${Number(minor) + 1}`)('bin/check.cjs'), { code: 1 });
  t.same(await folder(t, checkout, `>=${major}.${minor}`)('bin/check.cjs'), { code: 0, said: '' });
  const { engines } = json('package.json');
  t.same(await folder(t, checkout, engines.node)('bin/slipway.cjs'), { code: 0, said: 'it runs\n' });
});

t.test('in a checkout, the command runs with the Node that npm ci has brought', async (t) => {
  const directory = temporaryDirectory(t);
  const own = join(directory, 'node_modules/node/bin');
  cpSync(join(project, 'bin'), join(directory, 'bin'), { recursive: true });
  for (const file of [...checkout, 'node_modules/node/bin/node'])
    mkdirSync(join(directory, file, '..'), { recursive: true });
  for (const file of checkout) writeFileSync(join(directory, file), '');
  writeFileSync(join(directory, 'package.json'), JSON.stringify({ engines: { node: '>=99.12' } }));
  writeFileSync(join(own, 'node'), '#!/bin/sh\necho "own $2"; exit 3\n', { mode: 0o755 });
  const ran = spawnSync('env', [...plainNode, 'bin/slipway.cjs', 'doctor'], { cwd: directory, encoding: 'utf8' });
  t.same([ran.stdout, ran.stderr, ran.status], ['own doctor\n', '', 3]);
});

t.test('without npm the server says it too', async (t) => {
  for (const version of ['20.20.2', '22.13.1']) {
    const pretend = `data:text/javascript,Object.defineProperty(process.versions,'node',{value:'${version}'})`;
    t.same(await folder(t, [])('--import', pretend, mainFile), {
      code: 1,
      said: `slipway cannot start: it needs Node 22.14 or newer; this is Node ${version}.\n`,
    });
  }
  t.equal(json('package.json').engines.node, '>=22.14', 'src/main.ts names the same version');
});

t.test('an install without development dependencies or scripts says what is missing', async (t) => {
  const withoutDev = await folder(t, ['tsconfig.build.json'])('bin/check.cjs', 'build');
  t.match(withoutDev, { code: 1, said: /^Slipway cannot be built: its development dependencies are not installed\./ });
  const withoutScripts = await folder(t, ['tsconfig.build.json', 'node_modules/typescript'])('bin/check.cjs');
  t.match(withoutScripts, { code: 1, said: /^Slipway is not built: dist\/src\/main\.js does not exist\./ });
});

t.test('an old Node can read the check', async (t) => {
  const { errors } = await transform(readFileSync(join(project, 'bin/check.cjs'), 'utf8'), {
    target: 'es5',
    logLevel: 'silent',
  }).then(
    () => ({ errors: [] }),
    (error) => error,
  );
  t.same(errors, [], 'esbuild refuses what it cannot write in ES5');
});

t.test('each command checks before it runs', async (t) => {
  const { scripts, bin } = json('package.json');
  t.equal(bin.slipway, 'bin/slipway.cjs');
  for (const name of ['prestart', 'build', 'demo']) t.match(scripts[name], /^node bin\/check\.cjs/, name);
  t.match(scripts.pretest, 'build');
});

t.end();
