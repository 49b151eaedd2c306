/** Replaces the hardware of a device, which keeps its id and its history. */

import { type Static, Type } from 'typebox';
import { findEntity } from '../../../db/registry/entities.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { readSerialNumber } from '../../core/formats/serial-numbers.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { demandHas } from '../../entity/giving.ts';
import { noteSecret } from '../../entity/kept-answers.ts';
import { etagHeaders, etagOf, idParams, readEtag } from '../../entity/routes.ts';
import { change, demandLive, findReached, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { makeSecret } from '../../identity/secrets/secrets.ts';
import type { RegistryContext } from '../context.ts';
import { changedState } from '../devices/changes.ts';
import { deviceShape, newDeviceShape, showDevice } from '../devices/device.ts';
import { credentialShape, secretStored, showCredential, storeSecret } from './credentials.ts';

const body = Type.Object({ serialNumber: newDeviceShape.properties.serialNumber });

export function replacementRoutes(app: App, ctx: RegistryContext): void {
  app.post(
    '/devices/:id/replace',
    {
      config: {
        creates: true,
        whenFull: true,
        right: ['create', 'replacement'],
        errors: ['notFound', 'etagMissing', 'etagInvalid', 'deleted', 'staleVersion', 'answerGone', 'forbidden'],
        sends: ['etag', 'revocation'],
      },
      schema: {
        tags: ['Provisioning'],
        operationId: 'replaceDevice',
        summary: 'Replace the hardware of a device: new serial number, new secret, same id and history',
        description:
          'The id, its history and its stored sessions stay. The former secret, the certificates and the association code, which is on the label of the former hardware, end at once. A certificate that a CA has issued counts from now on only when its validity begins after the replacement.',
        params: idParams,
        headers: etagHeaders,
        body,
        response: {
          200: Type.Object(
            { device: deviceShape, mqttCredential: credentialShape },
            { description: 'The device with its new version, and the only answer with the secret.' },
          ),
        },
      },
    },
    async (request, reply) => {
      const { caller, params } = request;
      const answer = await replaceDevice(ctx, caller, params.id, readEtag(request), request.body);
      return reply.header('etag', etagOf(answer.device)).send(answer);
    },
  );
}

/**
 * Gives a device the serial number and the secret of other hardware; what the former one proved itself with ends.
 * @throws PlatformError 403/21, 404/100, 410/107, 412/108.
 */
async function replaceDevice(
  ctx: RegistryContext,
  caller: Caller,
  id: string,
  version: number,
  given: Static<typeof body>,
) {
  const { access, clock, downlink } = ctx;
  demandLive(findReached(ctx, caller, 'devices', id));
  const serialNumber = readSerialNumber(given.serialNumber);
  const secret = makeSecret();
  const secretHash = await ctx.secrets.hash(secret, laneOf(caller));
  const made = await writeAs(ctx, caller, ['devices', id], async (tx) => {
    await demandHas(tx, caller, { device: ['publish'] });
    const before = await findEntity(tx, 'devices', id);
    if (!before) throw new PlatformError('notFound');
    // In the one change that makes the version of the answer, so that storeSecret finds nothing left to move.
    const activated = before.provisioningState === 'defined' ? { provisioningState: 'activated' } : {};
    const replaced = timestamp(clock);
    const after = await change(tx, 'devices', id, version, { caller, clock }, { serialNumber, replaced, ...activated });
    const holder = { entityId: id, entityType: 'device' } as const;
    const { credential } = await storeSecret(tx, caller, holder, secretHash, replaced);
    await tx.deleteFrom('certificates').where('entityId', '=', id).execute();
    await tx.deleteFrom('associationCodes').where('deviceId', '=', id).execute();
    await ctx.audit.record(tx, {
      event: 'deviceReplaced',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id },
      details: { from: before.serialNumber, to: serialNumber },
    });
    const answer = {
      device: showDevice(ctx, caller, after),
      mqttCredential: showCredential(credential, secret, after.version),
    };
    await noteSecret(tx, id, { etag: etagOf(answer.device) }, answer);
    return { before, after, answer };
  });
  access.deviceChanged(id);
  secretStored(ctx, caller, id, false);
  ctx.secretAnswers.made(id);
  downlink.deviceUpdated(made.after, changedState(ctx, made.before, made.after));
  return made.answer;
}
