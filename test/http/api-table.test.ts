/**
 * Holds the list of docs/api.md against the OpenAPI document and the callers that it names against the service.
 * `UPDATE_API_TABLE=1 npx tap test/http/api-table.test.ts` in the root of the project writes the list.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { documentOf, type OpenApi, operationsOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { type PlainOperation, plainRequest } from '../support/plain-request.ts';
import type { Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const file = 'docs/api.md';
const [begin, end] = ['<!-- endpoints -->', '<!-- /endpoints -->'];
let service: Service;
let operations: PlainOperation[];
let groups: OpenApi['tags'];
t.before(async () => {
  service = await sharedService(t);
  const document = documentOf(service);
  groups = document.tags;
  operations = operationsOf(document);
});

/** The eight URLs of a kind, by path. */
const eightOf = (path: string): Array<[path: string, methods: string]> => {
  const trash = path.replace('/api/v1', '/api/v1/trash');
  return [
    [path, 'POST, GET'],
    [`${path}/{id}`, 'GET, PUT, DELETE'],
    [trash, 'GET'],
    [`${trash}/{id}`, 'GET'],
    [`${trash}/{id}/recover`, 'POST'],
  ];
};

/** The endpoints by group: a line for each path with its methods, and one for all eight of a kind. */
function list(): string {
  const methods = new Map<string, string>();
  for (const { path, method } of operations)
    methods.set(path, methods.has(path) ? `${methods.get(path)}, ${method}` : method);
  const kinds = [...methods.keys()].filter((path) =>
    eightOf(path).every(([one, expected]) => methods.get(one) === expected),
  );
  const shared = new Set(kinds.flatMap((path) => eightOf(path).map(([one]) => one)));
  const lineOf = (path: string) => {
    if (kinds.includes(path)) return [`- \`${path}\`: all eight`];
    return shared.has(path) ? [] : [`- \`${methods.get(path)} ${path}\``];
  };
  return groups
    .map(({ name }) => {
      const paths = new Set(operations.filter(({ tags }) => tags[0] === name).map(({ path }) => path));
      return [`### ${name}`, '', ...[...paths].flatMap(lineOf)].join('\n');
    })
    .join('\n\n');
}

t.test('docs/api.md lists every endpoint of the OpenAPI document, and no other', async (t) => {
  const text = readFileSync(file, 'utf8');
  const [head = '', rest = ''] = text.split(`${begin}\n`);
  const [written = '', tail = ''] = rest.split(`\n${end}`);
  if (process.env.UPDATE_API_TABLE) return writeFileSync(file, `${head}${begin}\n${list()}\n${end}${tail}`);
  t.equal(written, list(), 'UPDATE_API_TABLE=1 writes the list');
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
      const { method, url, ...plain } = plainRequest(operation, service.accountId);
      const answer = await service.http(method, url, { token, ...plain });
      const title = `${kind}: ${operation.method} ${operation.path} answered ${answer.text}`;
      const message = answer.body.message ?? answer.body.error?.message;
      const refused =
        answer.status === 403 && /^The caller is not permitted|^This identity has no end-user/.test(message);
      // A topic is out of reach rather than forbidden.
      if (operation['x-codes'][403]) t.equal(!refused, operation['x-callers'].includes(kind), title);
      else t.match(answer, { status: 404 }, title);
    }
});

t.end();
