/** What is measured, how it is judged, and how it is printed. */

/** One line of the results. */
export interface Row {
  what: string;
  ours: number;
  unit: string;
  /** What somebody else takes or does in the same run, in the same unit. */
  peer?: { name: string; value: number };
  /** What is promised: of the value itself, or of its ratio to the peer's. */
  figure?: { atLeast?: number; below?: number; ofPeer?: number; mostOfPeer?: number };
  /** With how many devices, where the same is measured with several numbers of them. */
  devices?: number;
}

/** The time below which a share of them lies. */
export function at(times: number[], share: number): number {
  const sorted = Float64Array.from(times).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function median(values: number[]): number {
  return at(values, 0.5);
}

export function described(times: number[]): string {
  const columns = [0.5, 0.95, 0.99].map((share) => at(times, share).toFixed(2).padStart(8));
  return `p50 ${columns[0]}  p95 ${columns[1]}  p99 ${columns[2]} ms  (${times.length})`;
}

/** Whether the figure is met; undefined where there is none, or its peer was not measured. */
export function isMet({ ours, peer, figure }: Row): boolean | undefined {
  if (!figure) return undefined;
  const { atLeast, below, ofPeer, mostOfPeer } = figure;
  if ((ofPeer !== undefined || mostOfPeer !== undefined) && !peer) return undefined;
  if (atLeast !== undefined && ours < atLeast) return false;
  if (below !== undefined && ours >= below) return false;
  if (!peer) return true;
  const ratio = ours / peer.value;
  return (ofPeer === undefined || ratio >= ofPeer) && (mostOfPeer === undefined || ratio <= mostOfPeer);
}

/** The cells of a row: what, figure, ours, the peer's, the ratio, met or not; on a busy machine it says so. */
export function cells(row: Row, isBusy = false): string[] {
  const { what, ours, unit, peer, figure, devices } = row;
  const wanted = [
    figure?.atLeast !== undefined && `≥ ${shown(figure.atLeast)} ${unit}`,
    figure?.below !== undefined && `< ${shown(figure.below)} ${unit}`,
    figure?.ofPeer !== undefined && `≥ ${figure.ofPeer} × ${peer?.name ?? 'peer'}`,
    figure?.mostOfPeer !== undefined && `≤ ${figure.mostOfPeer} × ${peer?.name ?? 'peer'}`,
  ].filter((part) => part !== false);
  const verdict = isMet(row);
  return [
    devices === undefined ? what : `${what}, ${shown(devices)} devices`,
    wanted.join('; '),
    `${shown(ours)} ${unit}`,
    peer ? `${peer.name} ${shown(peer.value)}` : '',
    peer ? (ours / peer.value).toFixed(2) : '',
    [verdict === undefined ? (figure ? 'not judged' : '') : verdict ? 'met' : 'NOT met', isBusy ? 'BUSY' : '']
      .filter((word) => word !== '')
      .join(', '),
  ];
}

/** A number with three digits that count, thousands apart. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const digits = value === 0 || Number.isInteger(value) ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const [whole = '', part] = value.toFixed(Math.min(3, digits)).split('.');
  return whole.replace(/\B(?=(\d{3})+$)/g, ',') + (part === undefined ? '' : `.${part}`);
}

/** Rows of cells, as wide as they need. */
export function aligned(lines: string[][]): string[] {
  const widths = (lines[0] ?? []).map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
