import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { nameComponents, resolveComponents, withoutRepetitions } from '../../src/http/openapi/components.ts';
import {
  answerOf,
  documentOf,
  type OpenApi,
  type Operation,
  type Published,
  partOf,
  type Schema,
} from '../support/openapi.ts';
import { part } from '../support/part.ts';
import { present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

/**
 * The operations that clients rely on: operation | `etag`, query parameters or properties of a body | properties of the answer.
 * `!` means required, `=` lists values that must be accepted; `{kind}` and `{entityType}` stand for `families`, `{one}` for the wrapper.
 */
const spec = `
  POST /auth/login-user                            | emailAddress! password! accountId! renewalType=short,remembered,extended | csrfToken jwt
  POST /auth/mfa-trigger-auth                      | platform-mfa-token! mfaMethod!=sms | status
  POST /auth/mfa-login-user                        | platform-mfa-token! mfaMethod!=totp,sms code! | csrfToken jwt
  POST /sessions/logout                            | | success message
  POST /auth/validate-jwt                          | jwt! | result resultCode
  POST /users/{userId}/change-password-with-token  | newPassword! passwordResetToken! | success
  GET /users/{userId}/password-reset-token         | | success userId resetToken
  GET /users/by-email/{email}/user-id              | accountId | success userId
  DELETE /internal/users/{userId}                  | | success

  POST /devices                                    | accountId! serialNumber! deviceTemplateId organizationId firmwareVersion latitude longitude externalIp reverseDns | device
  GET /devices/{id}                                | expand | device
  PUT /devices/{id}                                | etag organizationId firmwareVersion latitude longitude externalIp reverseDns | device
  DELETE /devices/{id}                             | etag | device
  GET /devices                                     | accountId! deviceTemplateId organizationId serialNumber provisioningState firmwareVersion latitude longitude connected lastConnected externalIp geoIpLatitude geoIpLongitude reverseDns {page} expand sortBy=created,lastModified,id,deviceTemplateId,organizationId,provisioningState,firmwareVersion,serialNumber | devices
  GET /trash/devices/{id}                          | | device
  GET /trash/devices                               | accountId! {page} | devices
  POST /trash/devices/{id}/recover                 | etag | device

  POST /end-users                                  | accountId! organizationId! createIdmUser idmUserEmail idmUserPassword endUserTemplateId | endUser
  GET /end-users/{id}                              | expand | endUser
  PUT /end-users/{id}                              | etag organizationId! | endUser
  DELETE /end-users/{id}                           | etag | endUser
  GET /end-users                                   | accountId! endUserTemplateId organizationId {page} expand sortBy=created,lastModified,id,accountId,endUserTemplateId,organizationId | endUsers
  GET /trash/end-users/{id}                        | | endUser
  GET /trash/end-users                             | accountId! {page} | endUsers
  POST /trash/end-users/{id}/recover               | etag | endUser

  POST /organizations                              | accountId! name! parentId organizationTemplateId endUserTemplateId description phoneNumber address city state postalCode countryCode industry organizationSize websiteAddress | organization
  GET /organizations/{id}                          | expand count | organization
  PUT /organizations/{id}                          | etag name parentId | organization
  DELETE /organizations/{id}                       | etag | organization
  GET /organizations                               | accountId! parentId organizationTemplateId name {page} count expand sortBy=created,lastModified,id,accountId,parentId,organizationTemplateId,name | organizations
  GET /trash/organizations/{id}                    | | organization
  GET /trash/organizations                         | accountId! {page} | organizations
  POST /trash/organizations/{id}/recover           | etag | organization

  POST /{kind}/templates                           | accountId! name! | {one}Template
  GET /{kind}/templates/{id}                       | count | {one}Template
  PUT /{kind}/templates/{id}                       | etag name | {one}Template
  DELETE /{kind}/templates/{id}                    | etag | {one}Template
  GET /{kind}/templates                            | accountId! name default {page} count sortBy=created,lastModified,id,accountId,name,default | {one}Templates
  GET /trash/{kind}/templates/{id}                 | | {one}Template
  GET /trash/{kind}/templates                      | accountId! {page} | {one}Templates
  POST /trash/{kind}/templates/{id}/recover        | etag | {one}Template

  POST /{entityType}/custom-fields                 | accountId! {one}TemplateId! name! fieldType! description required default | {one}Field
  GET /{entityType}/custom-fields/{id}             | | {one}Field
  PUT /{entityType}/custom-fields/{id}             | etag accountId! {one}TemplateId! name! fieldType! description required default | {one}Field
  DELETE /{entityType}/custom-fields/{id}          | etag | {one}Field
  GET /{entityType}/custom-fields                  | accountId! {one}TemplateId! name fieldType required default {page} sortBy=created,lastModified,id,accountId,{one}TemplateId,name,fieldType,required | {one}Fields
  GET /trash/{entityType}/custom-fields/{id}       | | {one}Field
  GET /trash/{entityType}/custom-fields            | accountId! {page} | {one}Fields
  POST /trash/{entityType}/custom-fields/{id}/recover | etag | {one}Field

  POST /channels/templates                         | accountId! entityId! entityType=deviceTemplate name! streamBridgeDelivery persistenceType=simple,timeSeries | channelTemplate
  GET /channels/templates/{id}                     | | channelTemplate
  PUT /channels/templates/{id}                     | etag streamBridgeDelivery | channelTemplate
  DELETE /channels/templates/{id}                  | etag | channelTemplate
  GET /trash/channels/templates/{id}               | | channelTemplate
  POST /trash/channels/templates/{id}/recover      | etag | channelTemplate

  POST /access/mqtt-credentials                    | accountId! entityId! entityType=device | mqttCredential
`;
const families = { devices: 'device', 'end-users': 'endUser', organizations: 'organization' };

let service: Service;
/** As it is sent, and as the routes make it. */
let published: Published;
let made: OpenApi;
let document: OpenApi;
t.before(async () => {
  service = await sharedService(t);
  const sent: object = await service.ok('GET', '/openapi.json', { token: null });
  published = sent as Published;
  made = JSON.parse(JSON.stringify(documentOf(service)));
  document = resolveComponents(made) as OpenApi;
});

type Listed = Operation & { method: string; path: string };
const operations = (): Listed[] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, ...operation })),
  );

t.test('the OpenAPI document is valid', async (t) => {
  t.equal(document.openapi, '3.1.0');
  const result = await new Validator().validate({ ...structuredClone(published) });
  t.ok(result.valid, JSON.stringify(result.errors));
});

t.test('what devices call says that a client certificate is taken as a secret is', async (t) => {
  const { description } = partOf<{ description: string }>(published, '#/components/securitySchemes/basic');
  t.match(description, /client certificate/);
  const ofDevices = operations().filter(({ 'x-callers': callers }) => callers.includes('device'));
  t.ok(ofDevices.length >= 4);
  t.match(ofDevices.find(({ operationId }) => operationId === 'publishMessage')?.summary, /client certificate/);
});

t.test('a component keeps its name, by which generated clients know it', async (t) => {
  const names = Object.entries(published.components).flatMap(([section, group]) =>
    Object.keys(group).map((name) => `${section}/${name}`),
  );
  const kept = readFileSync(new URL('component-names.txt', import.meta.url), 'utf8')
    .trimEnd()
    .split('\n');
  t.strictSame(
    kept.filter((name) => !names.includes(name)),
    [],
    'none is gone',
  );
  t.strictSame(
    names.filter((name) => !kept.includes(name)),
    [],
    'a new one is appended to component-names.txt',
  );
});

t.test('its components lose nothing of what the routes say', async (t) => {
  const short = withoutRepetitions(made);
  const [said, sent] = [comparable(short), comparable(published)];
  t.strictSame(comparable(nameComponents(short)), said);
  t.strictSame(sent, said, 'examples are all that is added');
  const { paths } = sent;
  const lost: string[] = [];
  for (const { method, path, operationId, ...operation } of operations()) {
    const { default: general, ...own } = present(paths[path]?.[method.toLowerCase()]).responses;
    for (const [status, codes] of Object.entries(operation['x-codes'])) {
      const { description } = present(operation.responses[status]);
      const lines = description.split('\n').map((line) => line.replace(/^- /, `- ${status} `));
      const isKept = own[status]
        ? own[status].description === description && String(own[status]['x-codes']) === String(codes)
        : String(general?.['x-codes'][status]) === String(codes) &&
          lines.every((line) => general?.description.includes(line));
      if (!isKept) lost.push(`${operationId} ${status}`);
    }
  }
  t.strictSame(lost, [], 'each status has its codes and their sentences');
});

/** With components in their places, parameters in order, and without examples. */
function comparable(document: object): OpenApi {
  const resolved: OpenApi = JSON.parse(JSON.stringify(resolveComponents(document)), (key, value) =>
    key === 'example' || key === 'examples' ? undefined : value,
  );
  for (const path of Object.values(resolved.paths))
    for (const operation of Object.values(path))
      operation.parameters = (operation.parameters ?? []).sort((a, b) => a.name.localeCompare(b.name));
  return resolved;
}

t.test('every operation has a description and an example, and the schemas accept the examples', async (t) => {
  const ajv = (formats as unknown as (ajv: Ajv2020) => Ajv2020)(new Ajv2020({ strict: false }));
  const { components, paths } = published;
  ajv.addSchema({ components }, 'document');
  const resolve = <T extends { $ref?: string }>(part: T): T => (part.$ref ? partOf(published, part.$ref) : part);
  const hasExample = (part: Schema): boolean => {
    const { properties = {}, anyOf = [], allOf = [], items, examples } = resolve(part);
    const parts = [...Object.values(properties), ...anyOf, ...allOf, ...(items ? [items] : [])];
    return examples !== undefined || parts.some(hasExample);
  };
  const lacking: string[] = [];
  for (const { parameters: shared = [], ...path } of Object.values(paths))
    for (const { operationId, description, parameters = [], requestBody, responses } of Object.values(path)) {
      if (!description) lacking.push(`${operationId}: description`);
      const succeeded = Object.entries(responses).filter(([status]) => Number(status) < 400);
      const media = [requestBody, ...succeeded.map(([, one]) => resolve(one))].flatMap((one) =>
        Object.values(one?.content ?? {}),
      );
      const isShown = media.some(({ example, schema }) => example !== undefined || hasExample(schema));
      const asked = [...shared, ...parameters].map(resolve);
      if (!isShown && asked.every(({ example }) => example === undefined)) lacking.push(`${operationId}: example`);
    }
  t.strictSame(lacking, []);
  for (const [name, schema] of Object.entries(components.schemas))
    for (const [n, part] of (schema.allOf ?? [schema]).entries()) {
      const place = schema.allOf ? `${name}/allOf/${n}` : name;
      if (!part.examples) continue;
      const accepts = ajv.compile({ $ref: `document#/components/schemas/${place}` });
      for (const example of part.examples)
        t.ok(accepts(example), `${place}: ${ajv.errorsText(accepts.errors)} in ${JSON.stringify(example)}`);
    }
  for (const [name, parameter] of Object.entries(components.parameters))
    if (parameter.example !== undefined)
      t.ok(ajv.validate(`document#/components/parameters/${name}/schema`, parameter.example), name);
});

t.test('states are enums, bodies of points have their forms, and the document stays small', async (t) => {
  const { DeviceFields, CreateChannelTemplateBody, JsonPoints, SenmlRecord, Points } = published.components.schemas;
  t.strictSame(DeviceFields?.properties.provisioningState?.enum, ['defined', 'activated', 'associated', 'reserved']);
  t.strictSame(CreateChannelTemplateBody?.properties.persistenceType?.enum, ['simple', 'timeSeries']);
  t.equal(JsonPoints?.anyOf.length, 3);
  t.ok(SenmlRecord?.properties.bt && Points?.items);
  const { size } = new Blob([JSON.stringify(published)]);
  // Filters are a text or an object in three bodies.
  t.ok(size < 500 * 1024, `${size} bytes: a new endpoint may raise the limit, unless it repeats a schema`);
});

t.test('clients get types and functions with the names that people use', async (t) => {
  const { schemas } = published.components;
  for (const name of [
    'Device',
    'EndUser',
    'Organization',
    'DeviceTemplate',
    'ChannelTemplate',
    'ListMeta',
    'CreateDeviceBody',
  ])
    t.ok(schemas[name], name);
  const ids = operations().map(({ operationId }) => operationId);
  t.equal(new Set(ids).size, ids.length, 'each once');
  t.strictSame(
    ids.filter((id) => !/^[a-z]+[A-Za-z]*$/.test(id)),
    [],
  );
  for (const id of [
    'listDevices',
    'createDevice',
    'getDevice',
    'updateDevice',
    'deleteDevice',
    'recoverDevice',
    'listDeletedDevices',
  ])
    t.ok(ids.includes(id), id);
});

t.test('it holds what the tables of the spec hold', async (t) => {
  const lines = spec
    .replaceAll('{page}', 'meta results page pageSize sortOrder=asc,desc')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .flatMap((line) =>
      /\{(kind|entityType)\}/.test(line)
        ? Object.entries(families).map(([many, one]) =>
            line.replace(/\{(kind|entityType)\}/, many).replaceAll('{one}', one),
          )
        : [line],
    );
  for (const line of lines) {
    const [endpoint = '', takes = '', answers = ''] = line.split('|').map((cell) => cell.trim());
    const [method = '', path = ''] = endpoint.split(' ');
    const operation = document.paths[`/api/v1${path}`]?.[method.toLowerCase()];
    const lacking = operation ? lackingIn(operation, method, takes, answers) : ['the operation'];
    t.strictSame(lacking, [], endpoint);
  }
});

/** What an operation should take and answer by the table, and does not. */
function lackingIn(operation: Operation, method: string, takes: string, answers: string): string[] {
  const lacking: string[] = [];
  const taken = parametersOf(method, operation);
  for (const word of takes.split(' ').filter(Boolean)) {
    const [, name = '', required, values] = /^([\w-]+)(!)?(?:=(.*))?$/.exec(word) ?? [];
    const one = taken[name];
    const isAsSaid = values
      ? values.split(',').every((value) => one?.schema.enum.includes(value))
      : one?.required === (required !== undefined || name === 'etag');
    if (!isAsSaid) lacking.push(`takes ${word}`);
  }
  const { anyOf, ...only } = present(operation.responses[200]?.content['application/json']).schema;
  const answered: Record<string, Schema> = Object.assign({}, ...(anyOf ?? [only]).map(({ properties }) => properties));
  for (const name of answers.split(' ')) if (!answered[name]) lacking.push(`answers ${name}`);
  return lacking;
}

/** What a request can say, by name: query and etag, or the properties of its body and etag. */
function parametersOf(
  method: string,
  { parameters = [], requestBody }: Operation,
): Record<string, { schema: Schema; required?: boolean }> {
  const place = method === 'GET' ? ['query'] : ['header'];
  const named = parameters.filter((one) => place.includes(one.in)).map((one) => [one.name, one]);
  const { properties = {}, required = [] }: Partial<Schema> = requestBody?.content['application/json']?.schema ?? {};
  const inBody = Object.entries(properties).map(([name, schema]) => [
    name,
    { schema, required: required.includes(name) },
  ]);
  return Object.fromEntries([...named, ...inBody]);
}

t.test('every operation says what it is, what it takes and what it answers', async (t) => {
  for (const operation of operations()) t.strictSame(wrongIn(operation), [], `${operation.method} ${operation.path}`);
});

/** What is wrong with what an operation says of itself. */
function wrongIn({ method, path, summary, responses, security, parameters = [], ...more }: Listed): string[] {
  const wrong: string[] = [];
  const check = (isRight: unknown, what: string) => {
    if (!isRight) wrong.push(what);
  };
  check(summary, 'summary');
  check(more.tags.length === 1, 'one group');
  check(
    document.tags.some(({ name }) => name === more.tags[0]),
    'its group is described',
  );
  const failures = Object.keys(more['x-codes']);
  const successes = Object.keys(responses).filter((status) => !failures.includes(status));
  check(['200', '202', '302', '200,302', '200,202'].includes(successes.join()), `succeeds with ${successes}`);
  for (const status of failures) check(responses[status], status);
  for (const [status, { description }] of Object.entries(responses)) {
    check(description !== 'Default Response', `${status} is described`);
    for (const code of more['x-codes'][status] ?? []) check(description.includes(`\`${code}\``), `${status}: ${code}`);
  }
  const headers = parameters.filter((one) => one.in === 'header').map(({ name }) => name);
  const takesSession = security.some((one) => 'bearer' in one);
  if (headers.includes('Idempotency-Key')) check(method === 'POST' && security.length > 0, 'Idempotency-Key');
  check(
    security.some((one) => 'csrf' in one) === (method !== 'GET' && takesSession),
    'a cookie needs the CSRF header to change things',
  );
  for (const status of successes) check(responses[status]?.headers['x-request-id'], `${status}: x-request-id`);
  if (!responses[200]) return wrong;
  const schema = responses[200].content['application/json']?.schema;
  const { properties = {} } = schema?.anyOf?.[0] ?? schema ?? {};
  const isList = Object.values(properties).some((one) => one.properties?.results);
  // A job and a token have no version: nobody changes them by halves.
  const isEntity =
    !isList && !/\/(jobs|tokens)\//.test(path) && path.startsWith('/api/v1/') && /\/\{id\}(\/recover)?$/.test(path);
  if (isEntity) check(responses[200].headers.ETag, 'ETag');
  if (isList) check(responses[200].headers['platform-ignored-properties'], 'ignored properties');
  return wrong;
}

t.test('no optional property of a body has a default, for which generators would demand it', async (t) => {
  const withDefaults = (schema: Schema, place: string): string[] => {
    const { properties = {}, required = [], items, anyOf = [], oneOf = [], allOf = [] } = schema;
    const own = Object.entries(properties).flatMap(([name, one]) => [
      ...('default' in one && !required.includes(name) ? [`${place}.${name}`] : []),
      ...withDefaults(one, `${place}.${name}`),
    ]);
    const others = [...(items ? [items] : []), ...anyOf, ...oneOf, ...allOf];
    return [...own, ...others.flatMap((one) => withDefaults(one, place))];
  };
  const found = operations().flatMap(({ operationId, requestBody }) =>
    Object.values(requestBody?.content ?? {}).flatMap(({ schema }) => withDefaults(schema, operationId)),
  );
  t.strictSame(found, []);
  const { requestBody } = present(document.paths['/api/v1/access/mqtt-credentials']?.post);
  const { graceSeconds } = present(requestBody?.content['application/json']).schema.properties;
  t.match(graceSeconds, { description: 'Default: 0.' }, 'it is told in words');
});

t.test('a firmware file is uploaded as bytes, with headers that may be left out', async (t) => {
  const { requestBody, parameters } = present(document.paths['/api/v1/firmware/packages/{id}/files/{name}']?.put);
  t.match(requestBody?.content['application/octet-stream']?.schema, { type: 'string', format: 'binary' });
  const headers = parameters
    ?.filter((one) => one.in === 'header')
    .map(({ name, required }) => [name, required ?? false]);
  t.strictSame(headers, [
    ['content-range', false],
    ['digest', false],
  ]);
});

t.test('a list has two forms: of whole entities, and of those properties that fields names', async (t) => {
  const ajv = (formats as unknown as (ajv: Ajv2020) => Ajv2020)(new Ajv2020({ strict: false }));
  await service.device();
  const lists = operations().filter(({ parameters }) => parameters?.some(({ name }) => name === 'fields'));
  t.ok(lists.length > 10);
  for (const { operationId, responses } of lists) {
    const { anyOf = [] } = present(responses[200]?.content['application/json']).schema;
    const [whole, part] = anyOf.map(({ properties }) => Object.values(properties)[0]?.properties.results?.items);
    t.ok((whole?.required?.length ?? 0) > 7, operationId);
    t.strictSame(part?.required, ['id'], operationId);
    t.strictSame(Object.keys(part?.properties ?? {}), Object.keys(whole?.properties ?? {}), operationId);
  }
  const { schema } = present(document.paths['/api/v1/devices']?.get?.responses[200]?.content['application/json']);
  const [isWhole, isPart] = present(schema.anyOf).map((form) => ajv.compile(form));
  const path = `/api/v1/devices?accountId=${service.accountId}`;
  t.ok(isWhole?.(await service.ok('GET', path)));
  const chosen = await service.ok('GET', `${path}&fields=serialNumber`);
  t.same([isWhole?.(chosen), isPart?.(chosen)], [false, true]);
});

t.test('built-in custom fields take what the document says, and no more', async (t) => {
  const organization = await service.organization();
  const password = 'a long enough secret';
  const bodies: Record<string, () => object> = {
    '/devices': () => ({ serialNumber: 'S' }),
    '/devices/templates': () => ({ name: service.unique('T') }),
    '/organizations': () => ({ name: 'O' }),
    '/end-users': () => ({
      organizationId: organization.id,
      createIdmUser: true,
      idmUserEmail: `${service.unique('e').replace(' ', '')}@example.com`,
      idmUserPassword: password,
    }),
  };
  const forms: Record<string, string> = { purchaseDate: '2026-01-31', countryCode: 'US' };
  for (const [path, body] of Object.entries(bodies)) {
    const { requestBody } = present(document.paths[`/api/v1${path}`]?.post);
    const { properties } = present(requestBody?.content['application/json']).schema;
    const [answered] = Object.values(answerOf(document, `/api/v1${path}`).properties ?? {});
    const shape = present(answered).properties;
    const given = ['accountId', 'serialNumber', 'firmwareVersion', 'externalIp', 'reverseDns'];
    const fields = Object.entries(properties).filter(
      ([name, { type, maxLength }]) =>
        shape[name] && Array.isArray(type) && maxLength && maxLength < 8192 && !given.includes(name),
    );
    t.ok(fields.length >= 4, path);
    const post = (values: object) =>
      service.http('POST', `/api/v1${path}`, { body: { accountId: service.accountId, ...body(), ...values } });
    for (const [name, { minLength = 0, maxLength }] of fields) {
      const good = [null, forms[name] ?? '🚀'.repeat(maxLength), ...(minLength ? ['x'.repeat(minLength)] : [])];
      for (const value of good) t.match(await post({ [name]: value }), { status: 200 }, `${path} ${name}: ${value}`);
      const bad = ['x'.repeat(maxLength + 1), 5, true, [], {}, ...(minLength ? ['x'.repeat(minLength - 1)] : [])];
      for (const value of bad) {
        const refused = { status: 400, body: { error: { code: 106, details: [{ path: name }] } } };
        t.match(await post({ [name]: value }), refused, `${path} ${name}: ${value}`);
      }
    }
  }
});

t.test('readable pages are at /docs and need no network', async (t) => {
  const page = await service.http('GET', '/docs/', { token: null });
  t.equal(page.status, 200);
  t.match(page.headers.get('content-type'), /text\/html/);
  const settings = await service.http('GET', '/docs/static/swagger-initializer.js', { token: null });
  t.match(settings.text, /"docExpansion":\s*"none"/, 'collapsed');
  t.match(settings.text, /"showExtensions":\s*true/, 'with callers and error codes');
  t.notMatch(page.text, /(src|href)="https?:/);
  const script = /src="([^"]*swagger-ui-bundle[^"]*)"/.exec(page.text)?.[1] ?? '';
  t.equal(
    (await service.http('GET', new URL(script, `${service.server.url}/docs/`).pathname, { token: null })).status,
    200,
  );
});

t.end();
