/** Give away: a caller that may change a device makes a code with which another person claims it. Until then nothing changes. */

import { type Static, Type } from 'typebox';
import { DateText, Id, type Row } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { demandLive, findReached, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { readExpiry } from '../../identity/token-making.ts';
import { claimUrl, withCode } from '../addresses.ts';
import type { RegistryContext } from '../context.ts';
import { canBeClaimed, endGiveAway, renewCode } from './stored-codes.ts';

const tags = ['Association'];
/** How long a code counts by itself, in milliseconds. */
const lifetime = 7 * 24 * 60 * 60_000;

const body = Type.Object({
  deviceId: Type.String(),
  expiresAt: Type.Optional(Type.String({ description: 'ISO 8601, at most 30 days from now; seven days when absent.' })),
});
const params = Type.Object({ deviceId: Type.String() });
const codeShape = Type.Object(
  {
    associationCode: Type.String({ description: 'XXXX-XXXX-XXXX; shown once.' }),
    claimUrl: Type.String({ description: 'Where somebody claims the device with the code.' }),
    expiresAt: DateText,
  },
  { description: 'The new code.' },
);
const openShape = Type.Object(
  { giveAway: Type.Object({ deviceId: Id, created: DateText, createdById: Type.String(), expiresAt: DateText }) },
  { description: 'The device can be claimed until then.' },
);

export function giveAwayRoutes(app: App, ctx: RegistryContext): void {
  app.post(
    '/association/give-away',
    {
      config: {
        creates: true,
        right: ['update', 'device'],
        errors: ['notFound', 'deleted', 'association', 'forbidden'],
      },
      schema: {
        tags,
        operationId: 'giveDeviceAway',
        summary: 'Make a code with which somebody else claims a device; the previous one ends',
        description:
          'Nothing changes until somebody claims the device with the code, which works once. It ends when the device leaves the tree of its top-level organization or its hardware is replaced, and when its maker may no longer change devices there. The code of the label stays as it is.',
        body,
        response: { 200: codeShape },
      },
    },
    ({ caller, body }) => giveAway(ctx, caller, body),
  );
  app.get(
    '/association/give-away/:deviceId',
    {
      config: { right: ['update', 'device'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'getGiveAway',
        summary: 'Read whether a device can be claimed with a code of its owner',
        description: 'Without the code, which is stored as a hash. 404 when there is none, or it has ended.',
        params,
        response: { 200: openShape },
      },
    },
    async ({ caller, params: { deviceId } }) => {
      const { organizationId } = findReached(ctx, caller, 'devices', deviceId);
      const codes = ctx.registry.query.selectFrom('associationCodes').selectAll().where('kind', '=', 'giveAway');
      const code = await codes.where('deviceId', '=', deviceId).executeTakeFirst();
      if (!code || !canBeClaimed(ctx, code, organizationId)) throw new PlatformError('notFound');
      const { created, createdById, expires } = code;
      return { giveAway: { deviceId, created, createdById, expiresAt: String(expires) } };
    },
  );
  app.delete(
    '/association/give-away/:deviceId',
    {
      config: { right: ['update', 'device'], errors: ['notFound', 'forbidden'] },
      schema: {
        tags,
        operationId: 'withdrawGiveAway',
        summary: 'Withdraw the code with which a device is given away',
        description: '404 when there is none, or it has ended.',
        params,
        response: {
          200: Type.Object({ deviceId: Id }, { description: 'Nobody can claim the device with it any more.' }),
        },
      },
    },
    async ({ caller, params: { deviceId } }) => {
      findReached(ctx, caller, 'devices', deviceId);
      await writeAs(ctx, caller, ['devices', deviceId], async (tx) => {
        if (!(await endGiveAway(tx, ctx.clock, deviceId))) throw new PlatformError('notFound');
        await ctx.audit.record(tx, { event: 'giveAwayWithdrawn', ...audited(caller, deviceId) });
      });
      return { deviceId };
    },
  );
}

/** @throws PlatformError 404/100, 403/21, 410/107 for the device, 422 for one that belongs to nobody, 400/106 for `expiresAt`. */
async function giveAway(
  ctx: RegistryContext,
  caller: Caller,
  { deviceId, expiresAt }: Static<typeof body>,
): Promise<Static<typeof codeShape>> {
  const { clock, audit } = ctx;
  demandLive(findReached(ctx, caller, 'devices', deviceId));
  const expires =
    expiresAt === undefined
      ? timestamp({ now: () => clock.now() + lifetime })
      : readExpiry(clock, expiresAt, '30 days');
  const code = { kind: 'giveAway', keepHistory: 0, expires } as const;
  const { associationCode } = await renewCode(ctx, caller, deviceId, code, async (tx, { organizationId }) => {
    if (organizationId === null)
      throw new PlatformError('association', {
        message: 'The device is in no organization: it is nobody’s to give away.',
      });
    await audit.record(tx, { event: 'giveAwayStarted', ...audited(caller, deviceId), details: { expiresAt: expires } });
  });
  return { associationCode, claimUrl: withCode(claimUrl(ctx), associationCode, caller.accountId), expiresAt: expires };
}

function audited(actor: Caller, deviceId: Row<'devices'>['id']) {
  const { accountId } = actor;
  return { outcome: 'success', accountId, actor, target: { kind: 'device', id: deviceId } } as const;
}
