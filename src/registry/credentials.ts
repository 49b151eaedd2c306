/** Device credentials (spec 4.9): a secret leaves the service once, in the answer that made it. */
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { v7 as uuidv7 } from 'uuid';
import { DateText, Id, type Row } from '../../db/records.js';
import type { Caller } from '../access.js';
import type { Context, SecretCheck } from '../context.js';
import { oneOf } from '../entity/listing.js';
import { etagOf, nameIgnored, sendEntity } from '../entity/routes.js';
import { writeAs } from '../entity/standing.js';
import { findLive, formatVersion, timestamp } from '../entity/verbs.js';
import { unknownReference } from '../errors.js';
import type { App } from '../http.js';
import { noteSecret } from '../idempotency.js';
import { makeSecret } from '../identity/secrets.js';

const createBody = Type.Object({
  accountId: Type.String(),
  entityId: Type.String({ description: 'The device; it is the broker username.' }),
  entityType: oneOf(['device']),
});
const credentialShape = Type.Object({
  id: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.String(),
  accountId: Id,
  entityId: Id,
  entityType: Type.String(),
  secret: Type.String({ description: 'The broker password; it cannot be read again.' }),
});

export function credentialRoutes(app: App, ctx: Context): void {
  app.post(
    '/access/mqtt-credentials',
    {
      config: {
        right: ['create', 'mqttCredential'],
        errors: ['notFound', 'unknownReference', 'answerGone', 'forbidden'],
        sends: ['etag', 'ignored'],
      },
      schema: {
        tags: ['Credentials'],
        summary: 'Make a new secret; the previous one ends',
        body: createBody,
        response: {
          200: Type.Object({ mqttCredential: credentialShape }, { description: 'The only answer with it.' }),
        },
      },
    },
    async (request, reply) => {
      const credential = await createCredential(ctx, request.caller, request.body);
      nameIgnored(request, reply, createBody);
      return sendEntity(reply, 'mqttCredential', credential);
    },
  );
}

/**
 * Makes the secret of a device, ends its previous one and the connections made with it, and moves a defined device to
 * activated (spec 3.1). @throws PlatformError 403/21, 404/100 for a foreign account, 400/102 for a device that is not there.
 */
export async function createCredential(ctx: Context, caller: Caller, body: Static<typeof createBody>) {
  const { access, clock, broker } = ctx;
  access.demand(caller, 'create', 'mqttCredential');
  access.demandAccount(caller, body.accountId);
  const secret = makeSecret();
  const secretHash = await ctx.secrets.hash(secret);
  const now = timestamp(clock);

  const { credential, activated } = await writeAs(ctx, caller, undefined, async (tx) => {
    const device = await findLive(tx, 'devices', caller.accountId, body.entityId);
    if (!device) throw unknownReference('entityId');
    const credential = await tx
      .insertInto('credentials')
      .values({
        id: uuidv7(),
        accountId: caller.accountId,
        entityId: device.id,
        entityType: body.entityType,
        secretHash,
        generation: 1,
        created: now,
        createdById: caller.id,
        lastModified: now,
        lastModifiedById: caller.id,
        version: 1,
      })
      .onConflict((conflict) =>
        conflict.column('entityId').doUpdateSet({
          secretHash,
          generation: sql`"credentials"."generation" + 1`,
          lastModified: now,
          lastModifiedById: caller.id,
          version: sql`"credentials"."version" + 1`,
        }),
      )
      .returningAll()
      .executeTakeFirstOrThrow();
    await ctx.audit.record(tx, {
      event: 'credentialCreated',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: 'device', id: device.id },
    });
    const shown = show(credential, secret);
    await noteSecret(tx, device.id, { etag: etagOf(shown) }, { mqttCredential: shown });
    if (device.provisioningState !== 'defined') return { credential, activated: false };
    await tx
      .updateTable('devices')
      .set({
        provisioningState: 'activated',
        version: device.version + 1,
        lastModified: now,
        lastModifiedById: caller.id,
      })
      .where('id', '=', device.id)
      .execute();
    return { credential, activated: true };
  });

  broker.disconnectDevice(body.entityId);
  const placement = activated ? access.placement(body.entityId) : undefined;
  if (placement) broker.deviceUpdated(placement, { provisioningState: 'activated' });
  ctx.secretAnswers.made(body.entityId);
  return show(credential, secret);
}

function show(credential: Row<'credentials'>, secret: string) {
  const { secretHash: _, generation: __, version, ...shown } = credential;
  return { ...shown, version: formatVersion(version), secret };
}

/** Checks a device's broker password (spec 5.9). An unknown device takes as long as a wrong secret. */
export async function checkSecret(
  { registry, access, secrets, secretAnswers }: Pick<Context, 'registry' | 'access' | 'secrets' | 'secretAnswers'>,
  deviceId: string,
  secret: string,
): Promise<SecretCheck> {
  const credential = registry.credential(deviceId);
  const proven = await secrets.verify(deviceId, credential?.secretHash, secret);
  // The credential may have been made anew while the hash was computed.
  const current = registry.credential(deviceId);
  if (!proven || !credential || current?.generation !== credential.generation) return { result: 'wrong' };
  await secretAnswers.used(deviceId);
  const device = access.placement(deviceId);
  if (!device || device.deleted !== null) return { result: 'refused' };
  const caller: Caller = { kind: 'device', id: device.id, accountId: device.accountId };
  return { result: 'proven', caller, generation: credential.generation };
}
