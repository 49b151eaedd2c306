/**
 * Somebody who sees a device asks the maker for support: the log and the refusals of the last day are kept with it until a caller of
 * the account closes the request.
 */
import type { FastifyReply } from 'fastify';
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Db, Tx } from '../../../db/registry/index.ts';
import { DateText, Id, Nullable, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { newId } from '../../core/ids.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import type { Scheduler } from '../../core/scheduler/scheduler.ts';
import { noteAnswer } from '../../entity/kept-answers.ts';
import { pageOfTable } from '../../entity/list.ts';
import { idParams, listResponse } from '../../entity/routes.ts';
import { showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached, writeAs } from '../../entity/verbs.ts';
import { JsonText, sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import { maxRefusals, refusalShape, refusalsOf } from '../../registry/devices/refusals.ts';
import type { MessagesContext } from '../context.ts';
import { logShape, showLog } from './log-entry.ts';

const tags = ['Devices'];
const path = '/devices/:id/support';
const day = 24 * 60 * 60_000;
/** Log entries that are kept, and bytes of JSON of them, and of refusals: the newest. */
const maxEntries = 500;
const maxBytes = 128 * 1024;
/** Requests with a device in a day. */
const maxOfDevice = 5;
/** Requests of an account that are open, for each thousand devices that it has or has begun. */
const maxOpen = 100;
const devicesOfOpen = 1000;

const body = Type.Object({
  message: Type.Optional(
    Nullable(Type.String({ maxLength: 2000, description: 'What went wrong, in a person’s words.' })),
  ),
});
const query = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});
const sentShape = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  created: DateText,
  createdById: Type.String({ description: 'Who asks.' }),
  message: Nullable(Type.String()),
});
const shape = Type.Object({
  ...sentShape.properties,
  log: Type.Array(logShape, { maxItems: maxEntries, description: 'Of the day before, newest first.' }),
  refusals: Type.Array(refusalShape, { maxItems: maxRefusals, description: 'Of the day before, newest first.' }),
});
const one = (description: string) => ({ 200: Type.Object({ supportRequest: sentShape }, { description }) });

type SupportRow = Row<'supportRequests'>;

/** `turns` are those of reading the log. */
export function supportRoutes(app: App, ctx: MessagesContext, turns: Scheduler): void {
  app.post(
    path,
    {
      config: { creates: true, right: ['read', 'device'], errors: ['notFound', 'deleted', 'forbidden', 'tooMany'] },
      schema: {
        tags,
        operationId: 'requestSupport',
        summary: 'Ask for support with a device: what went wrong goes to the account',
        description:
          'The log and the refusals of the last day, as the caller may see them, are kept with the message until a caller of the account closes the request. At most five a device in 24 hours.',
        params: idParams,
        body,
        response: one('The account has it.'),
      },
    },
    async ({ caller, params, body: { message = null } }) => {
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      return { supportRequest: await request(ctx, caller, device, message, turns) };
    },
  );
  app.get(
    path,
    {
      config: {
        right: ['read', 'supportRequest'],
        errors: ['notFound', 'deleted', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags,
        operationId: 'listSupportRequests',
        summary: 'List the open requests for support with a device, newest first',
        description: 'For callers of the whole account. Each has what had happened to the device in the day before.',
        params: idParams,
        querystring: query,
        response: listResponse('supportRequests', shape),
      },
    },
    (request, reply) =>
      list(ctx, request.caller, request.params.id, request.query, reply, nameIgnored(request, reply, query)),
  );
  app.delete(
    `${path}/:supportId`,
    {
      config: { right: ['delete', 'supportRequest'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'closeSupportRequest',
        summary: 'Close a request for support',
        description: 'It is removed; the audit record has who closed it.',
        params: Type.Object({ id: Type.String(), supportId: Type.String() }),
        response: one('The request as it was.'),
      },
    },
    async ({ caller, params }) => ({ supportRequest: await close(ctx, caller, params) }),
  );
}

/** @throws PlatformError 404/100 for a device that is out of reach by now, 429 for one that is too many of the device or the account. */
async function request(
  ctx: MessagesContext,
  caller: Caller,
  device: Row<'devices'>,
  message: string | null,
  turns: Scheduler,
): Promise<Static<typeof sentShape>> {
  const { clock } = ctx;
  const { accountId, id: deviceId } = device;
  const since = clock.now() - day;
  // Before what takes long is read; and again where two at once cannot get past it.
  await demandFewer(ctx.registry.query, device, clock.now());
  const refusals = await refusalsOf(ctx, caller, device, since);
  const row: SupportRow = {
    ...{ id: newId(accountId), accountId, deviceId, created: timestamp(clock), createdById: caller.id, message },
    refusals: joined(refusals.map((one) => JSON.stringify(one))),
    log: joined(await logOf(ctx, caller, device, since, turns)),
  };
  return writeAs(ctx, caller, ['devices', deviceId], async (tx) => {
    await demandFewer(tx, device, clock.now());
    await demandRoom(tx, accountId);
    await tx.insertInto('supportRequests').values(row).execute();
    const { log: _, refusals: __, ...sent } = row;
    await noteAnswer(tx, { supportRequest: sent });
    await record(ctx, tx, 'supportRequested', caller, row);
    return sent;
  });
}

/** The entries of the log since then that the caller may see, as JSON, newest first. */
async function logOf(
  { access, messages }: MessagesContext,
  caller: Caller,
  device: Row<'devices'>,
  from: number,
  turns: Scheduler,
): Promise<string[]> {
  const { logs } = messages;
  const inTurn = <T>(read: () => Promise<T>) => turns.run(laneOf(caller), 1, read);
  const asked = { severities: undefined, from, to: undefined, window: access.historyWindowOf(caller, device) };
  let part = await inTurn(() => logs.read(device.id, asked, { page: 1, pageSize: maxEntries }));
  const texts: string[] = [];
  for (let bytes = 0; part && bytes < maxBytes; ) {
    for (const entry of part.entries) {
      const text = JSON.stringify(showLog(entry));
      bytes += text.length;
      texts.push(text);
    }
    const { rest } = part;
    if (rest.length === 0) break;
    part = { ...part, ...(await inTurn(() => logs.more(rest))) };
  }
  return texts;
}

/** The first of these as one array, as far as there is room for them. */
function joined(texts: readonly string[]): string {
  let bytes = 0;
  const kept = texts.filter((text) => {
    bytes += Buffer.byteLength(text);
    return bytes <= maxBytes;
  });
  return `[${kept.join(',')}]`;
}

/** Closed ones count too: the audit record has them. @throws PlatformError 429/-199 for the sixth with a device in a day. */
async function demandFewer(db: Db, { accountId, id }: Row<'devices'>, now: number): Promise<void> {
  const all = db.selectFrom('auditRecords').select('time').where('accountId', '=', accountId);
  // By the index of events: of others, a device may have very many in a day.
  const requests = all.where('event', '=', 'supportRequested').where(sql<boolean>`+"targetId" = ${id}`);
  const some = requests.where('time', '>', new Date(now - day).toISOString()).orderBy('time', 'desc');
  const oldest = (await some.limit(maxOfDevice).execute())[maxOfDevice - 1];
  if (!oldest) return;
  const reset = Math.max(1, Math.ceil((Date.parse(oldest.time) + day - now) / 1000));
  throw new PlatformError('tooMany', {
    message: `At most ${maxOfDevice} requests for support with a device in 24 hours.`,
    allowance: { limit: maxOfDevice, remaining: 0, reset },
  });
}

/** @throws PlatformError 429/-199 when the account has so many open requests. */
async function demandRoom(tx: Tx, accountId: string): Promise<void> {
  const open = tx.selectFrom('supportRequests').select((eb) => eb.fn.countAll<number>().as('count'));
  const counts = tx.selectFrom('deviceCounts').select(sql<number>`coalesce(sum("count"), 0)`.as('count'));
  const [{ count }, { count: devices }] = await Promise.all([
    open.where('accountId', '=', accountId).executeTakeFirstOrThrow(),
    counts.where('accountId', '=', accountId).executeTakeFirstOrThrow(),
  ]);
  const limit = maxOpen * Math.max(1, Math.ceil(devices / devicesOfOpen));
  if (count < limit) return;
  const allowance = { limit, remaining: 0, reset: 3600 };
  throw new PlatformError('tooMany', {
    message: 'Too many requests for support are open. Try again later.',
    allowance,
  });
}

async function list(
  ctx: MessagesContext,
  caller: Caller,
  id: string,
  asked: Static<typeof query>,
  reply: FastifyReply,
  ignored: string[],
) {
  const { query: db } = ctx.registry;
  const device = demandLive(findReached(ctx, caller, 'devices', id));
  const { rows, meta } = await pageOfTable(ctx, caller, asked, {
    matching: db.selectFrom('supportRequests').where('deviceId', '=', device.id),
    key: 'id',
    order: ['created', 'id'],
    long: ['log', 'refusals', 'message'],
    read: (_, some: string[]) => db.selectFrom('supportRequests').selectAll().where('id', 'in', some).execute(),
    idOf: (row) => row.id,
  });
  return sendList(reply, 'supportRequests', { results: showSlices(rows, () => show), meta: metaWith(meta, ignored) });
}

/** What was kept is JSON already. */
function show({ log, refusals, ...sent }: SupportRow): JsonText {
  return new JsonText(`${JSON.stringify(sent).slice(0, -1)},"log":${log},"refusals":${refusals}}`);
}

/** @throws PlatformError 404/100 for one that is not the device's, or is closed. */
async function close(
  ctx: MessagesContext,
  caller: Caller,
  { id, supportId }: { id: string; supportId: string },
): Promise<Static<typeof sentShape>> {
  const { id: deviceId } = findReached(ctx, caller, 'devices', id);
  return writeAs(ctx, caller, undefined, async (tx) => {
    const closed = tx.deleteFrom('supportRequests').where('id', '=', supportId).where('deviceId', '=', deviceId);
    const row = await closed
      .returning(['id', 'accountId', 'deviceId', 'created', 'createdById', 'message'])
      .executeTakeFirst();
    if (!row) throw new PlatformError('notFound');
    await record(ctx, tx, 'supportClosed', caller, row);
    return row;
  });
}

function record(
  { audit }: MessagesContext,
  tx: Tx,
  event: 'supportRequested' | 'supportClosed',
  actor: Caller,
  { id: supportId, accountId, deviceId }: Pick<SupportRow, 'id' | 'accountId' | 'deviceId'>,
): Promise<void> {
  const target = { kind: 'device', id: deviceId } as const;
  return audit.record(tx, { event, outcome: 'success', accountId, actor, target, details: { supportId } });
}
