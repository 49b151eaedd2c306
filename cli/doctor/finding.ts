/** The finding of a check: nothing, a warning, or an error. */
export type Level = 'ok' | 'warning' | 'error';

export interface Finding {
  /** The checked thing. */
  check:
    | 'configuration'
    | 'files'
    | 'ports'
    | 'server'
    | 'clock'
    | 'tls'
    | 'disk'
    | 'wal'
    | 'schema'
    | 'integrity'
    | 'firmware'
    | 'enrollment'
    | 'certificates';
  level: Level;
  message: string;
}

/** Writes findings of one check. */
export function findings(check: Finding['check']) {
  const finding =
    (level: Level) =>
    (message: string): Finding => ({ check, level, message });
  return { ok: finding('ok'), warning: finding('warning'), error: finding('error') };
}

/** Bytes as people read them. */
export function size(bytes: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const shown = bytes / 1024 ** power;
  return `${power === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${units[power]}`;
}
