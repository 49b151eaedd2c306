/** The data directory, and all that is read and written there. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import { CellGate } from '../../cells/gate.ts';
import { removeAccounts } from '../../cells/moves/offline/move.ts';
import { FirmwareFiles } from '../../db/files/firmware.ts';
import { finishReplacement } from '../../db/files/incoming.ts';
import { type Fence, takeOver } from '../../db/files/lock.ts';
import { dataVersion } from '../../db/files/snapshots.ts';
import { version } from '../../db/files/version.ts';
import { MessageStore } from '../../db/messages/store.ts';
import { Registry } from '../../db/registry/index.ts';
import { Access } from '../core/access.ts';
import type { Clock } from '../core/clock.ts';
import { type Config, ConfigError } from '../core/config.ts';
import { laneNow, openLog } from '../core/log.ts';
import { Positions } from '../core/network/positions.ts';
import { Readers } from '../core/threads/readers.ts';
import { lastWritten, TrustedClock } from '../core/trusted-clock.ts';
import type { Passwords } from '../identity/secrets/passwords.ts';
import type { Mail, Sms } from '../operations/emails/mail.ts';
import type { Closers } from './closers.ts';
import { holdDirectory } from './start-checks.ts';

/** Replacements that tests pass. */
export interface Overrides {
  clock?: Clock;
  log?: Logger;
  mail?: Mail;
  sms?: Sms;
  passwords?: Passwords;
  /** Bytes that are free on the disk of the data directory. */
  freeOnDisk?: () => Promise<number>;
}

export interface Stores {
  config: Config;
  clock: Clock;
  /** By which something is old enough to be deleted. */
  ages: TrustedClock;
  log: Logger;
  /** The version that ran on the data before this one, when it was another. */
  versionBefore: string | undefined;
  fence: Fence;
  gate: CellGate;
  positions: Positions;
  registry: Registry;
  readers: Readers;
  messages: MessageStore;
  firmware: FirmwareFiles;
  access: Access;
}

/** @throws ConfigError when the directory, or a configured file, cannot be used. */
export async function openStores(config: Config, overrides: Overrides, closers: Closers): Promise<Stores> {
  const { dataDir } = config;
  const clock = overrides.clock ?? { now: () => Date.now(), monotonic: () => performance.now() };
  const log = overrides.log ?? openLog(config.logLevel);
  const lock = holdDirectory(dataDir);
  closers.push(() => lock.release());
  const last = lastWritten(dataDir);
  const fence = takeOver(dataDir);
  closers.push(() => fence.close());
  finishReplacement(dataDir);
  // A first start has none, and neither has data of the first versions.
  const before = dataVersion(dataDir);
  const versionBefore = before === '' || before === version ? undefined : before;
  const gate = CellGate.open(dataDir);
  clearArrivals(dataDir, gate);
  const positions = await openPositions(config, log);
  closers.push(() => positions.close());
  const registry = await Registry.open(dataDir, fence.mark, laneNow);
  closers.push(() => registry.close());
  const readers = new Readers(join(dataDir, 'registry.db'));
  closers.push(() => readers.close());
  const messages = await MessageStore.open(dataDir, { log, mark: fence.mark });
  closers.push(() => messages.close());
  if (versionBefore !== undefined) log.info({ from: versionBefore, to: version }, 'the data is of another version now');
  const ages = new TrustedClock({ clock, directory: dataDir, log }, last);
  return {
    ...{ config, clock, ages, log, versionBefore, fence, gate, positions, registry, readers, messages },
    firmware: new FirmwareFiles(dataDir),
    access: new Access(registry),
  };
}

/** @throws ConfigError if the configured file is invalid. */
async function openPositions({ geoipDatabase }: Config, log: Logger): Promise<Positions> {
  try {
    return await Positions.open(geoipDatabase, log);
  } catch (error) {
    throw new ConfigError(`SLIPWAY_GEOIP_DATABASE cannot be used: ${geoipDatabase}: ${(error as Error).message}`);
  }
}

/** Removes what an earlier process had got of accounts that count elsewhere: the move begins again, or never. */
function clearArrivals(directory: string, gate: CellGate): void {
  for (const { accounts, state } of gate.records) {
    if (state !== 'coming') continue;
    removeAccounts(directory, accounts);
    gate.recordMove(accounts, undefined);
  }
}
