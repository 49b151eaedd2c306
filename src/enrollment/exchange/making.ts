/** Makes a device and its credential, or another credential for a device that a group has made, each in one transaction. */
import { findEntity } from '../../../db/registry/entities.ts';
import type { Tx } from '../../../db/registry/index.ts';
import { insertMany } from '../../../db/registry/many.ts';
import type { Row } from '../../../db/registry/records.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import { endLeaves, findIssuer, type Leaf, storeLeaf } from '../../certificates/issuing.ts';
import type { Caller } from '../../core/caller.ts';
import { timestamp } from '../../core/clock.ts';
import { invalid } from '../../core/errors.ts';
import { newId } from '../../core/ids.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import type { Field } from '../../entity/values.ts';
import { readFields, readNewFields } from '../../entity/values.ts';
import { change, findLive, insert } from '../../entity/verbs.ts';
import { hashOfNothing, makeSecret } from '../../identity/secrets/secrets.ts';
import type { MessagesContext } from '../../messages/context.ts';
import type { EnrollmentAnswer } from '../../ports/enrollment.ts';
import { activate, newCredential, secretStored, storeSecret } from '../../registry/credentials/credentials.ts';
import { deviceChanged, newDevice } from '../../registry/devices/changes.ts';
import { versionSaid } from '../../registry/devices/firmware-version.ts';
import { placing } from '../../registry/devices/possession.ts';
import type { GroupRow } from '../groups/group.ts';
import type { EnrollmentAttempt, PresentedCredential } from './attempt.ts';
import type { HookAnswer } from './hook.ts';
import { refused } from './refused.ts';
import { decideAgain, demandOpen, demandRoom, isPermitted, type Verdict } from './rules.ts';

export type MakingContext = Pick<
  MessagesContext,
  | 'access'
  | 'audit'
  | 'clock'
  | 'config'
  | 'downlink'
  | 'fields'
  | 'issuing'
  | 'keeping'
  | 'overlaps'
  | 'registry'
  | 'revocations'
  | 'revoked'
  | 'secrets'
>;

const countOne = 'UPDATE "enrollmentGroups" SET "enrolledCount" = "enrolledCount" + 1 WHERE "id" = ?';

/** What has been made. */
export interface EnrolledDevice {
  isNew: boolean;
  device: Pick<Row<'devices'>, 'id' | 'accountId' | 'deviceTemplateId' | 'serialNumber'>;
  credential: Omit<EnrollmentAnswer['credential'], 'username'>;
}

/** A credential that is not stored yet: a secret, or a certificate and the hash of a secret that nobody knows. */
type NewCredential = { hash: string } & ({ secret: string; leaf?: undefined } | { leaf: Leaf; secret?: undefined });

/** @throws PlatformError 400/106, 403/21, 507. */
export async function makeCredential(ctx: MakingContext, attempt: EnrollmentAttempt): Promise<EnrolledDevice> {
  const { group, known } = attempt;
  const lane: Lane = { accountId: group.accountId, callerId: group.id };
  ctx.keeping.demandRoom(group.accountId);
  const deviceId = known?.enrollment.deviceId ?? newId(group.accountId);
  const fresh = await freshFor(ctx, lane, attempt, deviceId);
  return known ? makeAgain(ctx, attempt, deviceId, fresh) : makeFirst(ctx, attempt, deviceId, fresh);
}

async function freshFor(
  ctx: MakingContext,
  lane: Lane,
  { group, csr }: EnrollmentAttempt,
  deviceId: string,
): Promise<NewCredential> {
  if (!csr) {
    const secret = makeSecret();
    return { secret, hash: await ctx.secrets.hash(secret, lane) };
  }
  const { accountId, certificateAuthorityId, certificateDays: days } = group;
  const issuer = await findIssuer(ctx.registry.query, ctx.clock, accountId, certificateAuthorityId ?? '').catch(() => {
    throw refused('The CA of the enrollment group cannot issue certificates now.');
  });
  return { hash: hashOfNothing(), leaf: await ctx.issuing.signLeaf(lane, issuer, { deviceId, csr, days }) };
}

/** What of a new credential is told once. */
function toldOf({ secret, leaf }: NewCredential): EnrolledDevice['credential'] {
  if (!leaf) return { secret };
  const { certificate, chain, expires } = leaf;
  return { certificate, chain, expires };
}

/** A device in the name of which the group acts. */
function actorOf({ id, accountId }: GroupRow): Caller {
  return { kind: 'device', id, accountId };
}

async function makeFirst(
  ctx: MakingContext,
  attempt: EnrollmentAttempt,
  deviceId: string,
  fresh: NewCredential,
): Promise<EnrolledDevice> {
  const { registry } = ctx;
  const { serialNumber, request, shown } = attempt;
  const row = await registry.transaction(async (tx) => {
    const group = await currentGroup(ctx, tx, attempt);
    demandRoom(group);
    const place = await placeOf(tx, group, attempt.said);
    const values = valuesOf(ctx, place.deviceTemplateId, attempt);
    const body = {
      ...values,
      serialNumber,
      ...(request.firmwareVersion !== undefined && { firmwareVersion: request.firmwareVersion }),
    };
    const made = newDevice(ctx, actorOf(group), { ...place, provisioningState: 'activated' }, body);
    const said = versionSaid(ctx.clock, undefined, made.firmwareVersion, 'device');
    const device = await insert(tx, 'devices', { ...made, ...said, id: deviceId });
    const now = device.created;
    if (fresh.leaf) await storeLeaf(tx, actorOf(group), deviceId, fresh.leaf);
    else await insertMany(tx, 'credentials', [newCredential(actorOf(group), deviceId, fresh.hash, now)]);
    const enrollment = { deviceId, groupId: group.id, accountId: group.accountId, serialNumber, enrolled: now };
    const unused = {
      connected: null,
      used: 0,
      permitted: 0,
      allowedUntil: null,
      formerHash: null,
      formerFingerprint: null,
    };
    const proofKeyHash = shown.proofKeyHash ?? null;
    await insertMany(tx, 'enrollments', [{ ...enrollment, ...unused, proofKeyHash }]);
    await rowsOf(tx, countOne, [group.id]);
    await recordEnrollment(ctx, tx, attempt, deviceId, 'made');
    return device;
  });
  ctx.access.deviceChanged(deviceId);
  return { isNew: true, device: row, credential: toldOf(fresh) };
}

async function makeAgain(
  ctx: MakingContext,
  attempt: EnrollmentAttempt,
  deviceId: string,
  fresh: NewCredential,
): Promise<EnrolledDevice> {
  const { clock, registry } = ctx;
  const { serialNumber, shown } = attempt;
  const actor = actorOf(attempt.group);
  const made = await registry.transaction(async (tx) => {
    const group = await currentGroup(ctx, tx, attempt);
    const rows = tx.selectFrom('enrollments').selectAll().where('groupId', '=', group.id);
    const enrollment = await rows.where('serialNumber', '=', serialNumber).executeTakeFirst();
    const before = await findEntity(tx, 'devices', deviceId);
    const credentials = tx.selectFrom('credentials').select(['secretHash', 'previousHash']);
    const credential = await credentials.where('entityId', '=', deviceId).executeTakeFirst();
    if (!enrollment || !before) throw refused('The device has been deleted meanwhile.');
    const verdict = decideAgain(group, { enrollment, device: before, credential }, shown, clock.now());
    const after = await changedDevice(ctx, tx, attempt, group, before, verdict);
    const now = timestamp(clock);
    await endLeaves(tx, clock, deviceId);
    // What a CA has issued for the former hardware ends, too.
    if (enrollment.connected !== null)
      await tx.updateTable('devices').set({ replaced: now }).where('id', '=', deviceId).execute();
    const activated = await storeFresh(tx, actor, deviceId, fresh, credential !== undefined, now);
    await renewEnrollment(tx, enrollment, shown, isPermitted(enrollment, clock.now()));
    await recordEnrollment(ctx, tx, attempt, deviceId, verdict);
    return { before, after, activated };
  });
  const { before, after, activated } = made;
  secretStored(ctx, actor, deviceId, activated);
  if (after !== before) await deviceChanged(ctx, actor, { before, after });
  return { isNew: false, device: after, credential: toldOf(fresh) };
}

/** Stores a credential in the place of the former one; whether that has moved a defined device to activated. */
async function storeFresh(
  tx: Tx,
  actor: Caller,
  deviceId: string,
  { leaf, hash }: NewCredential,
  hasSecret: boolean,
  now: string,
): Promise<boolean> {
  if (leaf) await storeLeaf(tx, actor, deviceId, leaf);
  // With a certificate a former secret ends: nobody knows that of this hash.
  if (leaf && !hasSecret) return activate(tx, actor, deviceId, now);
  const holder = { entityId: deviceId, entityType: 'device' } as const;
  return (await storeSecret(tx, actor, holder, hash, now)).activated;
}

/** The group as it is now: it may have been changed since it was asked. @throws PlatformError 403/21. */
async function currentGroup(
  { clock }: MakingContext,
  tx: Tx,
  { group, serialNumber }: EnrollmentAttempt,
): Promise<GroupRow> {
  const current = await findEntity(tx, 'enrollmentGroups', group.id);
  if (!current) throw refused('The enrollment group has been deleted.');
  demandOpen(current, serialNumber, clock.now());
  return current;
}

type DevicePlace = Pick<Row<'devices'>, 'deviceTemplateId' | 'organizationId'>;

/** Where a device stands: as the hook says, otherwise as the group does. @throws PlatformError 403/21 for what is gone. */
async function placeOf(tx: Tx, group: GroupRow, said: HookAnswer): Promise<DevicePlace> {
  const { accountId } = group;
  const { deviceTemplateId = group.deviceTemplateId, organizationId = group.organizationId } = said;
  if (!(await findLive(tx, 'deviceTemplates', accountId, deviceTemplateId)))
    throw refused('The device template of the enrollment group, or of its hook, does not exist.');
  if (organizationId !== null && !(await findLive(tx, 'organizations', accountId, organizationId)))
    throw refused('The organization of the enrollment group, or of its hook, does not exist.');
  return { deviceTemplateId, organizationId };
}

/** @throws PlatformError 400/106 and 403/21 for names of the request, or of the hook, that are not there. */
export async function checkHookAnswer(
  ctx: Pick<MakingContext, 'registry' | 'fields'>,
  attempt: EnrollmentAttempt,
): Promise<void> {
  const { group, known, said } = attempt;
  const named = [
    ['deviceTemplates', said.deviceTemplateId],
    ['organizations', said.organizationId],
  ] as const;
  for (const [table, id] of named)
    if (id !== undefined && id !== null && !(await findLive(ctx.registry.query, table, group.accountId, id)))
      throw refused('The hook of the enrollment group names something that does not exist.');
  valuesOf(ctx, (known?.device ?? { ...group, ...said }).deviceTemplateId, attempt);
}

/**
 * The custom fields of a request, with those of the hook over them. @throws PlatformError 400/106 for a field that the
 * template does not have, 403/21 for one that the hook names, or for a value of it that the field cannot have.
 */
function valuesOf(
  { fields }: Pick<MakingContext, 'fields'>,
  deviceTemplateId: string,
  { request, said }: Pick<EnrollmentAttempt, 'request' | 'said'>,
): Record<string, unknown> {
  const known = fields.of('devices', deviceTemplateId);
  const unknown = unknownField(known, request.fields);
  if (unknown !== undefined) throw invalid(`fields.${unknown}`, 'is not a field of the device template');
  if (unknownField(known, said.fields) !== undefined)
    throw refused('The hook of the enrollment group names a field that the device template does not have.');
  try {
    readFields(known, said.fields ?? {});
  } catch {
    throw refused('The hook of the enrollment group gives a field a value that it cannot have.');
  }
  return { ...request.fields, ...said.fields };
}

function unknownField(known: readonly Field[], given: Record<string, unknown> = {}): string | undefined {
  const names = new Set(known.map(({ name }) => name));
  return Object.keys(given).find((name) => !names.has(name));
}

/** The device of a new credential: as it was, or with fields and place as new. */
async function changedDevice(
  ctx: MakingContext,
  tx: Tx,
  attempt: EnrollmentAttempt,
  group: GroupRow,
  before: Row<'devices'>,
  verdict: Verdict,
): Promise<Row<'devices'>> {
  const { deviceTemplateId } = before;
  const values = valuesOf(ctx, deviceTemplateId, attempt);
  if (verdict === 'keep') return before;
  const { organizationId } = await placeOf(tx, group, { ...attempt.said, deviceTemplateId });
  await tx.deleteFrom('associationCodes').where('deviceId', '=', before.id).execute();
  const nothing = { latitude: null, longitude: null, externalIp: null, reverseDns: null };
  return change(
    tx,
    'devices',
    before.id,
    'latest',
    { caller: actorOf(group), clock: ctx.clock },
    {
      ...nothing,
      ...(await placing(tx, ctx.clock, before, organizationId, false)),
      provisioningState: 'activated',
      ...versionSaid(ctx.clock, before, attempt.request.firmwareVersion ?? null, 'device'),
      fields: readNewFields(ctx.fields.of('devices', deviceTemplateId), values, ctx.fields.limits),
    },
  );
}

/** Another credential, which has not been used. What has proven the device before still does until then. */
async function renewEnrollment(
  tx: Tx,
  { deviceId, used, proofKeyHash, formerHash, formerFingerprint }: Row<'enrollments'>,
  shown: PresentedCredential,
  permitted: boolean,
): Promise<void> {
  const former = used === 0 ? { formerHash, formerFingerprint } : { formerHash: null, formerFingerprint: null };
  await tx
    .updateTable('enrollments')
    .set({
      used: 0,
      permitted: permitted ? 1 : 0,
      proofKeyHash: shown.proofKeyHash ?? proofKeyHash,
      formerHash: shown.previousHash ?? former.formerHash,
      formerFingerprint: shown.previousFingerprint ?? former.formerFingerprint,
    })
    .where('deviceId', '=', deviceId)
    .execute();
}

function recordEnrollment(
  { audit }: MakingContext,
  tx: Tx,
  { group, serialNumber, address }: EnrollmentAttempt,
  deviceId: string,
  how: string,
): Promise<void> {
  return audit.record(tx, {
    event: 'deviceEnrolled',
    outcome: 'success',
    accountId: group.accountId,
    target: { kind: 'device', id: deviceId },
    address,
    details: { enrollmentGroupId: group.id, serialNumber, proof: group.proof, how },
  });
}
