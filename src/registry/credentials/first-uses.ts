/** A device that has enrolled uses its credential for the first time: from then on it is not replaced for the asking. */
import { sql } from 'kysely';
import type { Registry } from '../../../db/registry/index.ts';
import { type Clock, timestamp } from '../../core/clock.ts';

/**
 * To be told, before it is let in, of a device that has proven its credential; `generation` is that of a secret. On disk
 * when it resolves: nobody who asks later may be handed the device.
 */
export async function noteFirstUse(
  { registry, clock }: { registry: Registry; clock: Clock },
  deviceId: string,
  generation: number | null = null,
): Promise<void> {
  if (!registry.isEnrollmentUnused(deviceId)) return;
  // A secret that has been replaced meanwhile says nothing of the new one.
  await sql`update "enrollments" set "used" = 1, "connected" = coalesce("connected", ${timestamp(clock)}),
      "allowedUntil" = case "permitted" when 1 then null else "allowedUntil" end, "permitted" = 0,
      "formerHash" = null, "formerFingerprint" = null
    where "deviceId" = ${deviceId} and "used" = 0 and (${generation} is null
      or ${generation} = (select "generation" from "credentials" where "entityId" = ${deviceId}))`.execute(
    registry.query,
  );
}
