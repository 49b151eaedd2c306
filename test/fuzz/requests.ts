/** Requests made from the OpenAPI document: of every operation, by everybody, valid ones and what becomes of them. */
import fc, { type Arbitrary } from 'fast-check';
import type { OpenApi, Operation, Parameter, Schema } from '../support/openapi.ts';
import { type Caller, callers } from './cast.ts';
import { hostileText, hostileValue, type Pairs, type Spoil, spoils, spoiltJson } from './hostile.ts';

/** A request before the names in it (`«device»`) stand for something. */
export interface Draft {
  method: string;
  path: string;
  query: Pairs;
  headers: Pairs;
  caller: Caller;
  body?: string | undefined;
  spoils: Spoil[];
}

/** What `{id}` and similar parameters are in a path, by what the path says; the first that fits. */
const ids: Array<[RegExp, string]> = [
  [/\/devices\/templates\/custom-fields|\/custom-fields/, 'deviceField'],
  [/\/devices\/templates/, 'deviceTemplate'],
  [/\/end-users\/templates/, 'endUserTemplate'],
  [/\/organizations\/templates/, 'organizationTemplate'],
  [/\/channels\/templates/, 'channelTemplate'],
  [/\/devices\/jobs/, 'bulk'],
  [/\/jobs/, 'job'],
  [/\/trash\/devices/, 'goneDevice'],
  [/\/devices/, 'otherDevice'],
  [/\/end-users/, 'endUser'],
  [/\/organizations/, 'child'],
  [/\/account-users/, 'accountUser'],
  [/\/applications/, 'app'],
  [/\/identity-providers/, 'provider'],
  [/\/bridges/, 'bridge'],
];

/** What properties and parameters of these names are. */
const names: Record<string, string[]> = {
  accountId: ['«accountId»'],
  deviceId: ['«otherDevice»', '«device»', '«goneDevice»'],
  entityId: ['«otherDevice»', '«deviceTemplate»', '«endUser»', '«accountUser»'],
  deviceTemplateId: ['«deviceTemplate»'],
  endUserTemplateId: ['«endUserTemplate»'],
  organizationTemplateId: ['«organizationTemplate»'],
  organizationId: ['«child»', '«organization»'],
  parentId: ['«organization»'],
  template: ['«deviceTemplate»', 'Fuzz 1'],
  organization: ['«child»', 'Fuzz 1'],
  endUserId: ['«endUser»'],
  userId: ['«user»', '«adminUser»'],
  userIds: ['«user»'],
  actorId: ['«adminUser»'],
  targetId: ['«app»'],
  id: ['«device»', '«endUser»'],
  ids: ['«otherDevice»'],
  providerId: ['«provider»'],
  appId: ['«app»'],
  appToken: ['«appToken»'],
  jwt: ['«jwt»'],
  email: ['«email»'],
  emailAddress: ['«email»', '«adminEmail»', 'somebody@example.com'],
  idmUserEmail: ['new1@example.com', 'new2@example.com', 'new3@example.com'],
  newEmailAddress: ['new4@example.com'],
  password: ['«password»'],
  oldPassword: ['«password»'],
  newPassword: ['another long secret 8'],
  idmUserPassword: ['another long secret 9'],
  certificate: ['«certificate»'],
  associationCode: ['«associationCode»'],
  serialNumber: ['«serialNumber»', 'SN 1', 'SN 2'],
  phoneNumber: ['+15550100'],
  url: ['http://127.0.0.1:9/hook', 'https://localhost:9/'],
  issuer: ['http://127.0.0.1:9', 'https://localhost:9/o'],
  redirectUri: ['http://127.0.0.1:9/in'],
  redirectUris: ['http://127.0.0.1:9/in'],
  scope: ['openid', 'openid email'],
  topic: ['«temperature»', '«chat»', '«log»', '«fields»'],
  topics: ['#', '«temperature»', '«chat»,«log»'],
  timeoutSeconds: ['0'],
  expand: ['account', 'organization', 'device-template,account', 'parent', 'end-user-template'],
  count: ['devices', 'children,end-users', 'device-fields'],
  aggregate: ['avg', 'min,max,count', 'first,last,sum'],
  rollup: ['5m', '1h', '1d', '2w', 'M', '7s'],
  timezone: ['Europe/Berlin', 'Asia/Kathmandu', 'UTC', 'Pacific/Apia'],
  path: ['/api/v1/devices/«device»', '/api/v1/devices?accountId=«accountId»', '/api/v1/batch', '/api/v1/usage'],
};
const dates = [
  '2026-01-31T00:00:00Z',
  '2026-01-31',
  '1769817600000',
  '2026-01-31T00:00:00+01:00',
  '0000-01-01T00:00:00Z',
];
const isDate = /^(from|to|expiresAt|expiresBefore|startDateTime|endDateTime|lastConnected|offlineSince|purchaseDate)$/;
/** Where a name may lead off this machine, only what is above is tried. */
const leadsOut = /^(url|issuer|redirectUri|redirectUris|uri)$/;

const none: Arbitrary<Pairs> = fc.constant([]);

/** All requests, each operation as often as every other. */
export function requests(document: OpenApi): Arbitrary<Draft> {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => requestOf(method.toUpperCase(), path, operation)),
  );
  return fc.oneof(...operations);
}

function requestOf(method: string, path: string, { parameters = [], requestBody }: Operation): Arbitrary<Draft> {
  const named = (where: string) => parameters.filter((one) => one.in === where);
  const types = Object.entries(requestBody?.content ?? {});
  return fc
    .record({
      caller: fc.oneof({ weight: 6, arbitrary: fc.constant('admin' as const) }, fc.constantFrom(...callers)),
      params: fc.tuple(...named('path').map(({ name }) => pathValue(path, name))),
      query: queryOf(named('query')),
      headers: headersOf(path, named('header')),
      content: types.length > 0 || method !== 'GET' ? bodyOf(types) : fc.constant(undefined),
      spoils: rarely(spoils, 30, []),
    })
    .map(({ params, content, ...rest }) => {
      let next = 0;
      const full = path.replace(/\{\w+\}/g, () => params[next++] ?? '');
      const type: Pairs = content?.type ? [['content-type', content.type]] : [];
      return { ...rest, method, path: full, headers: [...type, ...rest.headers], body: content?.text };
    });
}

function rarely<T>(arbitrary: Arbitrary<T>, oneIn: number, otherwise: T): Arbitrary<T> {
  return fc.oneof({ weight: oneIn - 1, arbitrary: fc.constant(otherwise) }, { weight: 1, arbitrary });
}

function mostly<T>(usual: Arbitrary<T>, rare: Arbitrary<T>, weight = 9): Arbitrary<T> {
  return fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: rare });
}

function pathValue(path: string, name: string): Arbitrary<string> {
  const [, kind] = ids.find(([fits]) => fits.test(path)) ?? [];
  const usual = name === 'id' && kind ? [`«${kind}»`] : (names[name] ?? ['x']);
  const raw = fc.constantFrom(
    '%',
    '%zz',
    '%00',
    '%ff',
    '%c0%af',
    '%ed%a0%80',
    '%2e%2e',
    '%2f',
    '%25',
    '..',
    '.',
    '*',
    ';',
    'a%0d%0ab',
  );
  return mostly(
    fc.constantFrom(...usual).map((one) => (name === 'topic' ? `${one}` : one)),
    fc.oneof(raw, hostileText.map(encode), fc.constantFrom('«device»', '«organization»', '«job»', '«goneDevice»')),
  ).map((one) => one || '%20');
}

/** As encodeURIComponent, which refuses lone surrogates. */
function encode(text: string): string {
  return [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
}

function queryOf(parameters: Parameter[]): Arbitrary<Pairs> {
  const one = ({ name, schema }: Parameter): Arbitrary<Pairs> => {
    const usual = valueFor(schema, name).map(asText);
    const pages = fc.constantFrom('-1', '0', '1e9', '999999999999999999999', '2147483648', '1.5', '', '٣');
    const text = mostly(usual, /^page/.test(name) ? pages : leadsOut.test(name) ? usual : hostileText);
    const once = text.map((value): Pairs => [[name, value]]);
    const shapes = fc.constantFrom<Pairs>(
      [[`${name}[]`, 'a']],
      [[`${name}[a]`, 'b']],
      [
        [name, 'a'],
        [name, 'b'],
      ],
      [[name, '']],
    );
    return fc.oneof({ weight: 12, arbitrary: once }, { weight: 1, arbitrary: shapes });
  };
  const parts = parameters.map((parameter) =>
    fc.boolean().chain((given) => (given || parameter.name === 'accountId' ? one(parameter) : none)),
  );
  const more = fc.constantFrom<Pairs>(
    [['__proto__', 'x']],
    [['constructor', 'x']],
    [['unknown', 'x'.repeat(8000)]],
    Array.from({ length: 1500 }, () => ['a', '1'] as [string, string]),
    [['\0', '\0']],
  );
  return fc.tuple(...parts, rarely(more, 30, [])).map((all): Pairs => all.flat());
}

const versions = ['«version»', '"«version»"', 'W/"«version»"'];
const hostileHeader = fc.constantFrom(
  '',
  '"',
  '""',
  'W/',
  '*',
  '0',
  '-1',
  '1e999',
  '\u00ff\u00fe',
  '"a", "b"',
  'x'.repeat(4000),
  '\t',
  'null',
);

function headersOf(path: string, parameters: Parameter[]): Arbitrary<Pairs> {
  const of = ({ name }: Parameter): Arbitrary<Pairs> => {
    const usual = name === 'etag' ? fc.constantFrom(...versions) : fc.constantFrom('key', 'key 2', 'x'.repeat(255));
    const text = mostly(usual, hostileHeader, 5);
    return name === 'etag'
      ? fc.tuple(fc.constantFrom('etag', 'etag', 'if-match'), text).map((pair) => [pair])
      : rarely(
          text.map((value): Pairs => [[name.toLowerCase(), value]]),
          4,
          [],
        );
  };
  const odd = fc.oneof(
    fc.tuple(
      fc.constantFrom('authorization', 'accesstoken', 'cookie', 'accept', 'last-event-id', 'x-forwarded-for'),
      hostileHeader,
    ),
    fc.constantFrom<[string, string]>(
      ['authorization', 'Bearer'],
      ['authorization', 'Bearer a.b.c'],
      ['authorization', 'Basic !!!'],
      ['authorization', 'Basic Og=='],
      ['authorization', 'Bearer «jwt»x'],
      ['cookie', 'platform-access-token=%zz; __proto__=1'],
      ['last-event-id', '1.2.3'],
      ['accept-encoding', 'gzip, br'],
      ['content-encoding', 'gzip'],
      ['range', 'bytes=5-1'],
    ),
  );
  const stream: Arbitrary<Pairs> = /stream|events/.test(path)
    ? rarely(
        hostileHeader.map((value): Pairs => [['last-event-id', value]]),
        2,
        [],
      )
    : none;
  return fc
    .tuple(
      ...parameters.map(of),
      stream,
      rarely(
        odd.map((pair) => [pair]),
        25,
        [],
      ),
    )
    .map((all) => all.flat());
}

interface Content {
  text: string;
  type: string;
}

function bodyOf(types: Array<[string, { schema: Schema }]>): Arbitrary<Content | undefined> {
  const schema = types.find(([type]) => type === 'application/json')?.[1].schema ?? ({} as Schema);
  const json = bodyValue(schema).map((value) => JSON.stringify(value) ?? '');
  const whole = mostly(json, spoiltJson(json), 6).map((text) => ({ text, type: 'application/json' }));
  const form = bodyValue(schema).map((value) => ({
    text: new URLSearchParams(
      Object.entries((value ?? {}) as object).map(([name, one]) => [name, asText(one)] as [string, string]),
    ).toString(),
    type: 'application/x-www-form-urlencoded',
  }));
  const wrong = fc.record({
    text: mostly(json, hostileText, 1),
    type: fc.constantFrom(
      ...types.map(([type]) => type),
      ...[
        'text/plain',
        'text/csv',
        'multipart/form-data',
        'application/xml',
        'application/json; charset=utf-16',
        '',
        'x',
        '/',
      ],
      ...['application/json;', 'application/octet-stream', 'application/x-ndjson', 'Application/JSON'],
    ),
  });
  return fc.oneof(
    { weight: types.length > 0 ? 14 : 2, arbitrary: whole },
    { weight: 1, arbitrary: form },
    { weight: 2, arbitrary: wrong },
    { weight: types.length > 0 ? 1 : 12, arbitrary: fc.constant(undefined) },
  );
}

/** A body after the schema, one in some with a property more. */
function bodyValue(schema: Schema): Arbitrary<unknown> {
  const more = fc.tuple(
    fc.constantFrom(
      'id',
      'version',
      'deleted',
      'floor',
      'toString',
      'hasOwnProperty',
      '',
      ' ',
      'İ',
      '\ud800',
      'x'.repeat(300),
    ),
    hostileValue,
  );
  return fc.tuple(valueFor(schema, ''), fc.option(more, { freq: 8 })).map(([value, extra]) => {
    if (!extra || typeof value !== 'object' || value === null || Array.isArray(value)) return value;
    return { ...value, [extra[0]]: extra[1] };
  });
}

/** What a schema takes, with something else at one place in some. */
function valueFor(schema: Schema, name: string): Arbitrary<unknown> {
  const usual = validOf(schema, name);
  if (leadsOut.test(name)) return usual;
  return fc.oneof({ weight: 25, arbitrary: usual }, { weight: 1, arbitrary: hostileValue });
}

function validOf(schema: Schema, name: string): Arbitrary<unknown> {
  const {
    type,
    properties = {},
    required = [],
    items,
    minimum = -1000,
    maximum = 1000,
    minLength = 0,
    maxLength = 40,
  } = schema;
  const { enum: allowed, anyOf, const: constant } = schema;
  if (allowed) return fc.constantFrom(...allowed);
  if (constant !== undefined) return fc.constant(constant);
  if (anyOf) return fc.oneof(...anyOf.map((one) => validOf(one, name)));
  if (Array.isArray(type)) return fc.oneof(...type.map((one: string) => validOf({ ...schema, type: one }, name)));
  if (type === 'object') {
    const model = Object.fromEntries(
      Object.entries(properties).map(([key, one]) => [key, valueFor(one, key)] as const),
    );
    return fc.record(model, { requiredKeys: required });
  }
  if (type === 'array') return fc.array(valueFor(items ?? {}, name), { maxLength: 3 });
  if (type === 'integer') return fc.integer({ min: minimum, max: Math.max(minimum, Math.min(maximum, 2 ** 31)) });
  if (type === 'number') return name === 'timeoutSeconds' ? fc.constant(0) : fc.integer({ min: minimum, max: maximum });
  if (type === 'boolean') return fc.boolean();
  if (type === 'null') return fc.constant(null);
  if (type === 'string') return textOf(name, minLength, Math.min(maxLength, 40));
  return fc.oneof(textOf(name, 0, 20), hostileValue);
}

function textOf(name: string, minLength: number, maxLength: number): Arbitrary<string> {
  const usual = isDate.test(name) ? dates : Object.hasOwn(names, name) ? names[name] : undefined;
  return usual ? fc.constantFrom(...usual) : fc.string({ minLength, maxLength });
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}
