/** What a station goes on with after a reload. No secret is kept: the service has the results for a day. */
import { browserStore } from '../app/stores.ts';
import type { Format, Unit, Verdict } from './units.ts';

export interface Kept {
  unit?: Unit | undefined;
  verdict?: Verdict | undefined;
  format: Format;
  /** The units before, the latest first. */
  last: readonly { serialNumber: string; passed: boolean | undefined }[];
}

const maxLast = 10;
const nothing: Kept = { format: 'esp-nvs-csv', last: [] };
const keyOf = (stationId: string) => `slipway-station-${stationId}`;

export function readKept(stationId: string): Kept {
  try {
    return { ...nothing, ...JSON.parse(browserStore.get(keyOf(stationId)) ?? '{}') };
  } catch {
    return nothing;
  }
}

export function keep(stationId: string, kept: Kept): void {
  browserStore.set(keyOf(stationId), JSON.stringify(kept));
}

/** With the unit in hand among those before. */
export function putAside({ unit, verdict, last, ...rest }: Kept): Kept {
  if (!unit) return { ...rest, last };
  const before = last.filter(({ serialNumber }) => serialNumber !== unit.serialNumber);
  return { ...rest, last: [{ serialNumber: unit.serialNumber, passed: verdict?.passed }, ...before].slice(0, maxLast) };
}
