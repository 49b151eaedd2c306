/** The OpenAPI document as its users take it: linted, made into a typed client, and read in a browser. */
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import openapiTS, { astToString } from 'openapi-typescript';
import t from 'tap';
import { adminEmail, adminPassword, type Service, startService } from '../support/service.js';

/** Inside the checkout, so that the client finds its packages. */
const directory = join(process.cwd(), `dist/test/openapi-client-${process.pid}`);
let service: Service;
let document: string;
t.before(async () => {
  service = await startService(t);
  document = (await service.http('GET', '/openapi.json', { token: null })).text;
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'openapi.json'), document);
});
t.teardown(() => rmSync(directory, { recursive: true, force: true }));

/** Runs a program of a package of the checkout. */
async function run(...args: string[]): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, CI: '1' } });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, text };
}

t.test('redocly lint finds no error and no warning in the document', async (t) => {
  const { code, text } = await run(
    'node_modules/@redocly/cli/bin/cli.js',
    'lint',
    '--config=redocly.yaml',
    '--format=summary',
    join(directory, 'openapi.json'),
  );
  t.equal(code, 0, text);
  t.match(text, /Your API description is valid/);
  t.notMatch(text, /warning/i);
});

t.test('the example compiles against types of the document and uses the service', async (t) => {
  writeFileSync(join(directory, 'api.d.ts'), astToString(await openapiTS(document)));
  copyFileSync('examples/typescript-client/devices.ts', join(directory, 'devices.ts'));
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}');
  writeFileSync(
    join(directory, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: {
        strict: true,
        noEmitOnError: true,
        skipLibCheck: true,
        module: 'nodenext',
        target: 'es2024',
        types: ['node'],
        typeRoots: [join(process.cwd(), 'node_modules/@types')],
      },
      files: ['devices.ts'],
    }),
  );
  const compiled = await run('node_modules/typescript/bin/tsc', '-p', directory);
  t.equal(compiled.code, 0, compiled.text);
  const { code, text } = await run(
    join(directory, 'devices.js'),
    service.server.url,
    adminEmail,
    adminPassword,
    service.accountId,
  );
  t.equal(code, 0, text);
  t.strictSame(JSON.parse(text), {
    before: 0,
    firmwareVersion: '1.4.2',
    stale: [412, 108],
    deleted: true,
    recovered: true,
    state: 'defined',
  });
});
