/** The OpenAPI document as its users take it: linted, made into a typed client, and with a maximum for all that they send. */
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { documentOf, type OpenApi, type Parameter, partOf, type Schema } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

/** Inside the checkout, so that the client finds its packages. */
const directory = join(process.cwd(), `dist/test/openapi-client-${process.pid}`);
let service: Service;
let document: string;
t.before(async () => {
  service = await sharedService(t);
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

/** Where a schema lets a text or an array be of any length, as paths within it. */
function unbounded(
  document: OpenApi,
  schema: Schema | boolean | undefined,
  path: string,
  seen: ReadonlySet<string> = new Set(),
): string[] {
  if (typeof schema !== 'object') return [];
  if (typeof schema.$ref === 'string') {
    if (seen.has(schema.$ref)) return [];
    return unbounded(document, partOf<Schema>(document, schema.$ref), path, new Set([...seen, schema.$ref]));
  }
  const types = [schema.type].flat();
  const isFixed = schema.const !== undefined || schema.enum !== undefined;
  const isLong = types.includes('string') && !isFixed && schema.maxLength === undefined && schema.format !== 'binary';
  const isMany = types.includes('array') && schema.maxItems === undefined;
  const within = [
    ...(['anyOf', 'oneOf', 'allOf'] as const).flatMap((how) => (schema[how] ?? []).map((one) => [one, path] as const)),
    ...Object.entries(schema.properties ?? {}).map(([name, one]) => [one, `${path}.${name}`] as const),
    [schema.items, `${path}[]`] as const,
    [schema.additionalProperties, `${path}.*`] as const,
  ];
  return [...(isLong || isMany ? [path] : []), ...within.flatMap(([one, at]) => unbounded(document, one, at, seen))];
}

t.test('every text and every array that a caller sends has a maximum', async (t) => {
  const document = documentOf(service);
  const found: string[] = [];
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const about = `${method.toUpperCase()} ${path}`;
      for (const given of operation.parameters ?? []) {
        const parameter = given.$ref ? partOf<Parameter>(document, given.$ref) : given;
        found.push(...unbounded(document, parameter.schema, `${about} ${parameter.in} ${parameter.name}`));
      }
      for (const [type, { schema }] of Object.entries(operation.requestBody?.content ?? {}))
        found.push(...unbounded(document, schema, `${about} ${type} `));
    }
  t.strictSame(found, []);
});

t.test('what exceeds a maximum is refused, and says where', async (t) => {
  const { accountId } = service;
  const long = 'x'.repeat(8193);
  const refused = (path: string) => ({ status: 400, body: { error: { code: 106, details: [{ path }] } } });
  t.match(
    await service.http('GET', `/api/v1/devices?accountId=${accountId}&serialNumber=${long}`),
    refused('serialNumber'),
  );
  const body = { accountId, serialNumber: '1', organizationId: long };
  t.match(await service.http('POST', '/api/v1/devices', { body }), refused('organizationId'));
  const ids = Array.from({ length: 50_001 }, (_, n) => `${n}`);
  t.match(await service.http('POST', '/api/v1/devices/jobs', { body: { action: 'delete', ids } }), refused('ids'));
});

t.end();
