/** The files of a data directory: who may read them, what steps they have had, whether they are sound. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { databasesIn } from '../../db/files/copies.ts';
import { firmwareName, hashOf, usedContents } from '../../db/files/firmware.ts';
import { isUnfinished } from '../../db/files/incoming.ts';
import { openSecret, openToOthers } from '../../db/files/modes.ts';
import { behind, unknownSteps } from '../../db/files/schema.ts';
import { dataVersion } from '../../db/files/snapshots.ts';
import { openSqlite } from '../../db/sqlite/open.ts';
import { type Finding, findings, size } from './finding.ts';

/** Larger than it ever is while checkpoints can run; a reader that never ends holds them up. */
const largeWal = 256 * 1024 * 1024;

/** Checks that only the owner can open the data and the keys; `others` are secret files elsewhere. */
export function lookAtModes(dataDir: string, others: readonly string[]): Finding[] {
  const { ok, error } = findings('files');
  const found = openToOthers(dataDir).map(({ path, mode }) =>
    error(
      `${path} has mode ${mode}, and the server does not start: other users can open it. chmod -R go-rwx ${dataDir}`,
    ),
  );
  for (const { path, mode } of others.flatMap((one) => openSecret(one) ?? []))
    found.push(error(`${path} has mode ${mode}: others can read the secrets in it. chmod 600 ${path}`));
  return found.length > 0 ? found : [ok('data, keys and secrets can be opened by their owner only')];
}

/** Whether this version can work with the databases. */
export function lookAtSchema(dataDir: string): Finding[] {
  const { ok, warning, error } = findings('schema');
  if (isUnfinished(dataDir))
    return [warning('A restore or rollback was broken off after it had been decided: the next start ends it.')];
  const newer = databasesIn(dataDir).filter((name) => unknownSteps(dataDir, name).length > 0);
  if (newer.length > 0) {
    const maker = dataVersion(dataDir) || 'a newer one';
    return [error(`${newer.join(' and ')} need another version of Slipway (${maker}), or slipway rollback.`)];
  }
  const old = behind(dataDir);
  if (old.length > 0)
    return [ok(`the next start upgrades ${old.join(' and ')}, after a snapshot, which takes as much room again`)];
  return [ok('the databases have had every step of this version')];
}

/** How much has not been taken over from the write-ahead logs. */
export function lookAtLogs(dataDir: string): Finding[] {
  const { ok, warning } = findings('wal');
  return databasesIn(dataDir).map((name) => {
    const path = join(dataDir, `${name}-wal`);
    const bytes = existsSync(path) ? statSync(path).size : 0;
    const said = `the write-ahead log of ${name} takes ${size(bytes)}`;
    return bytes > largeWal
      ? warning(`${said}: something reads the file without end (a backup, another program), or a crash has left it.`)
      : ok(said);
  });
}

/** Whether the files of all firmware packages are there, with the bytes that they must have. */
export async function lookAtFirmware(dataDir: string): Promise<Finding[]> {
  const { ok, error } = findings('firmware');
  const used = databasesIn(dataDir).includes('registry.db') ? usedContents(join(dataDir, 'registry.db')) : [];
  const wrong: string[] = [];
  for (const sha256 of used) {
    const path = join(dataDir, firmwareName, sha256);
    if (!existsSync(path) || (await hashOf(path)) !== sha256) wrong.push(sha256);
  }
  if (wrong.length === 0) return [ok(`${used.length} firmware files are sound`)];
  return [
    error(
      `${wrong.length} of ${used.length} firmware files are missing or damaged, among them ${wrong[0]}: upload them again to a new package, or restore a backup.`,
    ),
  ];
}

/** Reads every page: a minute for some ten gigabytes. */
export function lookAtIntegrity(dataDir: string): Finding[] {
  const { ok, error } = findings('integrity');
  return databasesIn(dataDir).map((name) => {
    try {
      const file = openSqlite(join(dataDir, name), { readonly: true });
      try {
        const found = file.pragma('quick_check(5)') as Array<{ quick_check: string }>;
        const faults = found.map((row) => row.quick_check).filter((text) => text !== 'ok');
        return faults.length === 0 ? ok(`${name} is sound`) : error(`${name} is damaged: ${faults.join('; ')}`);
      } finally {
        file.close();
      }
    } catch (fault) {
      return error(`${name} cannot be read: ${(fault as Error).message}`);
    }
  });
}
