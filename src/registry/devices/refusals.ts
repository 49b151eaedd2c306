/** Reading why something of a device was refused; broker/refusals.ts notes it. */

import { type Static, Type } from 'typebox';
import { DateText, Id, Nullable, oneOf, type Row } from '../../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { pageOfTable } from '../../entity/list.ts';
import { idParams, listResponse, readDate } from '../../entity/routes.ts';
import { oneSlice, showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { RegistryContext } from '../context.ts';

const query = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});

/** Refusals of a device that are kept; broker/refusals.ts removes older ones. */
export const maxRefusals = 50;

export const refusalShape = Type.Object({
  deviceId: Id,
  time: DateText,
  action: oneOf(['connect', 'publish', 'subscribe']),
  topic: Nullable(Type.String({ description: 'Or the filter; null for a CONNECT.' })),
  reason: Type.String({ description: 'A sentence; it names the variable of a limit.' }),
  principal: Nullable(
    Type.Object(
      { type: oneOf(['device', 'user', 'application']), id: Type.String() },
      {
        description:
          'Who was refused, as `POST /permissions/explain` takes it; null for a CONNECT that proved nothing.',
      },
    ),
  ),
  cause: Nullable(
    Type.String({ description: 'The same for programs, as in GET /overview; null where it was not noted.' }),
  ),
  code: Type.Integer({ description: 'As on `_rejected`; the return code of CONNACK for a CONNECT.' }),
  address: Nullable(
    Type.String({ description: 'From where; of a user who wrote to the device, for admins and back-ends only.' }),
  ),
  clientId: Nullable(
    Type.String({
      description: 'As it was sent; of a user, and of a CONNECT that proved nothing, for admins and back-ends only.',
    }),
  ),
});

const accountQuery = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  cause: Type.Optional(Type.String({ description: 'Equal to this.' })),
  deviceId: Type.Optional(Type.String({ description: 'Equal to this id.' })),
  from: Type.Optional(Type.String({ description: 'ISO 8601, inclusive.' })),
  ...query.properties,
});

/** GET /refusals: of all devices of the account. */
export function accountRefusalRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/refusals',
    {
      config: { right: ['read', 'auditRecord'], errors: ['notFound', 'pageOutside', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Messages'],
        operationId: 'listRefusals',
        summary: 'List the refusals of all devices, newest first',
        description: 'The last 50 of each device. Filters are combined: a refusal must match all of them.',
        querystring: accountQuery,
        response: listResponse('refusals', refusalShape),
      },
    },
    async (request, reply) => {
      ctx.access.demandAccount(request.caller, request.query.accountId);
      const ignored = nameIgnored(request, reply, accountQuery);
      const { rows, meta } = await readAccountRefusals(ctx, request.caller, request.query);
      const results = showSlices(rows, (caller) => (row) => show(caller, row));
      return sendList(reply, 'refusals', { results, meta: metaWith(meta, ignored) });
    },
  );
}

async function readAccountRefusals(ctx: RegistryContext, caller: Caller, asked: Static<typeof accountQuery>) {
  const { query: db } = ctx.registry;
  const from = readDate('from', asked.from);
  let matching = db.selectFrom('refusals').where('accountId', '=', asked.accountId);
  for (const column of ['cause', 'deviceId'] as const) {
    const value = asked[column];
    if (value !== undefined) matching = matching.where(column, '=', value);
  }
  if (from !== undefined) matching = matching.where('time', '>=', new Date(from).toISOString());
  return pageOfTable(ctx, caller, asked, {
    matching,
    key: 'sequence',
    order: ['sequence'],
    long: ['reason', 'topic'],
    read: (_, some: number[]) => db.selectFrom('refusals').selectAll().where('sequence', 'in', some).execute(),
    idOf: ({ sequence }) => sequence,
  });
}

/** GET /devices/{id}/refusals. */
export function refusalRoutes(app: App, ctx: RegistryContext): void {
  app.get(
    '/devices/:id/refusals',
    {
      config: {
        right: ['subscribe', 'device'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Messages'],
        operationId: 'listDeviceRefusals',
        summary: 'Read the last 50 refusals of a device, newest first, with their reasons',
        description: 'Look here first if a device does not do what you expect: each entry says what was wrong.',
        params: idParams,
        querystring: query,
        response: listResponse('refusals', refusalShape),
      },
    },
    async (request, reply) => {
      const ignored = nameIgnored(request, reply, query);
      const { rows, meta } = await readRefusals(ctx, request.caller, request.params.id, request.query);
      const results = showSlices(rows, (caller) => (row) => show(caller, row));
      return sendList(reply, 'refusals', { results, meta: metaWith(meta, ignored) });
    },
  );
}

/**
 * One page of the last refusals of a device, newest first.
 * @throws PlatformError 403/21, 404/100, 410/107 for the device; 416/109 past the last page.
 */
async function readRefusals(ctx: RegistryContext, caller: Caller, deviceId: string, wanted: Static<typeof query>) {
  const rows = await storedOf(ctx, caller, demandLive(findReached(ctx, caller, 'devices', deviceId)));
  const { page = 1, pageSize = 10 } = wanted;
  const from = (page - 1) * pageSize;
  if (page > 1 && from >= rows.length) throw new PlatformError('pageOutside');
  return {
    rows: oneSlice(caller, rows.slice(from, from + pageSize)),
    meta: { count: rows.length, page, pageSize, sortOrder: 'desc' as const },
  };
}

/** Those of the last refusals of a device that the caller may see. */
async function storedOf({ access, broker, registry }: RegistryContext, caller: Caller, device: Row<'devices'>) {
  await broker.refusalsStored(device.id);
  return registry.query
    .selectFrom('refusals')
    .selectAll()
    .where('deviceId', '=', device.id)
    .where('time', '>', access.historyWindowOf(caller, device).after)
    .orderBy('sequence', 'desc')
    .execute();
}

/** The same of a time (milliseconds since 1970) and later, as they are shown. */
export async function refusalsOf(ctx: RegistryContext, caller: Caller, device: Row<'devices'>, from: number) {
  const rows = await storedOf(ctx, caller, device);
  return rows.filter(({ time }) => Date.parse(time) >= from).map((row) => show(caller, row));
}

/** A row as it is read. */
type Stored = Omit<Row<'refusals'>, 'sequence'>;

function show(caller: Caller, { principalType, principalId, ...row }: Stored): Static<typeof refusalShape> {
  const { deviceId, time, topic, reason, cause, code, address, clientId } = row;
  const action = row.action as Static<typeof refusalShape>['action'];
  const type = principalType as NonNullable<Static<typeof refusalShape>['principal']>['type'];
  const principal = principalId === null ? null : { type, id: principalId };
  // Where a user is, and with which client, is no business of the other users who reach the device; what a stranger has
  // sent as its client id may be anything.
  const isShown = type === 'device' || isAccountWide(caller);
  const from = { address: isShown || action === 'connect' ? address : null, clientId: isShown ? clientId : null };
  return { deviceId, time, action, topic, reason, cause, code, principal, ...from };
}
