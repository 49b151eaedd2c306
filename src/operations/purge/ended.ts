/** Rows that are kept for a time after they have ended: login sessions, tokens, commands, rollouts, stored answers. */
import { sql } from 'kysely';
import { timestamp } from '../../core/clock.ts';
import { answerLifetime } from '../../entity/kept-answers.ts';
import { activityStep } from '../../ports/activity.ts';
import { type PurgeContext, stepSize } from './step.ts';

const day = 24 * 60 * 60_000;
/** How long commands that have ended, and rollouts, can be read; milliseconds. */
const commandsKept = 30 * day;
const rolloutsKept = 180 * day;
/** Milliseconds after its end in which a revoked certificate is still on lists: they have it a day longer. */
const revokedKept = 2 * day;
/** Milliseconds; the five minutes that began then are still shown. */
const activityKept = 7 * day + activityStep;

/** Login sessions that are over for a day: validate-jwt says the same of one that is gone. */
export async function purgeSessions({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - day).toISOString();
  const over = registry.query.selectFrom('sessions').select('id').where('expires', '<', before).limit(stepSize);
  const { numDeletedRows } = await registry.query.deleteFrom('sessions').where('id', 'in', over).executeTakeFirst();
  return numDeletedRows > 0n;
}

/** Revoked certificates that have expired: the next list of their CA leaves them out, too. */
export async function purgeRevoked({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - revokedKept).toISOString();
  const rows = registry.query.selectFrom('revokedCertificates').select('sequence').where('validTo', '<', before);
  const gone = registry.query.deleteFrom('revokedCertificates').where('sequence', 'in', rows.limit(stepSize));
  return (await gone.executeTakeFirst()).numDeletedRows > 0n;
}

/** Rows that end by themselves: tokens, codes, and logins that nobody went on with in time. */
export async function purgeExpired({ registry, clock }: PurgeContext): Promise<boolean> {
  let purged = 0n;
  for (const table of ['federatedLogins', 'mailedTokens', 'mfaLogins', 'accessTokens', 'associationCodes'] as const) {
    const gone = sql`delete from ${sql.table(table)} where rowid in
      (select rowid from ${sql.table(table)} where "expires" <= ${timestamp(clock)} limit ${stepSize})`;
    purged += (await gone.execute(registry.query)).numAffectedRows ?? 0n;
  }
  return purged > 0n;
}

export async function purgeCommands({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - commandsKept).toISOString();
  const old = registry.query.selectFrom('commands').select('id').where('finished', '<', before).limit(stepSize);
  return (await registry.query.deleteFrom('commands').where('id', 'in', old).executeTakeFirst()).numDeletedRows > 0n;
}

/** The devices of a rollout first, a few at a time. */
export async function purgeRollouts({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - rolloutsKept).toISOString();
  const old = registry.query.selectFrom('firmwareRollouts').select('id').where('finished', '<', before);
  const rollout = await old.limit(1).executeTakeFirst();
  if (!rollout) return false;
  const { id } = rollout;
  await registry.transaction(async (tx) => {
    const batch = tx.selectFrom('firmwareDeliveries').select('deviceId').where('rolloutId', '=', id).limit(stepSize);
    const gone = tx.deleteFrom('firmwareDeliveries').where('rolloutId', '=', id).where('deviceId', 'in', batch);
    if ((await gone.executeTakeFirst()).numDeletedRows > 0n) return;
    await tx.deleteFrom('firmwareCounts').where('rolloutId', '=', id).execute();
    await tx.deleteFrom('firmwareRollouts').where('id', '=', id).execute();
  });
  return true;
}

/** What went on more than a week ago; the overview shows no more. */
export async function purgeActivity({ registry, clock }: PurgeContext): Promise<boolean> {
  const over = clock.now() - activityKept;
  const old = sql`delete from "activity" where ("accountId", "time") in
    (select "accountId", "time" from "activity" where "time" < ${over} limit ${stepSize})`;
  return ((await old.execute(registry.query)).numAffectedRows ?? 0n) > 0n;
}

export async function purgeAnswers({ registry, clock }: PurgeContext): Promise<boolean> {
  const before = new Date(clock.now() - answerLifetime).toISOString();
  const old = registry.query.selectFrom('idempotentAnswers').select('keyHash').where('created', '<', before);
  const gone = registry.query.deleteFrom('idempotentAnswers').where('keyHash', 'in', old.limit(stepSize));
  return (await gone.executeTakeFirst()).numDeletedRows > 0n;
}
