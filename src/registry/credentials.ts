/** Broker secrets of devices, end-users and account users (spec 4.9, decisions 5): each leaves the service once. */
import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import { v7 as uuidv7 } from 'uuid';
import type { Tx } from '../../db/index.js';
import { DateText, Id, type Row } from '../../db/records.js';
import { type Caller, isAccountWide } from '../access.js';
import type { Context, SecretCheck } from '../context.js';
import { oneOf } from '../entity/listing.js';
import { etagOf, nameIgnored, sendEntity } from '../entity/routes.js';
import { writeAs } from '../entity/standing.js';
import { findLive, formatVersion, timestamp } from '../entity/verbs.js';
import { unknownReference } from '../errors.js';
import type { App } from '../http.js';
import { noteSecret } from '../idempotency.js';
import { makeSecret } from '../identity/secrets.js';

/** Who may have a secret for the broker, and where it is stored. */
const holders = { device: 'devices', endUser: 'endUsers', accountUser: 'accountUsers' } as const;

const createBody = Type.Object({
  accountId: Type.String(),
  entityId: Type.String({ description: 'The device, end-user or account user; it is the broker username.' }),
  entityType: oneOf(['device', 'endUser', 'accountUser']),
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
        sends: ['etag', 'ignored', 'revocation'],
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
 * Makes the secret of a device, an end-user or an account user, ends its previous one and the connections made with it,
 * and moves a defined device to activated (spec 3.1).
 * @throws PlatformError 403/21, 404/100 for a foreign account, 400/102 for an entity that is not there, or is not the caller's
 * own where it is an end-user.
 */
export async function createCredential(ctx: Context, caller: Caller, body: Static<typeof createBody>) {
  const { access, clock } = ctx;
  access.demand(caller, 'create', 'mqttCredential');
  access.demandAccount(caller, body.accountId);
  const secret = makeSecret();
  const secretHash = await ctx.secrets.hash(secret);
  const now = timestamp(clock);

  const { credential, activated } = await writeAs(ctx, caller, undefined, async (tx) => {
    const holder = await findLive(tx, holders[body.entityType], caller.accountId, body.entityId);
    if (!holder || !mayHave(caller, body.entityType, holder)) throw unknownReference('entityId');
    const { credential, activated } = await storeSecret(tx, caller, body, secretHash, now);
    await ctx.audit.record(tx, {
      event: 'credentialCreated',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: body.entityType, id: body.entityId },
    });
    const shown = show(credential, secret);
    await noteSecret(tx, body.entityId, { etag: etagOf(shown) }, { mqttCredential: shown });
    return { credential, activated };
  });

  secretStored(ctx, caller, body.entityId, activated);
  ctx.secretAnswers.made(body.entityId);
  return show(credential, secret);
}

/** The hash of the one secret of an entity, and whether that has moved a defined device to activated (spec 3.1). */
export async function storeSecret(
  tx: Tx,
  caller: Caller,
  { entityId, entityType }: Pick<Static<typeof createBody>, 'entityId' | 'entityType'>,
  secretHash: string,
  now: string,
): Promise<{ credential: Row<'credentials'>; activated: boolean }> {
  const credential = await tx
    .insertInto('credentials')
    .values({ ...newCredential(caller, entityId, secretHash, now), entityType })
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
  return { credential, activated: entityType === 'device' && (await activate(tx, caller, entityId, now)) };
}

/** The first credential of a device. */
export function newCredential(caller: Caller, deviceId: string, secretHash: string, now: string): Row<'credentials'> {
  return {
    id: uuidv7(),
    accountId: caller.accountId,
    entityId: deviceId,
    entityType: 'device',
    secretHash,
    generation: 1,
    created: now,
    createdById: caller.id,
    lastModified: now,
    lastModifiedById: caller.id,
    version: 1,
    previousHash: null,
    previousGeneration: null,
    previousUntil: null,
  };
}

/** Ends what was made with the former secret of an entity, after the commit. */
export function secretStored(
  { registry, revocations, broker, access }: Pick<Context, 'registry' | 'revocations' | 'broker' | 'access'>,
  caller: Caller,
  entityId: string,
  activated: boolean,
): void {
  registry.credentialChanged(entityId);
  revocations.note(caller, broker.secretReplaced(entityId));
  const placement = activated ? access.placement(entityId) : undefined;
  if (placement) broker.deviceUpdated(placement, { provisioningState: 'activated' });
}

/** An end-user makes its own secret and no other (decisions 4); of the rest of the account it hears nothing. */
function mayHave(caller: Caller, entityType: keyof typeof holders, holder: object): boolean {
  if (isAccountWide(caller)) return true;
  return entityType === 'endUser' && 'userId' in holder && holder.userId === caller.id;
}

/** Moves a defined device to activated; whether it did. */
async function activate(tx: Tx, caller: Caller, deviceId: string, now: string): Promise<boolean> {
  const changed = await tx
    .updateTable('devices')
    .set((eb) => ({
      provisioningState: 'activated',
      version: eb('version', '+', 1),
      lastModified: now,
      lastModifiedById: caller.id,
    }))
    .where('id', '=', deviceId)
    .where('provisioningState', '=', 'defined')
    .executeTakeFirst();
  return changed.numUpdatedRows > 0n;
}

function show(credential: Row<'credentials'>, secret: string) {
  const { secretHash: _, generation: __, version, ...shown } = credential;
  return { ...shown, version: formatVersion(version), secret };
}

/** Checks a broker password (spec 5.9). An unknown username takes as long as a wrong secret. */
export async function checkSecret(
  { registry, access, secrets, secretAnswers }: Pick<Context, 'registry' | 'access' | 'secrets' | 'secretAnswers'>,
  entityId: string,
  secret: string,
): Promise<SecretCheck> {
  const credential = registry.credential(entityId);
  const proven = await secrets.verify(entityId, credential?.secretHash, secret);
  // The credential may have been made anew while the hash was computed.
  const current = registry.credential(entityId);
  if (!proven || !credential || current?.generation !== credential.generation) return { result: 'wrong' };
  await secretAnswers.used(entityId);
  const caller = credential.entityType === 'device' ? deviceCaller(access, entityId) : access.callerOfEntity(entityId);
  return caller ? { result: 'proven', caller, generation: credential.generation } : { result: 'refused' };
}

function deviceCaller(access: Context['access'], deviceId: string): Caller | undefined {
  const device = access.placement(deviceId);
  return device?.deleted === null ? { kind: 'device', id: device.id, accountId: device.accountId } : undefined;
}
