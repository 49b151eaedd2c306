/** Bodies of requests: JSON and forms, checked against the schema of their route. */
import { Ajv, type ValidateFunction } from 'ajv';
import type { FastifyRequest, FastifySchemaCompiler, FastifyServerOptions } from 'fastify';
import { invalid, PlatformError } from '../core/errors.ts';
import { isNestedDeeply } from '../core/formats/json-size.ts';
import { findUnstorable, unstorable } from '../core/formats/unstorable.ts';
import { laneOf, strangerLane } from '../core/limits/lanes.ts';
import type { Scheduler } from '../core/scheduler/scheduler.ts';
import type { App } from './app.ts';
import { isJson, jsonFault } from './validation.ts';

/** Characters of a JSON body that is read without waiting for a turn, and bytes that take as long as a row of a list. */
const shortBody = 32_768;
const bytesOfRow = 4096;
/** Fields of a form. The names of 100,000 take a third of a second. */
const maxFields = 1000;

/** Marks a body that came as a form: all its values are text. */
const form = Symbol('form');

/**
 * What Fastify checks requests and writes answers with, in place of its own compilers, which would be loaded at each start.
 * Bodies are taken as they are; what comes in a URL or a form is text and is read as what the schema wants.
 */
export function schemaCompilers(): NonNullable<FastifyServerOptions['schemaController']> {
  // The schemas are our own: compiling the schema of schemas to check them would take longer than all of them.
  const trusted = { meta: false, validateSchema: false } as const;
  const shared = {
    allErrors: false,
    strictTypes: false,
    strictSchema: false,
    useDefaults: false,
    verbose: true,
    ...trusted,
  } as const;
  const strict = new Ajv({ ...shared, coerceTypes: false });
  const coercing = new Ajv({ ...shared, coerceTypes: true });
  const validator: FastifySchemaCompiler<object> = ({ schema, httpPart }) => {
    const [coerce, check] = [checking(coercing, schema, httpPart), checking(strict, schema, httpPart)];
    if (httpPart !== 'body') return coerce;
    return (body: unknown) => {
      if (!isForm(body)) return check(body);
      readNulls(schema, body);
      return coerce(body);
    };
  };
  const serializer = () => (data: unknown) => JSON.stringify(data);
  const compilersFactory = { buildValidator: () => validator, buildSerializer: () => serializer };
  // Fastify's types know the validators of its own compiler only.
  return { compilersFactory } as unknown as NonNullable<FastifyServerOptions['schemaController']>;
}

/** Reads at once what is short. Longer bodies take milliseconds: accounts take turns. */
function inTurn(
  reads: Scheduler,
  request: FastifyRequest,
  body: string,
  done: (error: Error) => void,
  read: () => void,
): void {
  if (body.length <= shortBody) {
    read();
    return;
  }
  // Only callers may send so much.
  const lane = request.caller ? laneOf(request.caller) : strangerLane(request.address);
  reads.run(lane, body.length / bytesOfRow, async () => read()).catch(done);
}

/** Reads bodies of this media type as JSON. */
export function takeJson(app: App, { reads }: { reads: Scheduler }, mediaType: string): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser<string>(mediaType, { parseAs: 'string' }, (request, body, done) => {
    // Clients send the header with calls that have no body, such as recover.
    if (body === '') return done(null, undefined);
    inTurn(reads, request, body, done, () => {
      if (isNestedDeeply(body)) return done(invalid('body', unstorable), undefined);
      parse(request, body, (error, value) => (error ? done(unreadable(body), undefined) : accept(value, done)));
    });
  });
}

/** Reads JSON and forms, and nothing else. */
export function strictBodies(app: App, { reads }: { reads: Scheduler }): void {
  // Fastify takes plain text by itself; here it is a media type like any other that is not supported.
  app.removeContentTypeParser('text/plain');
  takeJson(app, { reads }, 'application/json');
  app.addContentTypeParser<string>(
    'application/x-www-form-urlencoded',
    { parseAs: 'string' },
    (request, body, done) => {
      if (/^\s*[{[]/.test(body)) return done(jsonAsForm(), undefined);
      if (body.split('&', maxFields + 1).length > maxFields)
        return done(invalid('body', `has more than ${maxFields} fields`), undefined);
      inTurn(reads, request, body, done, () => {
        const values = [...new URLSearchParams(body)];
        if (values.some(([name]) => name === '__proto__'))
          return done(invalid('__proto__', 'is not a property'), undefined);
        accept(Object.defineProperty(Object.fromEntries(values), form, { value: true }), done);
      });
    },
  );
}

function accept(value: unknown, done: (error: Error | null, value?: unknown) => void): void {
  const path = findUnstorable(value);
  done(path === undefined ? null : invalid(path, unstorable), value);
}

/** The parser refuses what is no JSON, and names with which objects could be spoilt. */
function unreadable(body: string): PlatformError {
  const fault = isJson(body) ? 'has a property __proto__, or a constructor with a prototype' : jsonFault(body);
  const details = [{ path: 'body', message: fault }];
  return new PlatformError('invalid', { details });
}

/** What curl sends without a header: the media type of a form, and JSON. */
function jsonAsForm(): PlatformError {
  const said = 'is application/x-www-form-urlencoded, so the body was read as a form; send JSON as application/json';
  return new PlatformError('invalid', { details: [{ path: 'content-type', message: said }] });
}

function isForm(body: unknown): body is Record<string, unknown> {
  return typeof body === 'object' && body !== null && form in body;
}

/** The text `null` is no value where the schema takes null, custom fields among them. */
function readNulls(
  { properties = {} }: { properties?: Record<string, { type?: unknown }> },
  body: Record<string, unknown>,
) {
  for (const [name, value] of Object.entries(body)) {
    const type = Object.hasOwn(properties, name) ? properties[name]?.type : undefined;
    if (value === 'null' && (type === undefined || (Array.isArray(type) && type.includes('null')))) body[name] = null;
  }
}

/** A check against a schema, which is compiled when it is first used: all of them at once would be a slow start. */
function checking(ajv: Ajv, schema: object, httpPart = '') {
  let validate: ValidateFunction | undefined;
  return (value: unknown): true | { error: Error } => {
    validate ??= ajv.compile(schema);
    if (validate(value)) return true;
    const failure = { validation: validate.errors ?? [], validationContext: httpPart, statusCode: 400 };
    return { error: Object.assign(new Error('invalid value'), failure) };
  };
}
