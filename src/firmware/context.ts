import type { FirmwareFiles } from '../../db/files/firmware.ts';
import type { Commands } from '../commands/commands.ts';
import type { Clock } from '../core/clock.ts';
import type { MessagesContext } from '../messages/context.ts';
import type { Downloads } from './delivery/downloads.ts';
import type { Collector } from './packages/contents.ts';
import type { FirmwareEngine } from './rollouts/engine.ts';

/** The services that route modules of firmware and commands get: those below them, and their own. */
export interface DownlinkContext extends MessagesContext {
  /** By which something is late: it does not follow a clock that jumps ahead. */
  ages: Clock;
  firmware: FirmwareFiles;
  firmwareEngine: FirmwareEngine;
  downloads: Downloads;
  commands: Commands;
  collector: Collector;
}
