/** An error becomes an answer here, in the shape of the endpoint's family. */
import { STATUS_CODES } from 'node:http';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import type { MessageStore } from '../../../db/messages/store.ts';
import { isStoreBusy, isStoreFull } from '../../../db/registry/index.ts';
import {
  type FailureKind,
  identityErrorCode,
  identityMessage,
  lineOf,
  PlatformError,
  tooLarge,
} from '../../core/errors.ts';
import { sendAllowance } from '../../core/limits/attempts.ts';
import { isFlat } from '../openapi/document.ts';
import { mistypedNames, type NamedSchema } from '../schema-names.ts';
import { detailsOf, type Fault } from '../validation.ts';

export const scimMediaType = 'application/scim+json; charset=utf-8';

/** The one place where an error becomes an answer; of which kind it is. */
export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FailureKind {
  const failure = asPlatformError(error, request);
  const { code, status, details, allowance } = failure;
  const requestId = request.id;
  if (allowance) {
    sendAllowance(reply, allowance);
    reply.header('retry-after', allowance.reset);
  }
  const family = request.routeOptions?.config?.family;
  if (family === 'scim') {
    sendScimError(failure, reply);
    return failure.kind;
  }
  const meant = status === 400 ? meantBy(request) : '';
  const message = meant + failure.message;
  if (family !== 'identity') {
    reply.status(status).send({ error: { code, message, details }, requestId });
    return failure.kind;
  }
  const errorCode = identityErrorCode(failure.kind);
  const attributes = { errorCode, error: message, details };
  const name = STATUS_CODES[status] ?? 'Error';
  reply
    .status(status)
    .send({ statusCode: status, error: name, message: meant + identityMessage(failure), attributes, requestId });
  return failure.kind;
}

/** Unknown names of a request that are looked at for what was meant by them. */
const maxLooked = 20;

/** What was probably meant by names of the body or the query that the endpoint does not know; each ends with a blank. */
function meantBy({ body, query, routeOptions }: FastifyRequest): string {
  const { schema } = routeOptions ?? {};
  const found = [
    ...(schema?.body ? mistypedNames(body, schema.body as NamedSchema, maxLooked) : []),
    ...(schema?.querystring ? mistypedNames(query, schema.querystring as NamedSchema, maxLooked) : []),
  ];
  return found
    .slice(0, 3)
    .map(({ path, meant }) => `${path.slice(0, 100)}: did you mean ${meant}? `)
    .join('');
}

/** RFC 7644, 3.12. A detail says the `scimType` where it is not that of the kind. */
function sendScimError(failure: PlatformError, reply: FastifyReply): void {
  const { kind, status, details } = failure;
  const isTaken = kind === 'notUnique' || kind === 'userExists';
  const said = details.find(({ scimType }) => scimType !== undefined)?.scimType;
  // `body` is the path of what cannot be read at all.
  const ofBody = details.some(({ path }) => path === 'body') ? 'invalidSyntax' : 'invalidValue';
  const scimType = said ?? (isTaken ? 'uniqueness' : kind === 'invalid' ? ofBody : undefined);
  const code = isTaken ? 409 : status;
  reply.status(code).type(scimMediaType);
  reply.send(
    JSON.stringify({
      schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
      status: String(code),
      ...(scimType !== undefined && { scimType }),
      detail: lineOf(failure),
    }),
  );
}

function asPlatformError(error: unknown, request: FastifyRequest): PlatformError {
  if (error instanceof PlatformError) return error;
  if (isStoreFull(error)) return new PlatformError('storeFull', { details: [{ message: error.message }] });
  if (isStoreBusy(error))
    return new PlatformError('stopping', { message: 'Another program holds the database. Try again.' });
  const { validation, validationContext, statusCode } = error as Partial<FastifyError>;
  if (validation)
    return new PlatformError('invalid', { details: detailsOf(validation as Fault[], validationContext ?? '') });
  if (statusCode === 413 && !request.caller)
    return new PlatformError('tooLarge', {
      message: `The body is too large: without a valid token it has at most ${request.routeOptions.bodyLimit} bytes.`,
    });
  if (statusCode === 413) return tooLarge(request.routeOptions?.config?.bodyLimit ?? 'SLIPWAY_HTTP_BODY_BYTES');
  if (statusCode === 415) return unsupported(request);
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return new PlatformError('invalid', { message: 'The request cannot be read.' });
  return new PlatformError('server');
}

/** 415, naming what the endpoint takes. */
function unsupported({ routeOptions, headers }: FastifyRequest): PlatformError {
  const body = routeOptions?.schema?.body as { content?: object } | undefined;
  if (!body) return new PlatformError('mediaType');
  const forms = isFlat(body) ? ['application/x-www-form-urlencoded'] : [];
  const types = body.content ? Object.keys(body.content) : ['application/json', ...forms];
  return new PlatformError('mediaType', {
    ...(headers['content-type'] === undefined && { message: 'The request has a body and no Content-Type header.' }),
    details: [{ path: 'content-type', message: `must be one of ${types.join(', ')}` }],
  });
}

/** A store that takes no messages has said so once: many requests fail at it, and lines would take the last of the disk. */
export function noteFailure(
  messages: Pick<MessageStore, 'isNoRoom'>,
  error: unknown,
  { id: requestId, log }: FastifyRequest,
): void {
  // A full store has said so once: a line for each request would take the last of the disk.
  const isSaid = messages.isNoRoom(error) || (error instanceof PlatformError && error.kind === 'storeFull');
  // What has a name is no fault of the service, and a provider that is away would fill the log with them.
  const isNamed = error instanceof PlatformError && error.kind !== 'server';
  const level = isSaid ? 'debug' : isNamed ? 'warn' : 'error';
  log[level]({ requestId, err: error }, 'request failed');
}
