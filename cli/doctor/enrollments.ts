/** Enrollments from before serial numbers were normalized. No request finds them any more. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stepsHad } from '../../db/files/schema.ts';
import { composed } from '../../db/migrations/0050-serial-numbers.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { normalizeSerialNumber } from '../../src/core/formats/serial-numbers.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning } = findings('enrollment');
/** Warnings at most. */
const maxNamed = 100;

interface Overshadowed {
  groupId: string;
  serialNumber: string;
  deviceId: string;
  /** The device that enrolls with the serial number. */
  foundId: string | null;
}

/** Names each device whose serial number belongs to another device of its enrollment group. */
export function lookAtEnrollments(dataDir: string): Finding[] {
  const path = join(dataDir, 'registry.db');
  // The next start normalizes the others.
  if (!existsSync(path) || !stepsHad(path).includes(composed.name)) return [];
  const file = openSqlite(path, { readonly: true });
  try {
    file.function('normal', { deterministic: true }, (text) => normalizeSerialNumber(String(text)));
    const found = file
      .prepare<[number], Overshadowed>(
        `SELECT "old"."groupId", normal("old"."serialNumber") AS "serialNumber", "old"."deviceId",
           "other"."deviceId" AS "foundId"
         FROM "enrollments" AS "old"
         JOIN "devices" ON "devices"."id" = "old"."deviceId" AND "devices"."deleted" IS NULL
         LEFT JOIN "enrollments" AS "other"
           ON "other"."groupId" = "old"."groupId" AND "other"."serialNumber" = normal("old"."serialNumber")
         WHERE "old"."serialNumber" <> normal("old"."serialNumber") LIMIT ?`,
      )
      .all(maxNamed);
    return found.length > 0 ? found.map(describe) : [ok('every enrolled device is found by its serial number')];
  } finally {
    file.close();
  }
}

function describe({ groupId, serialNumber, deviceId, foundId }: Overshadowed): Finding {
  const named = `serial number ${JSON.stringify(serialNumber)} in enrollment group ${groupId}`;
  const advice = `Delete ${deviceId} when its unit has enrolled again, or if it has none.`;
  return foundId === null
    ? warning(`Device ${deviceId} has ${named}, but would enroll as a new device. ${advice}`)
    : warning(
        `Devices ${foundId} and ${deviceId} both have ${named}, and only ${foundId} can enroll with it. If they are two units, give that of ${deviceId} another serial number. ${advice}`,
      );
}
