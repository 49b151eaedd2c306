/** The firmware version of a device, with when it was said and by whom: the device itself, or somebody who has set it. */
import type { Row } from '../../../db/registry/records.ts';
import { type Clock, timestamp } from '../../core/clock.ts';

type FirmwareVersionColumns = Pick<Row<'devices'>, 'firmwareVersion' | 'firmwareVersionTime' | 'firmwareVersionSource'>;

/** What is stored of a version that is said now. What was said before in the same words stays, with its time. */
export function versionSaid(
  clock: Clock,
  before: FirmwareVersionColumns | undefined,
  firmwareVersion: string | null,
  source: 'device' | 'api',
): FirmwareVersionColumns {
  if (firmwareVersion === null) return { firmwareVersion, firmwareVersionTime: null, firmwareVersionSource: null };
  if (before?.firmwareVersion === firmwareVersion && before.firmwareVersionSource === source) return pickSaid(before);
  return { firmwareVersion, firmwareVersionTime: timestamp(clock), firmwareVersionSource: source };
}

function pickSaid({
  firmwareVersion,
  firmwareVersionTime,
  firmwareVersionSource,
}: FirmwareVersionColumns): FirmwareVersionColumns {
  return { firmwareVersion, firmwareVersionTime, firmwareVersionSource };
}
