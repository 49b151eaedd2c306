/**
 * The OpenAPI document: what each route says of itself in `schema` and `config`, and what follows from where it is.
 * Its extensions `x-codes` (error codes by status), `x-right` and `x-callers` are held by tests and shown at /docs.
 */
import { createRequire } from 'node:module';
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyContextConfig, FastifySchema, RouteOptions } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { Access } from '../../core/access.ts';
import { type Caller, endUserCaller } from '../../core/caller.ts';
import { type FailureKind, failureKinds, failureOf, identityErrorCode } from '../../core/errors.ts';
import { type Action, defaultRoles, type EntityKind } from '../../core/rights.ts';
import { type Constant, makeConstant, sendConstant } from '../answers/constants.ts';
import type { App } from '../app.ts';
import { publish } from './components.ts';
import { docsPage } from './docs-page.ts';
import { errorShape, identityErrorShape } from './error-shapes.ts';
import { describeCommonHeaders, responseHeaders, retryHeaders, type Sent } from './response-headers.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** These families have error bodies of their own. */
    family?: 'identity' | 'scim';
    /** How the route itself can fail; what any route in its place can answer is added by `failuresOf`. */
    errors?: readonly FailureKind[];
    /** The right that the caller needs, from src/core/rights.ts; absent if every known caller may call it. */
    right?: readonly [Action, EntityKind];
    /** The variable that says how large its body may be, where that is not the one of every body. */
    bodyLimit?: string;
    /** The bodies that the document shows, by media type, where the route takes bytes. */
    bodies?: Record<string, TSchema>;
    /** Whether it makes something that a repeat must not make again: it takes an Idempotency-Key. */
    creates?: true;
    /** Whether it is served below the disk reserve, though it creates or is a PUT; by its body where that decides. */
    whenFull?: true | ((body: unknown) => boolean);
    /** Whether a compressed body is decoded (src/http/content-encoding.ts). */
    decodes?: true;
    /** Below which path what a POST has made is read, where that is not its own, and with which status it was answered. */
    made?: { at: string; status: number };
    /** Whether it changes something, though it is a GET: an account is not paused for its move before it has ended. */
    changes?: true;
    /** Whether it is served while the account that it names is paused for its move. */
    whilePaused?: true;
    /** Whether it takes an expired token of a session that nobody has used for long. */
    renewsSession?: true;
    /** It is about the login session itself: tokens that programs have are refused. */
    ofSession?: true;
    /** Whether its body may have the custom fields of a template, which its own code knows. */
    hasCustomFields?: boolean;
    /** Headers of its schema that a request may leave out; our code demands the others. */
    optionalHeaders?: readonly string[];
    /** Headers of its answer besides those of every answer in its place. */
    sends?: readonly Sent[];
  }
}

/** The groups of endpoints, in reading order. */
const tags = [
  { name: 'Identity', description: 'Login, logout, tokens, people and their passwords.' },
  { name: 'Search', description: 'One search for all that has a name.' },
  { name: 'Devices', description: 'Devices in the field.' },
  { name: 'Fleets', description: 'Filters of devices under a name: a fleet is what matches now.' },
  { name: 'End-users', description: 'People in organizations, who log in.' },
  { name: 'Organizations', description: 'A tree of at most five levels. Permissions cascade downwards.' },
  { name: 'Templates', description: 'Templates of devices, end-users and organizations.' },
  { name: 'Custom fields', description: 'Additional properties that all entities of a template have.' },
  { name: 'Channel templates', description: 'Channels of the devices of a template.' },
  { name: 'Credentials', description: 'Broker passwords and certificates of devices.' },
  { name: 'Provisioning', description: 'From the factory line to the field.' },
  { name: 'Enrollment', description: 'Devices that get their own credential with what all their siblings have.' },
  { name: 'Jobs', description: 'Work on many devices at once: provisioning, and bulk changes.' },
  { name: 'Association', description: 'Codes with which anyone who holds a device claims it.' },
  { name: 'Firmware', description: 'Firmware packages and rollouts.' },
  { name: 'Commands', description: 'Commands for a device. They wait until it connects.' },
  { name: 'Messages', description: 'Log entries and stored messages of devices.' },
  { name: 'Account users', description: 'The admins of an account.' },
  { name: 'Applications', description: 'Programs that call.' },
  { name: 'Roles', description: 'What account users, back-ends and end-users may do.' },
  { name: 'Tokens', description: 'Tokens that people and back-ends make for their programs.' },
  { name: 'Identity providers', description: 'OpenID Connect providers at which people can log in.' },
  { name: 'Bridges', description: 'Targets to which messages are forwarded.' },
  { name: 'Permissions', description: 'Explains who may do what, and why.' },
  { name: 'Audit', description: 'Records of security changes: who did what, to what and when.' },
  { name: 'Batch', description: 'Several requests in one.' },
] as const;

export type Tag = (typeof tags)[number]['name'];

const { version } = createRequire(import.meta.url)('#package') as { version: string };

/** Serves the document at /openapi.json and as pages at /docs. Register it before the routes. */
export async function documentation(app: App, { access }: { access: Access }): Promise<void> {
  const prefix = app.headerPrefix;
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Slipway',
        version,
        description: `Device provisioning, management and messages. docs/mqtt.md describes MQTT. Times are ISO 8601 in UTC with milliseconds. \`x-codes\` of a response are its error codes, by status in the \`default\` response. \`x-callers\` says who may call an operation, \`x-right\` which right it needs.\n\n${describeCommonHeaders(prefix)}`,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      tags: [...tags],
      components: {
        schemas: { Error: { ...errorShape, examples: [errorExample] }, IdentityError: identityErrorShape },
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
          basic: {
            type: 'http',
            scheme: 'basic',
            description:
              'Username and password as for MQTT: a device with its secret, `Auth:JWT` with a token. A device with a client certificate shows it in the TLS handshake and needs no password.',
          },
          cookie: {
            type: 'apiKey',
            in: 'cookie',
            name: `${prefix}-access-token`,
            description: `A page may name the session that it shows in the header \`${prefix}-session\`: with the cookie of another one its requests are refused.`,
          },
          csrf: {
            type: 'apiKey',
            in: 'header',
            name: `${prefix}-csrf-token`,
            description: 'The csrfToken of the login; with the cookie, for every request that changes something.',
          },
          appToken: {
            type: 'apiKey',
            in: 'header',
            name: 'AccessToken',
            description: 'The appToken of an application.',
          },
        },
      },
      servers: [{ url: '/' }],
      // Most operations have this one; the others have their own.
      security: [{ bearer: [] }, { cookie: [], csrf: [] }],
    },
    transform: ({ schema, url, route }) => describe(access, prefix, schema, url, route),
  });
  await app.register(swaggerUi, docsPage);
  let document: Constant | undefined;
  app.get('/openapi.json', { schema: { hide: true } }, (_, reply) => {
    document ??= makeConstant(JSON.stringify(publish(app.swagger())));
    sendConstant(reply, 'application/json; charset=utf-8', document);
  });
}

const errorExample = {
  error: {
    code: 106,
    message: 'serialNumber is required. A parameter value is invalid.',
    details: [{ path: 'serialNumber', message: 'is required' }],
  },
  requestId: '01932c5e-7a10-7abc-8def-000000000abc',
};

/** The body of a request: the bytes that a route takes, or what its schema says. */
function bodyOf(schema: unknown, bodies: Record<string, TSchema> | undefined): Pick<FastifySchema, 'body'> {
  if (bodies)
    return {
      body: { content: Object.fromEntries(Object.entries(bodies).map(([type, one]) => [type, { schema: one }])) },
    };
  return schema === undefined ? {} : { body: describeDefaults(schema as TSchema) };
}

/** Defaults of properties in words: many generators demand a property that has one. */
function describeDefaults(schema: TSchema): TSchema {
  const { properties, ...more } = schema as TSchema & { properties?: Record<string, TSchema> };
  if (!properties) return schema;
  const described = Object.entries(properties).map(([name, property]) => {
    const { default: value, description, ...rest } = describeDefaults(property) as TSchema & Record<string, unknown>;
    const words = [description, value !== undefined && `Default: ${JSON.stringify(value)}.`].filter(Boolean).join(' ');
    return [name, { ...rest, ...(words !== '' && { description: words }) }];
  });
  return { ...more, properties: Object.fromEntries(described) };
}

const location = { type: 'string', description: 'Where to go.' };

/** One operation of the document. */
function describe(access: Access, prefix: string, schema: FastifySchema, path: string, route: RouteOptions) {
  if (!schema || schema.hide) return { schema, url: path };
  const { config = {} } = route;
  const place = {
    method: String(route.method),
    knows: knowsOf(schema),
    creates: config.creates ?? false,
    optional: config.optionalHeaders ?? [],
    schema,
  };
  // Only topics have slashes in them.
  const url = path.replace('*', ':topic');
  const failures = failuresOf(place, config.errors ?? []);
  const about = { creates: place.creates, hasSession: place.knows === 'session' };
  const sent = responseHeaders(prefix, about, config.sends ?? []);
  const { 200: success, 202: accepted, 302: elsewhere } = schema.response as Record<number, TSchema | undefined>;
  return {
    url,
    schema: {
      ...schema,
      ...securityOf(place),
      ...parametersOf(place),
      ...bodyOf(schema.body, config.bodies),
      ...(isFlat(schema.body) ? { consumes: ['application/json', 'application/x-www-form-urlencoded'] } : {}),
      response: {
        ...(success && { 200: { ...success, headers: sent } }),
        ...(accepted && { 202: { ...accepted, headers: sent } }),
        ...(elsewhere && { 302: { ...elsewhere, headers: { ...sent, location } } }),
        ...errorAnswers(failures, config.family),
      },
      'x-codes': codesByStatus(failures, config.family),
      ...(config.right && { 'x-right': config.right.join(' ') }),
      'x-callers': place.knows === 'nobody' ? ['anybody'] : callersOf(access, config.right, schema),
    },
  };
}

/** Where a route stands: whom it knows, by a session's token, by the appToken in `AccessToken`, or not at all. */
interface RoutePlace {
  method: string;
  knows: 'session' | 'application' | 'nobody';
  /** Whether it takes an Idempotency-Key. */
  creates: boolean;
  /** Headers of the schema that a request may leave out. */
  optional: readonly string[];
  schema: FastifySchema;
}

function knowsOf({ security }: FastifySchema): RoutePlace['knows'] {
  if (security?.length === 0) return 'nobody';
  return security?.some((one) => 'appToken' in one) ? 'application' : 'session';
}

/** `own`, with what every route in this place can answer, in the order of the table in src/core/errors.ts. */
function failuresOf({ method, knows, schema }: RoutePlace, own: readonly FailureKind[]): FailureKind[] {
  const changes = method !== 'GET';
  const here: Array<[boolean, FailureKind[]]> = [
    // An account that moves to another server is answered by neither for a moment.
    [true, ['server', 'stopping']],
    [schema.params !== undefined || schema.querystring !== undefined, ['invalid']],
    // Any of these may come with a body.
    [changes, ['invalid', 'tooLarge', 'mediaType']],
    [knows !== 'nobody', ['tokenMissing', 'tokenInvalid', 'wrongToken', 'tooMany']],
    // The CSRF header is missing; the store takes nothing more.
    [knows !== 'nobody' && changes, ['forbidden', 'storeFull']],
  ];
  const kinds = new Set([...own, ...here.flatMap(([applies, more]) => (applies ? more : []))]);
  return failureKinds.filter((kind) => kinds.has(kind));
}

function byStatus(kinds: readonly FailureKind[]): Array<[status: string, FailureKind[]]> {
  const grouped: Record<string, FailureKind[]> = {};
  for (const kind of kinds) {
    const { status } = failureOf(kind);
    grouped[status] = [...(grouped[status] ?? []), kind];
  }
  return Object.entries(grouped);
}

type Family = FastifyContextConfig['family'];

function codeOf(kind: FailureKind, family: Family): number | string {
  return family ? identityErrorCode(kind) : failureOf(kind).code;
}

function codesByStatus(kinds: readonly FailureKind[], family: Family) {
  const codes = (ofStatus: FailureKind[]) => [...new Set(ofStatus.map((kind) => codeOf(kind, family)))];
  return Object.fromEntries(byStatus(kinds).map(([status, ofStatus]) => [status, codes(ofStatus)]));
}

/** The responses of what can go wrong: the codes of a status and what each means here. */
function errorAnswers(kinds: readonly FailureKind[], family: Family) {
  const content = {
    'application/json': { schema: { $ref: `#/components/schemas/${family ? 'IdentityError' : 'Error'}` } },
  };
  const describeAll = (ofStatus: FailureKind[]) =>
    ofStatus.map((kind) => `- \`${codeOf(kind, family)}\` ${failureOf(kind).message}`).join('\n');
  return Object.fromEntries(
    byStatus(kinds).map(([status, ofStatus]) => [
      status,
      {
        description: describeAll(ofStatus),
        ...(ofStatus.includes('tooMany') || ofStatus.includes('stopping') ? { headers: retryHeaders } : {}),
        content,
      },
    ]),
  );
}

const callers: readonly Caller[] = [
  { kind: 'admin', id: '', accountId: '', role: defaultRoles.account },
  endUserCaller('', '', [{ organizationId: '', role: defaultRoles.organization }]),
  { kind: 'newcomer', id: '', accountId: '' },
  { kind: 'backEnd', id: '', accountId: '', role: defaultRoles.account },
  { kind: 'endUserApp', id: '', accountId: '' },
  { kind: 'station', id: '', accountId: '', deviceTemplateId: '', organizationId: null },
];

const deviceCaller: Caller = { kind: 'device', id: '', accountId: '' };

/** The kinds of callers that have the right at all; `newcomer` is an identity without an end-user. */
function callersOf(access: Access, right: readonly [Action, EntityKind] | undefined, schema: FastifySchema): string[] {
  // A device has no token; where its secret is taken as a password, its client certificate is, too.
  const takesDevices = schema.security?.some((one) => 'basic' in one) ?? false;
  const known = takesDevices ? [...callers, deviceCaller] : callers;
  return known.filter((caller) => !right || access.may(caller, ...right)).map(({ kind }) => kind);
}

/** A token as Bearer or as cookie; a cookie needs the CSRF header to change things. */
function securityOf({ method, knows, schema }: RoutePlace): Pick<FastifySchema, 'security'> {
  if (knows !== 'session') return { security: schema.security ?? [] };
  const cookie: Record<string, string[]> = method === 'GET' ? { cookie: [] } : { cookie: [], csrf: [] };
  return { security: [{ bearer: [] }, cookie, ...(schema.security ?? [])] };
}

const idempotencyKey = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'The same key with the same request from the same caller gets the first answer again for 72 hours.',
});

/** Headers and path. A missing etag is left to our code, which answers 103; to the document it is required. */
function parametersOf({ creates, schema, optional }: RoutePlace): Pick<FastifySchema, 'headers' | 'params'> {
  const { properties = {} } = (schema.headers ?? {}) as { properties?: object };
  const path = ((schema.params ?? {}) as { properties?: Record<string, TSchema> }).properties;
  const keys = creates ? { 'Idempotency-Key': idempotencyKey } : {};
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return {
    headers: { type: 'object', properties: { ...properties, ...keys }, required },
    ...(path?.['*'] ? { params: Type.Object({ topic: path['*'] }) } : {}),
  };
}

/** Whether a form can hold the body: plain values only. */
export function isFlat(body: unknown): boolean {
  const { properties } = (body ?? {}) as { properties?: Record<string, { type?: unknown }> };
  return (
    properties !== undefined && Object.values(properties).every(({ type }) => type !== 'array' && type !== 'object')
  );
}
