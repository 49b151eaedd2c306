/** `slipway doctor`: looks at everything that keeps the service from working, now or soon, and changes nothing. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { databasesIn } from '../../db/files/copies.ts';
import { isUnfinished } from '../../db/files/incoming.ts';
import { isLocked } from '../../db/files/lock.ts';
import { ConfigError, loadConfig } from '../../src/core/config.ts';
import { checkDirectory } from '../../src/process/start-checks.ts';
import { describeMissing } from '../../src/process/used-directory.ts';
import { lookAtCertificates } from './certificates.ts';
import { lookAtClock } from './clock.ts';
import { lookAtConfiguration } from './configuration.ts';
import { lookAtDisk } from './disk.ts';
import { lookAtEnrollments } from './enrollments.ts';
import { lookAtFirmware, lookAtIntegrity, lookAtLogs, lookAtModes, lookAtSchema } from './files.ts';
import { type Finding, findings } from './finding.ts';
import { lookAtPorts, lookAtServer } from './server.ts';
import { lookAtTls } from './tls.ts';

interface DoctorFlags {
  dataDir: string | undefined;
  json: boolean;
  skipIntegrity: boolean;
}

/** Exit codes: 0 no problem, 1 warnings, 2 errors (or wrong usage). */
const exitCodes = { ok: 0, warning: 1, error: 2 } as const;

export async function doctor({ dataDir, json, skipIntegrity }: DoctorFlags): Promise<void> {
  const found = await examine(dataDir, skipIntegrity ? [] : ['integrity']);
  const levels = ['error', 'warning'] as const;
  const result = levels.find((level) => found.some((one) => one.level === level)) ?? 'ok';
  if (json) process.stdout.write(`${JSON.stringify({ result, findings: found })}\n`);
  else
    for (const { check, level, message } of found)
      process.stdout.write(`${level.padEnd(8)} ${check.padEnd(14)} ${message}\n`);
  process.exitCode = exitCodes[result];
}

/** A data directory that does not exist yet. */
function lookAtPlace(dataDir: string): Finding {
  const { warning, error } = findings('files');
  try {
    checkDirectory(dataDir);
    return warning(`${dataDir} does not exist. The first start creates it.`);
  } catch (reason) {
    return error(`${(reason as Error).message} The server does not start with this.`);
  }
}

async function examine(given: string | undefined, costly: readonly 'integrity'[]): Promise<Finding[]> {
  const wrong = findings('configuration').error;
  let config: ReturnType<typeof loadConfig>;
  try {
    config = loadConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return [
      wrong(`${error.message.replace(/\.?$/, '.')} The server does not start with this.`),
      ...(given ? await filesOf(given, costly) : []),
    ];
  }
  const dataDir = given === undefined ? config.dataDir : resolve(given);
  const own = { ...config, dataDir };
  if (!existsSync(dataDir)) {
    return [
      ...lookAtConfiguration(own, { hasAccount: false }),
      lookAtPlace(dataDir),
      ...(await lookAtPorts(own, false)),
    ];
  }
  const now = Date.now();
  const served = isLocked(dataDir);
  const hasAccount = databasesIn(dataDir).includes('registry.db');
  return [
    ...(await looked('configuration', () => lookAtConfiguration(own, { hasAccount }))),
    ...(await looked('tls', () => lookAtTls(own, now))),
    ...(await looked('files', () => lookAtModes(dataDir, own.secretFiles))),
    ...(await looked('ports', () => lookAtPorts(own, served))),
    ...(await looked('server', () => lookAtServer(own, served))),
    ...(await looked('clock', () => lookAtClock(dataDir, now))),
    ...(await looked('disk', () => lookAtDisk(own, now))),
    ...(await looked('firmware', () => (costly.includes('integrity') ? lookAtFirmware(dataDir) : []))),
    ...(await looked('enrollment', () => (costly.includes('integrity') ? lookAtEnrollments(dataDir) : []))),
    ...(await looked('certificates', () => (costly.includes('integrity') ? lookAtCertificates(dataDir, now) : []))),
    ...(await filesOf(dataDir, costly)),
  ];
}

/** A check that fails is a finding too, so that one problem hides no other. */
async function looked(check: Finding['check'], look: () => Finding[] | Promise<Finding[]>): Promise<Finding[]> {
  try {
    return await look();
  } catch (fault) {
    return [findings(check).error(`could not be looked at: ${(fault as Error).message}`)];
  }
}

async function filesOf(dataDir: string, costly: readonly 'integrity'[]): Promise<Finding[]> {
  const use = await looked('files', () => lookAtUse(dataDir));
  if (databasesIn(dataDir).length === 0) return use;
  const sound = await looked('integrity', () => (costly.includes('integrity') ? lookAtIntegrity(dataDir) : []));
  const logs = await looked('wal', () => lookAtLogs(dataDir));
  // The migrations that a damaged file names cannot be trusted.
  if (sound.some(({ level }) => level === 'error')) return [...use, ...logs, ...sound];
  return [...use, ...(await looked('schema', () => lookAtSchema(dataDir))), ...logs, ...sound];
}

/** A part that is gone of a directory that was in use. */
function lookAtUse(dataDir: string): Finding[] {
  const missing = isUnfinished(dataDir) ? undefined : describeMissing(dataDir);
  return missing ? [findings('files').error(`${missing} The server does not start with this.`)] : [];
}
