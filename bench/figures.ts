/** Numbers as they are printed. */

/** The time below which a share of them lies. */
export function at(times: number[], share: number): number {
  const sorted = Float64Array.from(times).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export function described(times: number[]): string {
  const columns = [0.5, 0.99].map((share) => at(times, share).toFixed(2).padStart(8));
  return `p50 ${columns[0]}  p99 ${columns[1]} ms  (${times.length})`;
}

export function verdict(what: string, value: number, unit: string, figure: number): void {
  const judged = value < figure ? 'within' : 'NOT within';
  console.log(`${what}: ${value.toFixed(1)} ${unit}, ${judged} the figure of ${figure} ${unit}`);
}

/** How many others use the machine beside what is measured: figures of a busy machine say little. */
export function sayLoad(loadAverage: readonly number[], cores: number): void {
  const [load = 0] = loadAverage;
  console.log(`load of the machine at the start: ${load.toFixed(1)} on ${cores} cores${load > 1 ? ' (BUSY)' : ''}\n`);
}
