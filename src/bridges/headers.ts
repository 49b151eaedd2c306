/** Headers that the requests of a webhook have besides those of the service. They are stored sealed; only names are shown. */
import { type Static, Type } from 'typebox';
import type { Row } from '../../db/registry/records.ts';
import { invalid } from '../core/errors.ts';
import type { Sealing } from '../identity/secrets/sealing.ts';

export const maxHeaders = 10;

const headerName = Type.String({ minLength: 1, maxLength: 100 });
export const headersBody = Type.Array(
  Type.Object({
    name: headerName,
    value: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 4000,
        description:
          'Visible ASCII characters, blanks and tabs. Stored sealed and never shown. A PUT that leaves it out keeps the stored value, if the bridge leads to the same server.',
      }),
    ),
  }),
  {
    maxItems: maxHeaders,
    description: 'Headers that each request of a webhook has, such as Authorization. A PUT replaces all of them.',
  },
);
export const headersShown = Type.Array(Type.Object({ name: headerName }), {
  maxItems: maxHeaders,
  description: 'The headers that a webhook adds to its requests. Their values are never shown.',
});

type AskedHeaders = Static<typeof headersBody>;
export type Header = Required<AskedHeaders[number]>;

/** Headers of one connection (RFC 9110, 7.6.1), and those that say what the body is and where it goes. */
const reserved = [
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];
/** Headers that the service sets itself. */
const own = ['user-agent', 'webhook-id', 'webhook-timestamp', 'webhook-signature'];

const tokenForm = /^[!#$%&'*+.^_`|~\w-]+$/;
const valueForm = /^[!-~]([\t -~]*[!-~])?$/;

/**
 * The headers of a body with all their values, those that it leaves out as they are stored.
 * @throws PlatformError 400/106 for a name or a value that a request cannot have, and for a value that is not stored.
 */
export function readHeaders(asked: AskedHeaders, stored: readonly Header[], headerPrefix: string): Header[] {
  const before = new Map(stored.map(({ name, value }) => [name.toLowerCase(), value]));
  const names = new Set<string>();
  return asked.map(({ name, value = before.get(name.toLowerCase()) }, index) => {
    const path = `headers.${index}`;
    const lower = name.toLowerCase();
    if (!tokenForm.test(name))
      throw invalid(`${path}.name`, "must be a name of an HTTP header: letters, digits and !#$%&'*+-.^_`|~");
    if (reserved.includes(lower))
      throw invalid(`${path}.name`, `cannot be ${name}: HTTP sets it for each connection or body`);
    if (own.includes(lower) || lower === `${headerPrefix}-signature`.toLowerCase())
      throw invalid(`${path}.name`, `cannot be ${name}: the service sets it itself`);
    if (names.has(lower)) throw invalid(`${path}.name`, `${name} is there twice`);
    names.add(lower);
    if (value === undefined) throw invalid(`${path}.value`, 'is required: no value of this header is stored');
    if (!valueForm.test(value))
      throw invalid(`${path}.value`, 'must be visible ASCII characters, with blanks and tabs only between them');
    return { name, value };
  });
}

const owner = (id: string) => `bridge/${id}/headers`;

/** Null for no headers. */
export function sealHeaders(sealing: Sealing, id: string, headers: readonly Header[]): string | null {
  return headers.length === 0 ? null : sealing.seal(owner(id), JSON.stringify(headers));
}

/** @throws Error if they cannot be unsealed. */
export function openHeaders(
  sealing: Sealing,
  { id, sealedHeaders }: Pick<Row<'bridges'>, 'id' | 'sealedHeaders'>,
): Header[] {
  return sealedHeaders === null ? [] : JSON.parse(sealing.open(owner(id), sealedHeaders));
}
