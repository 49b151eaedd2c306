/** How commands print what people and programs read. */

/** JSON on a line of its own, for programs. */
export function printJson(shown: unknown): void {
  process.stdout.write(`${JSON.stringify(shown)}\n`);
}

/** Rows below headings, in columns; without rows nothing. */
export function printTable(headings: readonly string[], rows: ReadonlyArray<readonly string[]>): void {
  if (rows.length > 0) printColumns([headings, ...rows]);
}

/** Names and values, one pair a line. */
export function printPairs(pairs: ReadonlyArray<readonly [name: string, value: string]>): void {
  printColumns(pairs.map(([name, value]) => [`${name}:`, value]));
}

/** Text of a device or a person cannot move the cursor, or change what a terminal shows. */
export function inOneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a terminal obeys.
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

/** "3 minutes ago"; without a time, "never". */
export function ago(time: string | null | undefined, now = Date.now()): string {
  if (!time) return 'never';
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  for (const [unit, size] of units) if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}s ago`;
  return 'just now';
}

const units = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
  ['second', 1],
] as const;

function printColumns(rows: ReadonlyArray<readonly string[]>): void {
  const lines = rows.map((row) => row.map(inOneLine));
  const widths = lines.reduce<number[]>((most, row) => row.map((cell, n) => Math.max(cell.length, most[n] ?? 0)), []);
  for (const row of lines)
    process.stdout.write(
      `${row
        .map((cell, n) => cell.padEnd(widths[n] ?? 0))
        .join('  ')
        .trimEnd()}\n`,
    );
}
