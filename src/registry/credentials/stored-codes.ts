/** Association codes of devices as they are stored: made, found and ended. */
import { findEntity } from '../../../db/registry/entities.ts';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isAccountWide } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { inGroups } from '../../core/formats/crockford.ts';
import { writeAs } from '../../entity/verbs.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';
import { hashOfCode, makeCode } from './association-codes.ts';

type CodeServices = { registry: Registry; clock: Clock; sealing: Sealing; access: Access };

/** Stored forms of a code, the latest first. */
async function* hashesOfCode(
  { secrets, sealing }: { secrets: Secrets; sealing: Sealing },
  accountId: string,
  code: string,
): AsyncGenerator<string> {
  const keyed = hashOfCode(sealing, accountId, code);
  yield keyed;
  yield* secrets.hashCodeFormerly(accountId, keyed, code);
}

/**
 * A new code of a device, in place of its former one of this kind; `note` runs in the transaction. @throws PlatformError 404/100 for a
 * device that is not there or out of reach, 410/107 for one in the trash.
 */
export async function renewCode(
  ctx: CodeServices,
  caller: Caller,
  deviceId: string,
  code: Pick<Row<'associationCodes'>, 'kind' | 'keepHistory' | 'expires'>,
  note: (tx: Tx, device: Row<'devices'>) => Promise<void>,
): Promise<{ associationCode: string; device: Row<'devices'> }> {
  const { access, clock, sealing } = ctx;
  const { accountId, id: createdById } = caller;
  const made = makeCode();
  const codeHash = hashOfCode(sealing, accountId, made);
  const device = await writeAs(ctx, caller, ['devices', deviceId], async (tx) => {
    const device = await findEntity(tx, 'devices', deviceId);
    if (!device || !access.reachesDevice(caller, device)) throw new PlatformError('notFound');
    if (device.deleted !== null) throw new PlatformError('deleted');
    const former = tx.deleteFrom('associationCodes').where('deviceId', '=', deviceId);
    await former.where('kind', '=', code.kind).execute();
    const row = { ...code, deviceId, accountId, codeHash, created: timestamp(clock), createdById };
    await tx.insertInto('associationCodes').values(row).execute();
    await note(tx, device);
    return device;
  });
  return { associationCode: inGroups(made), device };
}

/** When a code has expired that was ended: however far the clock is set back, it counts no more. */
export const longAgo = new Date(0).toISOString();

/**
 * Ends the code with which the owner of a device gives it away; whether it counted until now. Its row stays until it is purged: who
 * tries it meanwhile is answered without the slow hashes of former versions.
 */
export async function endGiveAway(tx: Tx, clock: Clock, deviceId: string): Promise<boolean> {
  const codes = tx.updateTable('associationCodes').set({ expires: longAgo }).where('deviceId', '=', deviceId);
  const ended = await codes.where('kind', '=', 'giveAway').where('expires', '>', timestamp(clock)).executeTakeFirst();
  return ended.numUpdatedRows > 0n;
}

/** Whether a stored code still counts. */
function codeCounts(clock: Clock, { expires }: Pick<Row<'associationCodes'>, 'expires'>): boolean {
  return expires === null || expires > timestamp(clock);
}

/**
 * Whether a code of a device in this organization can be claimed with: one to give it away only while its maker may still change devices
 * of the same tree. People leave a household, or a company.
 */
export function canBeClaimed(
  { access, clock }: { access: Access; clock: Clock },
  code: Pick<Row<'associationCodes'>, 'kind' | 'expires' | 'createdById'>,
  organizationId: string | null,
): boolean {
  if (code.kind === 'label') return true;
  const maker = access.callerOfPrincipal(code.createdById);
  if (!codeCounts(clock, code) || !maker || !access.may(maker, 'update', 'device')) return false;
  const giver = access.narrow(maker, 'update', 'device');
  const top = access.pathOf(organizationId).at(-1);
  return (
    isAccountWide(giver) ||
    (giver.kind === 'endUser' && giver.organizationIds.some((id) => access.pathOf(id).at(-1) === top))
  );
}

/** 404/100: there is no such code, or it has ended. */
export function unknownCode(): PlatformError {
  return new PlatformError('notFound', { message: 'The association code does not exist.' });
}

/** 422/106: the code of a label moves a device only for who reaches its owner. */
export function taken(): PlatformError {
  return new PlatformError('association', { message: 'It belongs to somebody. Ask them to give it away.' });
}

/**
 * The device of a code that can be claimed with; it may be in the trash. A code of another account is found no more than one that does not
 * exist.
 */
export async function findByCode(ctx: CodeServices & { secrets: Secrets }, accountId: string, code: string) {
  for await (const codeHash of hashesOfCode(ctx, accountId, code)) {
    const found = await ctx.registry.query
      .selectFrom('associationCodes')
      .innerJoin('devices', 'devices.id', 'associationCodes.deviceId')
      .select(['devices.id', 'devices.deleted', 'devices.organizationId', 'associationCodes.codeHash'])
      .select(['devices.serialNumber', 'devices.deviceTemplateId'])
      .select(['associationCodes.kind', 'associationCodes.expires', 'associationCodes.createdById'])
      .where('associationCodes.codeHash', '=', codeHash)
      .where('associationCodes.accountId', '=', accountId)
      .executeTakeFirst();
    if (found) return canBeClaimed(ctx, found, found.organizationId) ? found : undefined;
  }
  return undefined;
}
