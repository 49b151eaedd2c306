/** What a device says of one file of an update: the state of the update follows from the phases of all its files. */
import type { Tx } from '../../../db/registry/index.ts';
import type { Clock } from '../../core/clock.ts';
import { PlatformError } from '../../core/errors.ts';
import { filesOf } from '../packages/files.ts';
import { currentDelivery, packageOf, type Report, type Reported, takeReport } from './deliveries.ts';
import { isOpen } from './rollout.ts';

/** Phases of a file. */
export const phases = { downloading: 2, downloaded: 3, processing: 4, finished: 5 } as const;

/** The phase that a file has reached; `code` of a failure. */
export interface FileReport {
  name: string;
  revision: string;
  phase: number;
  code?: number;
}

/** Whether both tell of the progress of one file: a failure, or a file that is finished, may end the update. */
export function areProgress(before: FileReport, later: FileReport): boolean {
  const isProgress = ({ phase, code }: FileReport) => code === undefined && phase !== phases.finished;
  return before.name === later.name && before.revision === later.revision && isProgress(before) && isProgress(later);
}

/**
 * Takes what a device says of a file of its update; of one that has ended nothing changes. Runs in a transaction of the
 * caller's. @throws PlatformError 400/106 when nothing is offered, or not this file.
 */
export async function takeFileReport(
  tx: Tx,
  clock: Clock,
  deviceId: string,
  { name, revision, phase, code }: FileReport,
): Promise<Reported> {
  const delivery = await currentDelivery(tx, deviceId);
  if (!delivery) throw unusable('nothing is offered');
  const { id, firmwareVersion } = await packageOf(tx, delivery);
  const files = (await filesOf(tx, [id])).get(id) ?? [];
  if (!files.some((one) => one.name === name && one.revision === revision))
    throw unusable('N and R name no offered file');
  if (!isOpen(delivery)) return { delivery, firmwareVersion, ended: false };
  if (code !== undefined) {
    const message = `File ${name} failed in phase ${phase}.`;
    return takeReport(tx, clock, deviceId, { state: 'failed', firmwareVersion, code, message });
  }
  // A map: a file may be called as what every object has.
  const come = new Map(Object.entries(JSON.parse(delivery.files ?? '{}') as Record<string, number>)).set(name, phase);
  const state = stateOf(files.map((one) => come.get(one.name) ?? 0));
  const told = JSON.stringify(Object.fromEntries(come));
  return takeReport(tx, clock, deviceId, { state, firmwareVersion, files: told });
}

/** The phase of an update, from the phases of its files. */
function stateOf(come: readonly number[]): Report['state'] {
  if (come.every((phase) => phase === phases.finished)) return 'succeeded';
  if (come.some((phase) => phase < phases.downloaded)) return 'downloading';
  return come.some((phase) => phase >= phases.processing) ? 'installing' : 'downloaded';
}

function unusable(message: string): PlatformError {
  return new PlatformError('invalid', { details: [{ message }] });
}
