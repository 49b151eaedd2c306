/** Does a unit on the line really connect and publish? Waited for, answered and kept. */

import type { FastifyReply } from 'fastify';
import { type Static, Type } from 'typebox';
import { accountKey } from '../../db/registry/account-key.ts';
import { findEntity } from '../../db/registry/entities.ts';
import { DateText, Id, oneOf, type Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import { timestamp } from '../core/clock.ts';
import { invalid, PlatformError } from '../core/errors.ts';
import { normalizeSerialNumber } from '../core/formats/serial-numbers.ts';
import { newId } from '../core/ids.ts';
import { keepNewest } from '../core/limits/kept.ts';
import { pageOfTable } from '../entity/list.ts';
import { listResponse } from '../entity/routes.ts';
import { showSlices } from '../entity/row-slices.ts';
import { demandLive, findReached, writeAs } from '../entity/verbs.ts';
import { sendList } from '../http/answers/streamed-list.ts';
import type { App } from '../http/app.ts';
import { isInsideBatch } from '../http/batch.ts';
import { metaWith, nameIgnored } from '../http/ignored-names.ts';
import type { DeviceSign, DeviceWatch } from '../ports/streams.ts';
import type { FactoryContext } from './context.ts';

/** Seconds that a verification waits. */
const maxWait = 60;
const usualWait = 30;

const body = Type.Object({
  deviceId: Type.Optional(Type.String()),
  serialNumber: Type.Optional(
    Type.String({
      maxLength: 255,
      description: 'The full serial number, instead of the id. It must belong to a single device in reach.',
    }),
  ),
  timeoutSeconds: Type.Optional(
    Type.Number({ minimum: 0, maximum: maxWait, default: usualWait, description: 'Maximum wait in seconds.' }),
  ),
});
const query = Type.Object({
  accountId: Type.String({ description: 'The account id. The id of another account answers 404.' }),
  deviceId: Type.Optional(Type.String()),
  serialNumber: Type.Optional(Type.String({ description: 'The full serial number at that time.' })),
  passed: Type.Optional(Type.Boolean()),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
  sortOrder: Type.Optional(oneOf(['asc', 'desc'], { default: 'desc' })),
});
const shape = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  serialNumber: Type.String(),
  passed: Type.Boolean({ description: 'Whether the device is connected and has published since it was provisioned.' }),
  connected: Type.Boolean({ description: 'Whether the device was connected with its newest credential.' }),
  published: Type.Boolean({ description: 'Whether it has published with its newest credential.' }),
  time: DateText,
  createdById: Type.String(),
});

export function verificationRoutes(app: App, ctx: FactoryContext): void {
  const { streams } = ctx;
  // A server that closes waits for its answers.
  app.addHook('preClose', async () => streams.endWatches());
  app.post(
    '/provisioning/verify',
    {
      config: {
        creates: true,
        right: ['create', 'verification'],
        errors: ['notFound', 'deleted', 'forbidden', 'tooMany', 'stopping'],
      },
      schema: {
        tags: ['Provisioning'],
        operationId: 'verifyDevice',
        summary: 'Wait until a device is connected and has published since it was provisioned',
        description: 'Answers as soon as both are true, or when the time is over. In a batch it does not wait.',
        body,
        response: {
          200: Type.Object(
            { verification: shape },
            { description: 'Whether the device has passed. The result is stored in both cases.' },
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, authenticated } = request;
      const device = await findDevice(ctx, caller, request.body);
      const { timeoutSeconds = usualWait } = request.body;
      if (isInsideBatch(request) && timeoutSeconds > 0) throw invalid('timeoutSeconds', 'must be 0 in a batch');
      const watch = streams.watchDevice(caller, device.id, Date.parse(authenticated.session.expires));
      if (!watch) {
        const allowance = { limit: 0, remaining: 0, reset: maxWait };
        throw new PlatformError('tooMany', { message: 'Too many verifications at once.', allowance });
      }
      try {
        const seen = await waitFor(ctx, watch, device.id, endOf(reply, timeoutSeconds * 1000));
        if (reply.raw.destroyed)
          throw new PlatformError('stopping', { message: 'The client has closed the connection.' });
        return { verification: await storeVerification(ctx, caller, device.id, seen) };
      } finally {
        watch.close();
      }
    },
  );
  app.get(
    '/provisioning/verifications',
    {
      config: {
        right: ['read', 'verification'],
        errors: ['notFound', 'pageOutside', 'forbidden'],
        sends: ['ignored'],
      },
      schema: {
        tags: ['Provisioning'],
        operationId: 'listVerifications',
        summary: 'List verifications, by default newest first',
        description: 'Returns one page. Filters are combined: a verification must match all of them.',
        querystring: query,
        response: listResponse('verifications', shape),
      },
    },
    async (request, reply) => {
      ctx.access.demandAccount(request.caller, request.query.accountId);
      const ignored = nameIgnored(request, reply, query);
      const { rows, meta } = await readVerifications(ctx, request.caller, request.query);
      const results = showSlices(rows, () => show);
      return sendList(reply, 'verifications', { results, meta: metaWith(meta, ignored) });
    },
  );
}

/** Resolves after so many milliseconds, or when nobody waits for the answer any more. */
function endOf({ raw }: FastifyReply, time: number): Promise<'over'> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time, 'over');
    raw.once('close', () => {
      clearTimeout(timer);
      resolve('over');
    });
  });
}

/**
 * The device that is to be verified. Of several with one serial number none is chosen: the verdict would be on another.
 * @throws PlatformError 403/21, 404/100, 410/107; 400/106 for both names or none, and for a serial number of several.
 */
async function findDevice(ctx: FactoryContext, caller: Caller, { deviceId, serialNumber }: Static<typeof body>) {
  if ((deviceId === undefined) === (serialNumber === undefined))
    throw invalid('deviceId', 'either deviceId or serialNumber is required');
  if (deviceId !== undefined) return demandLive(findReached(ctx, caller, 'devices', deviceId));
  let named = ctx.registry.query
    .selectFrom('wholeDevices')
    .selectAll()
    .where('account', '=', accountKey(caller.accountId))
    .where('serialNumber', '=', normalizeSerialNumber(serialNumber ?? ''))
    .where('deleted', 'is', null);
  if (caller.kind === 'station') named = named.where('createdById', '=', caller.id);
  const found = (await named.limit(100).execute()).filter((device) => ctx.access.reachesDevice(caller, device));
  const [device, another] = found;
  if (!device) throw new PlatformError('notFound');
  if (another) throw invalid('serialNumber', 'is the serial number of several devices; use deviceId');
  return device;
}

interface Seen {
  connected: boolean;
  published: boolean;
}

/**
 * What is seen of the device when it has passed, or at the latest when it is over.
 * @throws PlatformError 401/31 when the caller is logged out meanwhile, 503 when the process ends.
 */
async function waitFor(
  ctx: FactoryContext,
  watch: DeviceWatch,
  deviceId: string,
  over: Promise<'over'>,
): Promise<Seen> {
  for (let heard: DeviceSign | 'over' = 'sign'; ; ) {
    const next = watch.next();
    const published = await hasPublished(ctx, deviceId);
    const connected = watch.isConnected;
    if (heard === 'over' || (connected && published)) return { connected, published };
    heard = await Promise.race([next, over]);
    if (heard === 'cutOff') throw new PlatformError('tokenInvalid');
    if (heard === 'stopping') throw new PlatformError('stopping');
  }
}

async function hasPublished({ registry }: FactoryContext, deviceId: string): Promise<boolean> {
  const first = registry.query.selectFrom('publications').select('time').where('deviceId', '=', deviceId);
  return (await first.executeTakeFirst()) !== undefined;
}

/** @throws PlatformError 401/31, 403/21 for a caller who has lost the right, 404/100, 410/107 for the device. */
async function storeVerification(
  ctx: FactoryContext,
  caller: Caller,
  deviceId: string,
  { connected, published }: Seen,
) {
  return writeAs(ctx, caller, undefined, async (tx) => {
    const device = await findEntity(tx, 'devices', deviceId);
    if (!device || !ctx.access.reachesDevice(caller, device)) throw new PlatformError('notFound');
    const { accountId, serialNumber } = demandLive(device);
    const row: Row<'verifications'> = {
      id: newId(accountId),
      accountId,
      deviceId,
      serialNumber,
      passed: connected && published ? 1 : 0,
      connected: connected ? 1 : 0,
      published: published ? 1 : 0,
      time: timestamp(ctx.clock),
      createdById: caller.id,
    };
    await tx.insertInto('verifications').values(row).execute();
    await keepNewest(tx, ctx.config.limits, 'verifications', accountId);
    return show(row);
  });
}

function show({ passed, connected, published, ...row }: Row<'verifications'>): Static<typeof shape> {
  return { ...row, passed: passed === 1, connected: connected === 1, published: published === 1 };
}

async function readVerifications(ctx: FactoryContext, caller: Caller, asked: Static<typeof query>) {
  const { query: db } = ctx.registry;
  let matching = db.selectFrom('verifications').where('accountId', '=', asked.accountId);
  for (const column of ['deviceId', 'serialNumber'] as const) {
    const value = asked[column];
    if (value !== undefined) matching = matching.where(column, '=', value);
  }
  if (asked.passed !== undefined) matching = matching.where('passed', '=', asked.passed ? 1 : 0);
  return pageOfTable(ctx, caller, asked, {
    matching,
    key: 'id',
    order: ['time', 'id'],
    long: [],
    read: (_, some: string[]) => db.selectFrom('verifications').selectAll().where('id', 'in', some).execute(),
    idOf: ({ id }) => id,
  });
}
