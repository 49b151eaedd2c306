/** Certificates of devices that were registered before a rule about keys and signatures, and that break it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stepsHad } from '../../db/files/schema.ts';
import { name as issuingStep } from '../../db/migrations/0032-issued-certificates.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { readPem, weaknessOf } from '../../src/certificates/x509.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning } = findings('certificates');
/** Warnings at most. */
const maxNamed = 100;

interface Registered {
  id: string;
  entityId: string;
  certificate: string;
}

/** Names each certificate that connects its device, and could not be registered today. */
export function lookAtCertificates(dataDir: string, now: number): Finding[] {
  const path = join(dataDir, 'registry.db');
  if (!existsSync(path) || !stepsHad(path).includes(issuingStep)) return [];
  const found: Finding[] = [];
  const file = openSqlite(path, { readonly: true });
  try {
    const registered = file.prepare<[string], Registered>(
      `SELECT "id", "entityId", "certificate" FROM "certificates" WHERE "deleted" IS NULL AND "validTo" > ?`,
    );
    for (const { id, entityId, certificate } of registered.iterate(new Date(now).toISOString())) {
      const read = readPem(certificate);
      const fault = typeof read === 'string' ? read : weaknessOf(read);
      if (fault === undefined) continue;
      found.push(
        warning(
          `Certificate ${id} of device ${entityId} ${fault}. It still connects, but could not be registered today. Give the device another one.`,
        ),
      );
      if (found.length === maxNamed) break;
    }
  } finally {
    file.close();
  }
  return found.length > 0 ? found : [ok('every registered certificate is strong enough')];
}
