/** Association: anyone who holds a device's code may move it into an organization in its reach. */

import { type Static, Type } from 'typebox';
import { Id } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { invalid, PlatformError, unknownReference } from '../../core/errors.ts';
import { limitTries } from '../../core/limits/tries.ts';
import { entityVersion, etagOf } from '../../entity/routes.ts';
import { findLive, formatVersion } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { RegistryContext } from '../context.ts';
import { associateDevice } from '../devices/changes.ts';
import { keepHistory } from '../devices/device.ts';
import { demandKeeping } from '../devices/possession.ts';
import { readCode } from './association-codes.ts';
import { findByCode, renewCode, taken, unknownCode } from './stored-codes.ts';

const createBody = Type.Object({ deviceId: Type.String(), keepHistory });
const startBody = Type.Object({
  associationCode: Type.String({ maxLength: 100 }),
  endUserId: Type.Optional(Type.String({ description: 'The device goes to this end-user’s organization.' })),
  organizationId: Type.Optional(Type.String()),
});

export function associationRoutes(app: App, ctx: RegistryContext): void {
  const tags = ['Association'];
  const codeShape = Type.Object(
    { associationCode: Type.String({ description: 'XXXX-XXXX-XXXX; shown once.' }), entityVersion },
    { description: 'The new code.' },
  );
  app.post(
    '/association/create-association-code',
    {
      config: {
        creates: true,
        right: ['create', 'associationCode'],
        errors: ['notFound', 'deleted', 'forbidden'],
        sends: ['etag'],
      },
      schema: {
        tags,
        operationId: 'createAssociationCode',
        summary: 'Create the association code of a device; the previous one ends',
        description: 'Anyone who holds the device claims it with the code. The code works once.',
        body: createBody,
        response: { 200: codeShape },
      },
    },
    async (request, reply) => {
      const { associationCode, version } = await createCode(ctx, request.caller, request.body);
      reply.header('etag', etagOf({ version }));
      return { associationCode, entityVersion: version };
    },
  );
  const attempts = limitTries('associationCodes', ctx);
  app.post(
    '/association/start-association-with-code',
    {
      config: {
        creates: true,
        right: ['create', 'association'],
        errors: ['notFound', 'unknownReference', 'association', 'tooMany', 'forbidden'],
        sends: ['etag', 'revocation'],
      },
      schema: {
        tags,
        operationId: 'claimDevice',
        summary: 'Move the device of a code into an organization',
        description:
          'An end-user claims a device with its code. Where it comes from another top-level organization, or from none, its people see what it does from now on, unless the code was made with keepHistory.',
        body: startBody,
        response: { 200: Type.Object({ deviceId: Id, entityVersion }, { description: 'The device that was moved.' }) },
      },
    },
    async (request, reply) => {
      const { caller } = request;
      const code = readCode(request.body.associationCode);
      attempts.takeTry(caller.id);
      try {
        const { deviceId, version } = await start(ctx, caller, code, request.body);
        attempts.giveBack(caller.id);
        reply.header('etag', etagOf({ version }));
        return { deviceId, entityVersion: version };
      } catch (error) {
        if (!(error instanceof PlatformError && error.kind === 'notFound')) attempts.giveBack(caller.id);
        else
          ctx.audit.addSoon({ event: 'association', outcome: 'failure', accountId: caller.accountId, actor: caller });
        throw error;
      }
    },
  );
}

/** @throws PlatformError 403/21 for `keepHistory`, and as renewCode. */
async function createCode(ctx: RegistryContext, caller: Caller, body: Static<typeof createBody>) {
  const { deviceId, keepHistory = false } = body;
  demandKeeping(caller, keepHistory);
  const label = { kind: 'label', keepHistory: keepHistory ? 1 : 0, expires: null } as const;
  const { associationCode, device } = await renewCode(ctx, caller, deviceId, label, (tx) =>
    ctx.audit.record(tx, {
      event: 'associationCodeCreated',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id: deviceId },
    }),
  );
  return { associationCode, version: formatVersion(device.version) };
}

/**
 * Moves the device into the organization of the body, directly or through an end-user; returns its id and version. @throws
 * PlatformError 400/102, 404/100 for an unknown code, 403/21 for an unconfirmed person, 422 for a device in the trash, or of an owner
 * whom the caller does not reach and who does not give it away.
 */
async function start(ctx: RegistryContext, caller: Caller, code: string, body: Static<typeof startBody>) {
  const { access } = ctx;
  const { accountId } = caller;
  const organizationId = await targetOrganization(ctx, caller, body);
  const found = await findByCode(ctx, accountId, code);
  if (!found) throw unknownCode();
  if (found.deleted !== null) throw new PlatformError('association', { message: 'The device is deleted.' });
  const { id, codeHash, organizationId: from } = found;
  if (!access.reaches(caller, accountId, from)) {
    if (found.kind === 'label' && from !== null) throw taken();
    await demandConfirmed(ctx, caller);
  }
  const device = await associateDevice(ctx, caller, { id, codeHash, from, to: organizationId });
  return { deviceId: id, version: formatVersion(device.version) };
}

/** A person who has signed up has claimed a device with it: this one is not the first. */
async function demandConfirmed({ registry }: RegistryContext, { id }: Caller): Promise<void> {
  const identities = registry.query.selectFrom('identities').select('id').where('id', '=', id);
  const unconfirmed = identities.where('signedUp', '=', 1).where('emailConfirmed', '=', 0);
  if (await unconfirmed.executeTakeFirst())
    throw new PlatformError('forbidden', {
      message: 'Confirm your email address before you claim another device: open the link in the email to you.',
      details: [{ path: 'emailAddress', message: 'is not confirmed' }],
    });
}

async function targetOrganization(
  ctx: RegistryContext,
  caller: Caller,
  body: Static<typeof startBody>,
): Promise<string> {
  const { registry, access } = ctx;
  if ((body.endUserId === undefined) === (body.organizationId === undefined))
    throw invalid('endUserId', 'either endUserId or organizationId is required');
  const endUser = body.endUserId && (await findLive(registry.query, 'endUsers', caller.accountId, body.endUserId));
  if (body.endUserId !== undefined && !endUser) throw unknownReference('endUserId');
  const organizationId = endUser ? endUser.organizationId : (body.organizationId ?? '');
  if (!access.reaches(caller, caller.accountId, organizationId))
    throw unknownReference(endUser ? 'endUserId' : 'organizationId');
  return organizationId;
}
