/** Broker secrets of devices, end-users and account users: each leaves the service once. */

import { sql } from 'kysely';
import { type Static, Type } from 'typebox';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import { DateText, Id, oneOf, type Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isAccountWide, isSelf } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { unknownReference } from '../../core/errors.ts';
import { newId } from '../../core/ids.ts';
import { laneOf } from '../../core/limits/lanes.ts';
import { demandHas, giveRole } from '../../entity/giving.ts';
import type { SecretAnswers } from '../../entity/kept-answers.ts';
import { noteSecret } from '../../entity/kept-answers.ts';
import { entityVersion, etagOf, sendEntity } from '../../entity/routes.ts';
import { findLive, formatVersion, writeAs } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import type { RevokedCounts } from '../../http/revoked-counts.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';
import { makeSecret } from '../../identity/secrets/secrets.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { Downlink } from '../../ports/downlink.ts';
import type { SecretCheck } from '../../ports/proofs.ts';
import type { Revocations } from '../../ports/revocations.ts';
import { noteFirstUse } from './first-uses.ts';
import type { Overlaps } from './overlaps.ts';
import { noPrevious, secretsInForce } from './overlaps.ts';

/** Kinds of entities that may have a broker secret, and where it is stored. */
const holders = { device: 'devices', endUser: 'endUsers', accountUser: 'accountUsers' } as const;

/** Seconds: a week. */
const maxGraceSeconds = 7 * 24 * 60 * 60;

const createBody = Type.Object({
  accountId: Type.String(),
  entityId: Type.String({ description: 'The device, end-user or account user; it is the broker username.' }),
  entityType: oneOf(['device', 'endUser', 'accountUser']),
  graceSeconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: maxGraceSeconds,
      default: 0,
      description: 'So long the previous secret works too, unless the new one has connected before; 0 ends it at once.',
    }),
  ),
});
export const credentialShape = Type.Object({
  id: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.String(),
  accountId: Id,
  entityId: Id,
  entityType: oneOf<string>(['device', 'endUser', 'accountUser']),
  entityVersion,
  secret: Type.String({ description: 'The broker password; it cannot be read again.' }),
  previousUntil: Type.Optional(
    Type.Unsafe<string>({ ...DateText, description: 'When the previous secret ends at the latest, where it goes on.' }),
  ),
});

type CredentialServices = Stored & { clock: Clock; secrets: Secrets; secretAnswers: SecretAnswers; audit: Audit };

export function credentialRoutes(app: App, ctx: CredentialServices): void {
  app.post(
    '/access/mqtt-credentials',
    {
      config: {
        creates: true,
        whenFull: true,
        right: ['create', 'mqttCredential'],
        errors: ['notFound', 'unknownReference', 'answerGone', 'forbidden'],
        sends: ['etag', 'revocation'],
      },
      schema: {
        tags: ['Credentials'],
        operationId: 'createMqttCredential',
        summary: 'Create a new secret; the previous one ends, at once or after `graceSeconds`',
        description: 'The response is the only one with the secret, which is stored as a hash.',
        body: createBody,
        response: {
          200: Type.Object({ mqttCredential: credentialShape }, { description: 'The only answer with it.' }),
        },
      },
    },
    async (request, reply) => {
      const credential = await createCredential(ctx, request.caller, request.body);
      return sendEntity(reply, 'mqttCredential', credential);
    },
  );
}

/**
 * Makes a secret, ends the previous one with its connections, at once or after `graceSeconds`, and activates a defined device.
 * @throws PlatformError 403/21, 404/100 for a foreign account, 400/102 for an entity that is not there, or not the end-user's own.
 */
async function createCredential(ctx: CredentialServices, caller: Caller, body: Static<typeof createBody>) {
  const { access, clock } = ctx;
  access.demandAccount(caller, body.accountId);
  const secret = makeSecret();
  const secretHash = await ctx.secrets.hash(secret, laneOf(caller));
  const now = timestamp(clock);
  const previousUntil = body.graceSeconds ? new Date(clock.now() + body.graceSeconds * 1000).toISOString() : null;

  const { shown, activated } = await writeAs(ctx, caller, undefined, async (tx) => {
    const holder = await findLive(tx, holders[body.entityType], caller.accountId, body.entityId);
    if (!holder || !mayHave(access, caller, body.entityType, holder)) throw unknownReference('entityId');
    await demandRightsOfHolder(tx, caller, holder);
    const { credential, activated } = await storeSecret(tx, caller, body, secretHash, now, previousUntil);
    await ctx.audit.record(tx, {
      event: 'credentialCreated',
      outcome: 'success',
      accountId: caller.accountId,
      actor: caller,
      target: { kind: body.entityType, id: body.entityId },
    });
    const shown = showCredential(credential, secret, holder.version + (activated ? 1 : 0));
    await noteSecret(tx, body.entityId, { etag: etagOf(shown) }, { mqttCredential: shown });
    return { shown, activated };
  });

  secretStored(ctx, caller, body.entityId, activated);
  ctx.secretAnswers.made(body.entityId);
  return shown;
}

/**
 * Replaces the secret of an entity, which works until `previousUntil`, or no longer; that one's own
 * predecessor ends in any case. Also whether that has moved a defined device to activated.
 */
export async function storeSecret(
  tx: Tx,
  caller: Caller,
  { entityId, entityType }: Pick<Static<typeof createBody>, 'entityId' | 'entityType'>,
  secretHash: string,
  now: string,
  previousUntil: string | null = null,
): Promise<{ credential: Row<'credentials'>; activated: boolean }> {
  const previous = {
    previousHash: sql<string>`"credentials"."secretHash"`,
    previousGeneration: sql<number>`"credentials"."generation"`,
    previousUntil,
  };
  const credential = await tx
    .insertInto('credentials')
    .values({ ...newCredential(caller, entityId, secretHash, now), entityType })
    .onConflict((conflict) =>
      conflict.column('entityId').doUpdateSet({
        secretHash,
        lastModified: now,
        lastModifiedById: caller.id,
        ...(previousUntil === null ? noPrevious : previous),
        generation: sql`"credentials"."generation" + 1`,
        version: sql`"credentials"."version" + 1`,
      }),
    )
    .returningAll()
    .executeTakeFirstOrThrow();
  // Earlier messages were not published with this one.
  await tx.deleteFrom('publications').where('deviceId', '=', entityId).execute();
  // What proved a device that has enrolled again ends with what it got.
  if (entityType === 'device') await forgetFormer(tx, entityId);
  return { credential, activated: entityType === 'device' && (await activate(tx, caller, entityId, now)) };
}

async function forgetFormer(tx: Tx, deviceId: string): Promise<void> {
  const nothing = { formerHash: null, formerFingerprint: null };
  await tx.updateTable('enrollments').set(nothing).where('deviceId', '=', deviceId).where('used', '=', 0).execute();
}

/** The first credential of a device. */
export function newCredential(caller: Caller, deviceId: string, secretHash: string, now: string): Row<'credentials'> {
  return {
    id: newId(caller.accountId),
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
    ...noPrevious,
  };
}

type Stored = {
  registry: Registry;
  revocations: Revocations;
  revoked: RevokedCounts;
  downlink: Pick<Downlink, 'deviceUpdated'>;
  access: Access;
  overlaps: Overlaps;
};

/** After the commit of storeSecret: secrets that are in force no more end, with the connections made with them. */
export function secretStored(ctx: Stored, caller: Caller, entityId: string, activated: boolean): void {
  const { registry, overlaps, downlink, revocations, revoked, access } = ctx;
  // As it is in the file: another regeneration may have been committed meanwhile, and told first.
  const until = registry.credential(entityId)?.previousUntil ?? null;
  overlaps.changed(entityId, until);
  revoked.noteRevoked(
    caller,
    until === null ? revocations.secretReplaced(entityId) : revocations.secretOverlaps(entityId),
  );
  const placement = activated ? access.placement(entityId) : undefined;
  if (placement) downlink.deviceUpdated(placement, { provisioningState: 'activated' });
}

/**
 * An end-user makes its own secret and no other, a station those of its own devices; of the rest of the
 * account they hear nothing.
 */
function mayHave(
  access: Access,
  caller: Caller,
  entityType: keyof typeof holders,
  holder: Row<'devices' | 'endUsers' | 'accountUsers'>,
): boolean {
  if (isAccountWide(caller)) return true;
  if (caller.kind === 'station')
    return entityType === 'device' && access.reachesDevice(caller, holder as Row<'devices'>);
  return entityType === 'endUser' && 'userId' in holder && holder.userId === caller.id;
}

/** Who has a secret may do what its holder may. A station makes those of its own devices only. @throws as demandHas. */
async function demandRightsOfHolder(
  tx: Tx,
  caller: Caller,
  holder: Row<'devices' | 'endUsers' | 'accountUsers'>,
): Promise<void> {
  if (caller.kind === 'station' || ('userId' in holder && holder.userId !== null && isSelf(caller, holder.userId)))
    return;
  if (!('roleId' in holder)) return demandHas(tx, caller, { device: ['publish'] });
  const organizationId = 'organizationId' in holder ? holder.organizationId : null;
  await giveRole(tx, caller, organizationId === null ? 'account' : 'organization', holder.roleId, organizationId);
}

/** Moves a defined device to activated; whether it did. */
export async function activate(tx: Tx, caller: Caller, deviceId: string, now: string): Promise<boolean> {
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

/** A credential with its secret, in the one answer that has it; `holderVersion` is that of the entity it belongs to. */
export function showCredential(
  credential: Row<'credentials'>,
  secret: string,
  holderVersion: number,
): Static<typeof credentialShape> {
  const { id, created, createdById, lastModified, lastModifiedById, accountId, entityId, entityType } = credential;
  const { version, previousUntil } = credential;
  const stamps = { id, created, createdById, lastModified, lastModifiedById, version: formatVersion(version) };
  const entityVersion = formatVersion(holderVersion);
  return {
    ...stamps,
    accountId,
    entityId,
    entityType,
    entityVersion,
    secret,
    ...(previousUntil !== null && { previousUntil }),
  };
}

type Checking = { registry: Registry; access: Access; secrets: Secrets; secretAnswers: SecretAnswers; clock: Clock };

/** Checks a broker password. An unknown username takes as long as a wrong secret. */
export async function checkSecret(
  ctx: Checking,
  entityId: string,
  secret: string,
  address: string,
): Promise<SecretCheck> {
  const { registry, access, secretAnswers } = ctx;
  const credential = registry.credential(entityId);
  const generation = await provenGeneration(ctx, entityId, secret, address);
  if (generation !== undefined) await noteFirstUse(ctx, entityId, generation);
  // The credential may have been made again while the hash was computed.
  if (!credential || generation === undefined || !isInForce(ctx, entityId, generation)) return { result: 'wrong' };
  // A kept answer has the newest secret, and waits for that one.
  if (generation === registry.credential(entityId)?.generation) await secretAnswers.destroyAnswer(entityId);
  const caller = credential.entityType === 'device' ? deviceCaller(access, entityId) : access.callerOfEntity(entityId);
  return caller ? { result: 'proven', caller, generation } : { result: 'refused' };
}

/** Whether a connection that was made with the secret of this generation may go on. */
export function isInForce(
  { registry, clock }: { registry: Registry; clock: Clock },
  entityId: string,
  generation: number,
): boolean {
  const inForce = secretsInForce(registry.credential(entityId), clock);
  return inForce.some((one) => one.generation === generation);
}

/** The generation of the secret in force that this one is known to be, without a hash; undefined when it is not known. */
export function knownGeneration(
  { registry, secrets, clock }: { registry: Registry; secrets: Secrets; clock: Clock },
  entityId: string,
  secret: string,
): number | undefined {
  const inForce = secretsInForce(registry.credential(entityId), clock);
  return inForce.find(({ hash }) => secrets.isProven(entityId, hash, secret))?.generation;
}

/** The generation of the secret in force that this one is. Whatever is wrong takes two hashes, previous secret or not. */
async function provenGeneration(
  { registry, secrets, clock }: Checking,
  entityId: string,
  secret: string,
  address: string,
): Promise<number | undefined> {
  const credential = registry.credential(entityId);
  const from = { accountId: credential?.accountId, address };
  const [newest, previous] = secretsInForce(credential, clock);
  if (previous && secrets.isProven(entityId, previous.hash, secret)) return previous.generation;
  if (await secrets.verify(entityId, newest?.hash, secret, from)) return newest?.generation;
  return (await secrets.verify(entityId, previous?.hash, secret, from)) ? previous?.generation : undefined;
}

function deviceCaller(access: Access, deviceId: string): Caller | undefined {
  const device = access.placement(deviceId);
  return device?.deleted === null ? { kind: 'device', id: device.id, accountId: device.accountId } : undefined;
}
