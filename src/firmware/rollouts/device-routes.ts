/** The firmware of single devices: what is under way, what was, and an update of one. */
import { type Static, Type } from 'typebox';
import { Id, Nullable, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { pageOfTable } from '../../entity/list.ts';
import { entityResponse, idParams, listResponse, sendEntity } from '../../entity/routes.ts';
import { showSlices } from '../../entity/row-slices.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import { sendList } from '../../http/answers/streamed-list.ts';
import type { App } from '../../http/app.ts';
import { metaWith, nameIgnored } from '../../http/ignored-names.ts';
import type { DownlinkContext } from '../context.ts';
import { currentDelivery, openDelivery, packageOf } from './deliveries.ts';
import { deliveryShape, isOpen, isOpenDelivery, rolloutShape, showDelivery } from './rollout.ts';
import { createRollout, showOne } from './rollouts.ts';

const tags = ['Firmware'];
const errors = ['notFound', 'deleted', 'forbidden'] as const;

const stateShape = Type.Object({
  ...deliveryShape.properties,
  firmwareVersion: Type.String({ description: 'That it brings.' }),
  consentNeeded: Type.Boolean({ description: 'Whether it waits for POST /devices/{id}/firmware/install.' }),
});
const stateAnswer = Type.Object(
  { firmware: Nullable(Type.Unsafe<Static<typeof stateShape>>({ ...stateShape, type: 'object' })) },
  { description: 'The update that is under way, or the last one; null when there was none.' },
);

export function deviceFirmwareRoutes(app: App, ctx: DownlinkContext): void {
  const { registry, firmwareEngine } = ctx;
  app.get(
    '/devices/:id/firmware',
    {
      config: { right: ['read', 'firmwareState'], errors },
      schema: {
        tags,
        operationId: 'getDeviceFirmware',
        summary: 'Read the firmware state of a device',
        description: 'Shows the state of the update and the error of the device, if it reported one.',
        params: idParams,
        response: { 200: stateAnswer },
      },
    },
    async ({ caller, params }) => {
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      return { firmware: await stateOf(ctx, caller, device) };
    },
  );
  app.post(
    '/devices/:id/firmware/install',
    {
      config: { creates: true, right: ['update', 'firmwareState'], errors },
      schema: {
        tags,
        operationId: 'installFirmware',
        summary: 'Start the update that is offered to a device, where its rollout has `consent: "user"`',
        description: 'An end-user calls it to agree to the update.',
        params: idParams,
        response: { 200: stateAnswer },
      },
    },
    async ({ caller, params }) => {
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      await consent(ctx, caller, params.id);
      await firmwareEngine.offersChanged([params.id]);
      return { firmware: await stateOf(ctx, caller, device) };
    },
  );
  updateRoute(app, ctx);
  historyRoute(app, ctx);

  /** @throws PlatformError 400/106 when nothing waits for it. */
  async function consent({ clock, audit }: DownlinkContext, caller: Caller, deviceId: string): Promise<void> {
    await registry.transaction(async (tx) => {
      const open = await openDelivery(tx, deviceId);
      const rollouts = tx
        .selectFrom('firmwareRollouts')
        .select('consent')
        .where('id', '=', open?.rolloutId ?? '');
      if (!open || (await rollouts.executeTakeFirst())?.consent !== 'user')
        throw invalid('id', 'has no update that waits for consent');
      if (open.consented === 1) return;
      const waiting = tx.updateTable('firmwareDeliveries').set({ consented: 1, updated: timestamp(clock) });
      await waiting.where('rolloutId', '=', open.rolloutId).where('deviceId', '=', deviceId).execute();
      await audit.record(tx, {
        event: 'firmwareInstallStarted',
        outcome: 'success',
        accountId: caller.accountId,
        actor: caller,
        target: { kind: 'device', id: deviceId },
        details: { rolloutId: open.rolloutId },
      });
    });
  }
}

/** Of an update that has ended under another owner, its people see nothing. */
async function stateOf(
  { access, registry }: DownlinkContext,
  caller: Caller,
  device: Row<'devices'>,
): Promise<Static<typeof stateShape> | null> {
  const db = registry.query;
  const delivery = await currentDelivery(db, device.id);
  if (!delivery || !(isOpen(delivery) || access.historyWindowOf(caller, device).sees(delivery.updated))) return null;
  const { firmwareVersion } = await packageOf(db, delivery);
  const rollouts = db.selectFrom('firmwareRollouts').select('consent').where('id', '=', delivery.rolloutId);
  const { consent } = await rollouts.executeTakeFirstOrThrow();
  const consentNeeded = consent === 'user' && delivery.consented === 0 && isOpen(delivery);
  return { ...showDelivery(delivery), firmwareVersion, consentNeeded };
}

function updateRoute(app: App, ctx: DownlinkContext): void {
  app.post(
    '/devices/:id/firmware',
    {
      config: {
        creates: true,
        made: { at: '/firmware/rollouts', status: 200 },
        right: ['create', 'firmwareRollout'],
        errors: [...errors, 'unknownReference'],
        sends: ['etag'],
      },
      schema: {
        tags,
        operationId: 'updateDeviceFirmware',
        summary: 'Update one device: a rollout of a published package to it alone',
        description: 'It takes the place of an update that the device has before it.',
        params: idParams,
        body: Type.Object({ packageId: Type.String({ description: 'Of the template of the device.' }) }),
        response: entityResponse('firmwareRollout', rolloutShape, 'The rollout.'),
      },
    },
    async ({ caller, params, body }, reply) => {
      const { id, accountId, deviceTemplateId } = demandLive(findReached(ctx, caller, 'devices', params.id));
      if (ctx.registry.entity('firmwarePackages', body.packageId)?.deviceTemplateId !== deviceTemplateId)
        throw otherPackage();
      const rollout = { accountId, firmwarePackageId: body.packageId, target: { deviceIds: [id] } };
      const row = await createRollout(ctx, caller, rollout, 'packageId');
      return sendEntity(reply, 'firmwareRollout', await showOne(ctx, row));
    },
  );
}

function otherPackage(): PlatformError {
  const details = [{ path: 'packageId', message: 'must name a package of the template of the device' }];
  return new PlatformError('unknownReference', { details });
}

const updateShape = Type.Object(
  {
    ...deliveryShape.properties,
    firmwarePackageId: Id,
    firmwareVersion: Type.String({ description: 'That it brought.' }),
    formerVersion: Nullable(Type.String({ description: 'What the device ran before, where it is known.' })),
  },
  { title: 'FirmwareUpdate' },
);
const historyQuery = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  pageSize: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 10 })),
});

function historyRoute(app: App, ctx: DownlinkContext): void {
  app.get(
    '/devices/:id/firmware/history',
    {
      config: { right: ['read', 'firmwareState'], errors: [...errors, 'pageOutside'], sends: ['ignored'] },
      schema: {
        tags,
        operationId: 'getDeviceFirmwareHistory',
        summary: 'List the updates of a device, newest first',
        description:
          'What was offered to it, and what it said. An update is kept as long as its rollout: 180 days after the end.',
        params: idParams,
        querystring: historyQuery,
        response: listResponse('history', updateShape),
      },
    },
    async (request, reply) => {
      const { caller, params, query } = request;
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      const ignored = nameIgnored(request, reply, historyQuery);
      const { rows, meta } = await listUpdates(ctx, caller, device, query);
      const results = showSlices(rows, () => showUpdate);
      return sendList(reply, 'history', { results, meta: metaWith(meta, ignored) });
    },
  );
}

/** As `stateOf`: of updates that have ended under another owner, its people see nothing. */
function listUpdates(ctx: DownlinkContext, caller: Caller, { id }: Row<'devices'>, query: Static<typeof historyQuery>) {
  const { query: db } = ctx.registry;
  const seenBy = (current: Caller) => {
    const device = demandLive(findReached(ctx, current, 'devices', id));
    const { after } = ctx.access.historyWindowOf(current, device);
    const updates = db.selectFrom('firmwareDeliveries').where('deviceId', '=', id);
    return after === '' ? updates : updates.where((eb) => eb.or([isOpenDelivery, eb('updated', '>', after)]));
  };
  return pageOfTable(ctx, caller, query, {
    matching: seenBy(caller),
    key: 'rolloutId',
    order: ['rolloutId'],
    long: ['message'],
    read: (current, some: string[]) =>
      db
        .selectFrom(seenBy(current).selectAll().where('rolloutId', 'in', some).as('d'))
        .innerJoin('firmwareRollouts as r', 'r.id', 'd.rolloutId')
        .innerJoin('firmwarePackages as p', (on) =>
          on.on('p.id', '=', (eb) => eb.fn.coalesce('d.firmwarePackageId', 'r.firmwarePackageId')),
        )
        .selectAll('d')
        .select(['p.id as packageId', 'p.firmwareVersion'])
        .execute(),
    idOf: ({ rolloutId }) => rolloutId,
  });
}

type Update = Parameters<typeof showDelivery>[0] & { packageId: string; firmwareVersion: string };

function showUpdate({ packageId, firmwareVersion, ...row }: Update): Static<typeof updateShape> {
  const { formerVersion } = row;
  return { ...showDelivery(row), firmwarePackageId: packageId, firmwareVersion, formerVersion };
}
