/**
 * Holds the tables of docs/api.md against the OpenAPI document and the callers that it names against the service.
 * `UPDATE_API_TABLE=1 npx tap test/http/api-table.test.ts` in the root of the project writes the tables.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { documentOf, type OpenApi, type Operation, type Schema } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

const file = 'docs/api.md';
const [begin, end] = ['<!-- endpoints -->', '<!-- /endpoints -->'];
const kinds: Record<string, string> = { endUser: 'end-user', backEnd: 'back-end', endUserApp: 'app for end-users' };
/** Admins, end-users, newcomers, back-ends, applications for end-users, stations. */
const kindsOfCallers = 6;

let service: Service;
type Row = Operation & { method: string; path: string };
let operations: Row[];
let groups: OpenApi['tags'];
t.before(async () => {
  service = await startService(t);
  const document = documentOf(service);
  groups = document.tags;
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, ...operation })),
  );
});

/** An operation as a line of the table. */
function rowOf({ method, path, summary, 'x-callers': callers, ...operation }: Row): string {
  const named = callers.map((kind: string) => kinds[kind] ?? kind).join(', ');
  const who = callers.length === kindsOfCallers ? 'everybody who is logged in' : named;
  return `| ${method} | \`${path}\` | ${summary} | ${who} | ${codesOf(operation)} |`;
}

/** Its codes but those that the head of docs/api.md reports all endpoints; 106 and -199 with the status of a rare one. */
function codesOf({ security, 'x-codes': codes }: Pick<Operation, 'security' | 'x-codes'>): string {
  const general = ['413', '415', '500', '503', '507', ...(security.length > 0 ? ['401', '429'] : [])];
  const shown = Object.entries(codes)
    .filter(([status]) => !general.includes(status))
    .map(([status, list]) => [status, list.filter((code) => code !== 20 && code !== 'WrongTokenError')] as const)
    .flatMap(([status, list]) =>
      list.map((code) => ((code === 106 && status !== '400') || code === -199 ? `${code} (${status})` : String(code))),
    );
  return [...new Set(shown)].sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).join(', ');
}

function tables(): string {
  return groups
    .map(({ name, description }) => {
      const rows = operations.filter(({ tags }) => tags[0] === name).map(rowOf);
      const head = ['| method | path | what it does | who | errors |', '|---|---|---|---|---|'];
      return [`### ${name}`, '', description, '', ...head, ...rows].join('\n');
    })
    .join('\n\n');
}

t.test('docs/api.md has a row for every operation, and every row an operation', async (t) => {
  const text = readFileSync(file, 'utf8');
  const [head = '', rest = ''] = text.split(`${begin}\n`);
  const [written = '', tail = ''] = rest.split(`\n${end}`);
  if (process.env.UPDATE_API_TABLE) return writeFileSync(file, `${head}${begin}\n${tables()}\n${end}${tail}`);
  const rows = written.split('\n').filter((line) => line.startsWith('| ') && !line.startsWith('| method'));
  const wanted = operations.map(rowOf);
  // A title is on one line, ready to paste; UPDATE_API_TABLE=1 writes them all.
  for (const row of wanted) t.ok(rows.includes(row), `has the row ${row}`);
  for (const row of rows) t.ok(wanted.includes(row), `has an operation for ${row}`);
  t.equal(written, tables(), 'the rows are in their groups, in the order of the routes');
});

t.test('docs/api.md names every code with its status', async (t) => {
  const text = readFileSync(file, 'utf8');
  for (const { tags, 'x-codes': codes } of operations.filter(({ tags }) => tags[0] !== 'Identity'))
    for (const [status, list] of Object.entries(codes))
      for (const code of list)
        t.match(text, new RegExp(`^\\| ${code} \\|[^|\\n]*\\b${status}\\b`, 'm'), `${tags[0]}: ${code} with ${status}`);
});

t.test('who is not named is refused, and who is named is not refused for what it is', async (t) => {
  const gone = await service.endUser((await service.organization()).id);
  await service.ok('DELETE', `/api/v1/end-users/${gone.endUser.id}`, { headers: { etag: gone.endUser.version } });
  const there = await service.endUser((await service.organization()).id);
  const tokens: Record<string, string> = { admin: service.admin, endUser: there.token, newcomer: gone.token };
  const { id: deviceTemplateId } = await service.template();
  const limits = { deviceTemplateId, maxDevices: 1, expiresAt: '2999-01-01' };
  for (const kind of ['backEnd', 'endUserApp', 'station']) {
    const made = { name: kind, kind, ...(kind === 'station' && limits) };
    const { id: appId, appToken } = await service.create('/applications', 'application', made);
    const body = { appId, appToken, accountId: service.accountId };
    tokens[kind] = (await service.ok('POST', '/api/v1/auth/login-application', { body, token: null })).jwt;
  }
  // Logging out ends the tokens of the others, and a batch asks for each of its requests.
  const asked = operations.filter(
    ({ path, security }) =>
      security.some((one: object) => 'bearer' in one) && !/logout$|batch$/.test(path) && path.startsWith('/api/'),
  );
  for (const operation of asked)
    for (const [kind, token] of Object.entries(tokens)) {
      const answer = await send(operation, token);
      const title = `${kind}: ${operation.method} ${operation.path} answered ${answer.text}`;
      const message = answer.body.message ?? answer.body.error?.message;
      const refused =
        answer.status === 403 && /^The caller is not permitted|^This identity has no end-user/.test(message);
      // A topic is out of reach rather than forbidden.
      if (operation['x-codes'][403]) t.equal(!refused, operation['x-callers'].includes(kind), title);
      else t.match(answer, { status: 404 }, title);
    }
});

/** A request that the schemas accept, for things that are not there. */
function send({ method, path, parameters = [], requestBody }: Row, token: string) {
  const values = (place: string) =>
    parameters
      .filter((one) => one.in === place && one.required)
      .map(({ name, schema }) => [name, String(exampleOf(name, schema))] as [string, string]);
  const schema = requestBody?.content['application/json']?.schema;
  const required: string[] = schema?.required ?? [];
  const body = schema && Object.fromEntries(required.map((name) => [name, exampleOf(name, schema.properties[name])]));
  const query = new URLSearchParams(values('query'));
  const url = path.replace(/\{\w+\}/g, 'nothing');
  return service.http(method, `${url}?${query}`, {
    token,
    headers: Object.fromEntries(values('header')),
    ...(body && { body }),
  });
}

function exampleOf(name: string, schema: Schema | undefined): unknown {
  if (!schema) return undefined;
  if (schema.type === 'object') {
    const { required = [], properties } = schema;
    return Object.fromEntries(required.map((one: string) => [one, exampleOf(one, properties[one])]));
  }
  if (Array.isArray(schema.type) && schema.type.includes('null')) return null;
  if (name === 'accountId') return service.accountId;
  if (name === 'associationCode') return '000000000000';
  return schema.enum?.[0] ?? '1';
}

t.end();
