/** The lines of a chart are told apart by their dashes as well as by their colours. */

/** Pixels that are drawn and left out by turns, of each line. */
export const dashes: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2]];

/** A piece of a line, to be found in the chart. */
export function Swatch({ line }: { line: number }) {
  return (
    <svg class="swatch" viewBox="0 0 26 6" aria-hidden="true">
      <path d="M0 3h26" stroke={`var(--line-${line + 1})`} stroke-dasharray={dashes[line]?.join(' ')} />
    </svg>
  );
}
