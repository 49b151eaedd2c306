/** What one server of several says about itself to `slipway cells`: its accounts, and ids that do not name their account. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { version } from '../db/files/version.ts';
import type { Registry } from '../db/registry/index.ts';
import type { Config } from '../src/core/config.ts';
import { PlatformError } from '../src/core/errors.ts';
import { slotOf, slotsText } from '../src/core/ids.ts';
import type { App } from '../src/http/app.ts';
import { demandToken } from '../src/http/guards/operator-token.ts';

/** Rows that one request reads. It is a few milliseconds of the event loop. */
const pageRows = 2000;

/** The kinds whose ids a proxy routes by, in the order in which they are read. */
const kinds = ['devices', 'endUsers', 'accountUsers', 'identities', 'identityProviders'] as const;

/** A place in the tables: the next page begins after it. */
export interface CellPlace {
  kind: string;
  after: string;
}

/** One page of ids without the digits of their account. `next` is null at the end. */
export interface ForeignIds {
  ids: { accountId: string; id: string }[];
  next: CellPlace | null;
}

/** Looks at up to `rows` ids of one kind from a place on. */
export async function readForeignIds(
  { query }: Pick<Registry, 'query'>,
  { kind, after }: CellPlace,
  rows = pageRows,
): Promise<ForeignIds> {
  const place = (kinds as readonly string[]).indexOf(kind);
  const table = kinds[place];
  if (!table) return { ids: [], next: null };
  const found = await query
    .selectFrom(table)
    .select(['id', 'accountId'])
    .where('id', '>', after)
    .orderBy('id')
    .limit(rows)
    .execute();
  const ids = found.flatMap(({ id, accountId }) => (slotOf(id) === slotOf(accountId) ? [] : { accountId, id }));
  const last = found.length < rows ? undefined : found.at(-1);
  const following = kinds[place + 1];
  if (last) return { ids, next: { kind: table, after: last.id } };
  return { ids, next: following === undefined ? null : { kind: following, after: '' } };
}

/**
 * The slot of the account that an id belongs to, and since when it is there; null if this cell does not know the id.
 * A proxy asks for ids that do not carry the digits of their account.
 */
export async function lookUp({ query }: Pick<Registry, 'query'>, id: string) {
  const rows = await Promise.all([
    ...kinds.map((kind) => query.selectFrom(kind).select(['accountId', 'created']).where('id', '=', id).execute()),
    query.selectFrom('accounts').select(['id as accountId', 'created']).where('id', '=', id).execute(),
  ]);
  const [first] = rows.flat().sort((one, other) => (one.created < other.created ? -1 : 1));
  return first ? { slot: slotOf(first.accountId), created: first.created } : { slot: null };
}

/** The accounts after an id, in order. */
export function readAccounts({ query }: Pick<Registry, 'query'>, after: string, rows = pageRows) {
  return query
    .selectFrom('accounts')
    .select(['id', 'name'])
    .where('id', '>', after)
    .orderBy('id')
    .limit(rows)
    .execute();
}

/** The place where `readForeignIds` begins. */
export const firstPlace: CellPlace = { kind: kinds[0], after: '' };

/** Endpoints for the operator. They name every account, so they are closed until SLIPWAY_METRICS_TOKEN is set. */
export function cellRoutes(app: App, { config, registry }: { config: Config; registry: Registry }): void {
  /** Before anything of the request is looked at. */
  const onRequest = async (request: FastifyRequest, reply: FastifyReply) => {
    if (config.metricsToken === undefined)
      throw new PlatformError('notFound', { message: 'This endpoint needs SLIPWAY_METRICS_TOKEN to be set.' });
    demandToken(request, config.metricsToken);
    reply.header('cache-control', 'no-store');
  };
  const text = Type.Optional(Type.String({ maxLength: 255 }));
  const querystring = Type.Object({ kind: text, after: text });
  const paged = { onRequest, schema: { hide: true, querystring } };
  app.get('/cell', { onRequest, schema: { hide: true } }, async () => ({ version, slots: slotsText(config.slots) }));
  app.get('/cell/accounts', paged, async ({ query }) => {
    const accounts = await readAccounts(registry, query.after ?? '');
    return { accounts, next: accounts.length < pageRows ? null : (accounts.at(-1)?.id ?? null) };
  });
  const one = { id: Type.String({ maxLength: 36 }) };
  app.get('/cell/lookup', { onRequest, schema: { hide: true, querystring: Type.Object(one) } }, async ({ query }) =>
    lookUp(registry, query.id.toLowerCase()),
  );
  app.get('/cell/ids', paged, async ({ query }) =>
    readForeignIds(registry, { kind: query.kind ?? firstPlace.kind, after: query.after ?? '' }),
  );
}
