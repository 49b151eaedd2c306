/** The rows that an engineer gives, and the rows that come back as failed. */
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { parse } from 'csv-parse/sync';
import { csvOptionsOf } from '../../src/core/formats/csv-files.ts';
import { normalizeSerialNumber, serialNumberFault } from '../../src/core/formats/serial-numbers.ts';
import { csvCell } from '../../src/core/formats/spreadsheets.ts';
import { UsageError } from '../usage.ts';

/** A row of the CSV file; `line` is where it is, from 1. */
export interface CsvRow {
  line: number;
  serialNumber: string;
  /** All other columns that are not empty. */
  fields: Record<string, string>;
  cells: string[];
}

export interface Csv {
  /** Between its columns. */
  separator: string;
  columns: string[];
  rows: CsvRow[];
}

/** Added to rows that failed; the file may be given again as it is. */
const reasonColumn = 'failedBecause';

/** @throws UsageError for a file that cannot be read, is no CSV in UTF-8, has no column `serialNumber`, or has no rows. */
export function readUnits(path: string): Csv {
  const {
    separator,
    records: [header, ...records],
  } = readRecords(path);
  const columns = header?.record ?? [];
  const place = columns.indexOf('serialNumber');
  if (place < 0) throw new UsageError(`${path} has no column serialNumber in its first line.`);
  if (records.length === 0) throw new UsageError(`${path} has a header but no units.`);
  const twice = columns.find((name, at) => name !== '' && columns.indexOf(name) !== at);
  if (twice !== undefined) throw new UsageError(`${path} has the column ${twice} twice.`);
  const rows = records.map(({ record, info }) => {
    const unnamed = columns.findIndex((name, at) => name === '' && record[at]);
    if (unnamed >= 0)
      throw new UsageError(
        `${path} has a value in column ${unnamed + 1}, line ${info.lines}; that column has no name.`,
      );
    const fields = columns.flatMap((name, at) =>
      name === 'serialNumber' || name === reasonColumn || !record[at] ? [] : [[name, record[at]]],
    );
    return {
      line: info.lines,
      serialNumber: normalizeSerialNumber(record[place] ?? ''),
      fields: Object.fromEntries(fields),
      cells: record,
    };
  });
  return { separator, columns, rows };
}

function readRecords(path: string): {
  separator: string;
  records: Array<{ record: string[]; info: { lines: number } }>;
} {
  try {
    const text = readFileSync(path);
    demandUtf8(path, text);
    const head = text.subarray(0, 65_536).toString();
    const options = { ...csvOptionsOf(head), info: true, trim: true } as const;
    const records = parse(text, options) as unknown as Array<{ record: string[]; info: { lines: number } }>;
    return { separator: String(options.delimiter), records };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** @throws UsageError for another encoding. */
function demandUtf8(path: string, text: Buffer): void {
  if (!isUtf8(text)) {
    let line = 1;
    for (let start = 0; start < text.length; line += 1) {
      const end = text.indexOf(0x0a, start) + 1 || text.length;
      if (!isUtf8(text.subarray(start, end))) break;
      start = end;
    }
    throw new UsageError(`${path} is not UTF-8, line ${line}: save it as CSV in UTF-8.`);
  }
}

/** The rows that failed, with the reason as last column. Cells stay raw, because the file is given to the command again. */
export function failedCsv({ separator, columns, rows }: Csv, failed: ReadonlyMap<CsvRow, string>): string {
  const isKept = (_: string, at: number) => columns[at] !== reasonColumn;
  const lines = [[...columns.filter(isKept), reasonColumn]];
  for (const row of rows) {
    const reason = failed.get(row);
    if (reason !== undefined) lines.push([...row.cells.filter(isKept), reason]);
  }
  return toCsv(lines, separator);
}

/** The index of units and their files, for scripts. */
export function indexCsv(units: Iterable<{ serialNumber: string; deviceId: string; file: string }>): string {
  const lines = [...units].map(({ serialNumber, deviceId, file }) => [serialNumber, deviceId, file]);
  return toCsv([['serialNumber', 'deviceId', 'file'], ...lines]);
}

function toCsv(lines: string[][], separator = ','): string {
  return lines.map((line) => `${line.map((cell) => csvCell(cell, separator)).join(separator)}\n`).join('');
}

/** Rows that need not be asked for: without a serial number, or with one that stands further up. */
export function judgeRows({ rows }: Csv): { good: CsvRow[]; bad: Map<CsvRow, string> } {
  const first = new Map<string, number>();
  const bad = new Map<CsvRow, string>();
  const good: CsvRow[] = [];
  for (const row of rows) {
    const earlier = first.get(row.serialNumber);
    const fault = serialNumberFault(row.serialNumber);
    if (row.serialNumber === '') bad.set(row, 'serialNumber is empty');
    else if (fault !== undefined) bad.set(row, `serialNumber ${fault}`);
    else if (earlier !== undefined) bad.set(row, `serialNumber is on line ${earlier} too`);
    else {
      first.set(row.serialNumber, row.line);
      good.push(row);
    }
  }
  return { good, bad };
}
