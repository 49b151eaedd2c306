/** Shared by the URLs of entities: the etag header, the envelope, the list of ignored properties. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type TObject, type TSchema, Type } from 'typebox';
import { Id, oneOf } from '../../db/registry/records.ts';
import { parseDate } from '../../db/sqlite/dates.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { streamed } from '../http/answers/streamed-list.ts';
import { maxNamed } from '../http/ignored-names.ts';
import { chosenTitle } from '../http/openapi/components.ts';
import { parseVersion } from './verbs.ts';

/** An entity as the wire shows it. */
export interface ShownEntity {
  id: string;
  version: string;
  /** Of a credential: the version of the entity that it belongs to, where making it may have changed that. */
  entityVersion?: string;
}

/** The id in a path; any text, because an invalid one is answered with "not found". */
export const idParams = Type.Object({ id: Type.String() });
export const etagHeaders = Type.Object({
  etag: Type.Optional(
    Type.String({ description: 'The current version of the entity, quoted or bare. If-Match is a synonym.' }),
  ),
});
export const metaShape = Type.Object({
  count: Type.Integer({ description: 'Matching entities in all.' }),
  page: Type.Integer(),
  pageSize: Type.Integer(),
  sortOrder: oneOf(['asc', 'desc']),
  sortBy: Type.Optional(Type.String()),
  scanned: Type.Optional(Type.Integer({ description: 'With `filter`: how many were read one by one.' })),
  ignored: Type.Optional(
    Type.Array(Type.String(), {
      maxItems: maxNamed,
      description: 'Unknown parameters of the request. They had no effect.',
    }),
  ),
});

/** The response that carries one entity. */
export function entityResponse(wrapper: string, shape: TSchema, description: string) {
  return { 200: Type.Object({ [wrapper]: shape }, { description }) };
}

const aPage = 'One page, and the total number.';

export function pageShape(plural: string, shape: TSchema, more: { title?: string; description?: string }) {
  const page = Type.Object({ results: Type.Optional(Type.Array(shape)), meta: Type.Optional(metaShape) });
  return Type.Object({ [plural]: page }, more);
}

/** The response of a list. No handler can return it as a whole: `sendList` sends it. */
export function listResponse(plural: string, shape: TSchema) {
  return { 200: streamed(pageShape(plural, shape, { description: aPage })) };
}

/** The response of a list whose query may name properties in `fields`. Its second form is what that answers with. */
export function chosenListResponse(plural: string, shape: TObject) {
  const { id = Id, ...others } = shape.properties;
  const part = Type.Object({ id, ...Type.Partial(Type.Object(others)).properties });
  const forms = [pageShape(plural, shape, {}), pageShape(plural, part, { title: chosenTitle })];
  return { 200: streamed(Type.Union(forms, { description: aPage })) };
}

/** The version of a device, end-user or account user after its credentials have changed: its next PUT needs no GET. */
export const entityVersion = Type.String({
  description: 'The current version of the entity, also in the ETag header.',
});

/** The ETag header of an answer that carries this: its version, or that of the entity that it belongs to. */
export function etagOf({ version, entityVersion = version }: Omit<ShownEntity, 'id'>): string {
  return `"${entityVersion}"`;
}

/** Sends one entity in its envelope, with its version in the ETag header. */
export function sendEntity(reply: FastifyReply, wrapper: string, entity: ShownEntity): FastifyReply {
  return reply.header('etag', etagOf(entity)).send({ [wrapper]: entity });
}

/**
 * The version in the etag header, quoted or bare, or in its synonym If-Match.
 * @throws PlatformError 400/103 when there is none, 412/103 when it could never be a version.
 */
export function readEtag(request: FastifyRequest): number {
  const header = request.headers.etag ?? request.headers['if-match'];
  const text = Array.isArray(header) ? header[0] : header;
  if (text === undefined || text.trim() === '')
    throw new PlatformError('etagMissing', {
      message: 'Send the version of the entity as etag; GET gives it. The etag header is missing.',
      details: [{ path: 'etag', message: 'The header is required.' }],
    });
  const version = parseVersion(text.trim().replace(/^(?:W\/)?"(.*)"$/, '$1'));
  if (version === undefined)
    throw new PlatformError('etagInvalid', {
      details: [
        {
          path: 'etag',
          message:
            text.trim() === '*'
              ? 'Any version, *, is not taken: send the version that you have read.'
              : 'The header is not a valid version.',
        },
      ],
    });
  return version;
}

/**
 * A date in a query as milliseconds since 1970; undefined when it is absent.
 * @throws PlatformError 400 with 106 naming `path` when it is no ISO 8601 date.
 */
export function readDate(path: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const time = parseDate(text);
  // The + of an offset is a blank in a query.
  const hint = / \d\d:?\d\d$/.test(text) ? '; in a query a + is sent as %2B' : '';
  if (time === undefined) throw invalid(path, `must be an ISO 8601 date${hint}`);
  return time;
}
