/** Reads the rows of a spreadsheet or a CSV file. It runs in a worker, which loads the readers. */
import { type CellObject, CFB, parse_zip as parseParts, SSF } from '@e965/xlsx';
import { parse } from 'csv-parse/browser/esm/sync';
import { csvOptionsOf } from '../../src/core/formats/csv-files.ts';
import { TooLarge, unzip } from '../parts/formats/unzip.ts';

declare module '@e965/xlsx' {
  /** Reads the parts of a workbook, unpacked: its own types leave it out. */
  function parse_zip(parts: unknown, options: ParsingOptions): WorkBook;
}

export const maxRows = 200_000;
const maxSheetBytes = 20 * 1024 * 1024;
/** As the API takes. */
const maxTextBytes = 32 * 1024 * 1024;
/** Of the parts of a spreadsheet that are read. */
const maxUnpackedBytes = 256 * 1024 * 1024;
const maxColumns = 256;
/** Characters of all cells. */
const maxLength = 64 * 1024 * 1024;
/** Characters that say which separator a text has. */
const headLength = 65_536;

/** `line` is that of the file, from 1. */
export interface SheetRow {
  line: number;
  cells: string[];
}

export type Fault = 'tooLarge' | 'tooMany' | 'locked' | 'damaged' | 'empty' | 'notUtf8' | 'badLine' | 'rounded';
/** The first row names the columns. With a fault it says where. */
export type Sheet = { header: string[]; rows: SheetRow[] } | { fault: Fault; foreign?: string; line?: number };

/** Reads a file, or what was pasted. `foreign`: as spreadsheets of Windows write texts. */
export async function readSheet(source: Blob | string, foreign = false): Promise<Sheet> {
  if (typeof source === 'string') return readCsv(source);
  if (source.size > maxTextBytes) return { fault: 'tooLarge' };
  const bytes = await source.arrayBuffer();
  const [first, second] = new Uint8Array(bytes);
  if (first === 0xd0 && second === 0xcf) return { fault: 'locked' };
  if (first === 0x50 && second === 0x4b) return source.size > maxSheetBytes ? { fault: 'tooLarge' } : readXlsx(bytes);
  try {
    return readCsv(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    const text = new TextDecoder('windows-1252').decode(bytes);
    if (foreign) return readCsv(text);
    // UTF-16 is neither.
    if (text.includes('\0')) return { fault: 'notUtf8' };
    return { fault: 'notUtf8', foreign: text.split(/[\r\n]/).find((one) => /[^\0-\x7f]/.test(one)) ?? '' };
  }
}

function readCsv(text: string): Sheet {
  const options = { ...csvOptionsOf(text.slice(0, headLength)), info: true, trim: true, to: maxRows + 2 } as const;
  try {
    const records = parse(text, options) as unknown as { record: string[]; info: { lines: number } }[];
    return sheetOf(records.map(({ record, info }) => ({ line: info.lines, cells: record })));
  } catch (error) {
    return { fault: 'badLine', line: (error as { lines?: number }).lines ?? 1 };
  }
}

/** What is read of a spreadsheet: neither other sheets, nor links to other files, nor macros. */
const shared = /^(\[content_types\]\.xml|_rels\/\.rels|xl\/[^/]+\.xml|xl\/(_rels|persons)\/[^/]+)$/i;

async function readXlsx(zip: ArrayBuffer): Promise<Sheet> {
  try {
    const files = await unzip(zip, { wanted: (name) => shared.test(name), maxBytes: maxUnpackedBytes });
    const path = pathOfFirst(files);
    const sheet = await unzip(zip, { wanted: (name) => name === path, maxBytes: maxUnpackedBytes });
    const container = CFB.utils.cfb_new();
    for (const [name, content] of [...files, ...sheet])
      CFB.utils.cfb_add(container, name, withEmptyTexts(name, content), { unsafe: true });
    const options = {
      dense: true,
      sheets: 0,
      sheetRows: maxRows + 2,
      cellFormula: false,
      cellHTML: false,
      cellNF: true,
    };
    const book = parseParts(container, options);
    const cells: (CellObject[] | undefined)[] = book.Sheets[book.SheetNames[0] ?? '']?.['!data'] ?? [];
    const rounded = cells.findIndex((row) => row?.some(isRounded));
    if (rounded >= 0) return { fault: 'rounded', line: rounded + 1 };
    const { date1904 = false } = book.Workbook?.WBProps ?? {};
    const textsOf = (row: CellObject[] = []) => Array.from(row, (cell) => textOf(cell, date1904));
    return sheetOf(Array.from(cells, (row, at) => ({ line: at + 1, cells: textsOf(row) })));
  } catch (error) {
    return { fault: error instanceof TooLarge ? 'tooLarge' : 'damaged' };
  }
}

/** The reader passes over a shared text that is empty, and every text after it would be that of another cell. */
function withEmptyTexts(name: string, content: Uint8Array): Uint8Array {
  if (!/sharedStrings\d*\.xml$/i.test(name)) return content;
  const text = new TextDecoder().decode(content);
  return new TextEncoder().encode(text.replaceAll(/<((?:\w+:)?si)\s*\/>/g, '<$1></$1>'));
}

/** Where the first sheet is: the book names it, and its relations say where it is. */
function pathOfFirst(files: ReadonlyMap<string, Uint8Array>): string {
  const textIn = (name: RegExp) =>
    new TextDecoder().decode(files.get([...files.keys()].find((one) => name.test(one)) ?? ''));
  const [, id = ''] = /<(?:\w+:)?sheet\s[^>]*?\w+:id\s*=\s*["']([^"']+)/.exec(textIn(/^xl\/workbook\d*\.xml$/i)) ?? [];
  const relations = textIn(/^xl\/_rels\/workbook\d*\.xml\.rels$/i).match(/<(?:\w+:)?Relationship\s[^>]*>/g) ?? [];
  const own = relations.find((one) => one.includes(`"${id}"`) || one.includes(`'${id}'`)) ?? '';
  const [, target = ''] = /\bTarget\s*=\s*["']([^"']+)/.exec(own) ?? [];
  return target.startsWith('/') ? target.slice(1) : `xl/${target}`;
}

/** Spreadsheets keep 15 digits of a number: of a longer serial number the last ones are lost. */
const isRounded = (cell: CellObject | undefined) => cell?.t === 'n' && Math.abs(Number(cell.v)) >= 1e15;

/** How files name the form of dates that spreadsheets show as the country of the reader does. */
const dateOfCountry = 'm/d/yy';

/**
 * A cell as people see it. A plain number has all its digits: a serial number is not shortened to 1.2E+11. `date1904`: days are counted
 * from 1904, as older files of a Mac do.
 */
function textOf(cell: CellObject | undefined, date1904: boolean): string {
  if (!cell || cell.v === undefined) return '';
  const isPlain = cell.z === undefined || cell.z === 'General' || cell.z === '@';
  if (cell.t === 'n' && isPlain) return String(Number(Number(cell.v).toPrecision(15)));
  const date = () => dateOf(cell, date1904);
  if (cell.t === 'n') return (cell.z === dateOfCountry ? date() : (cell.w ?? date())).trim();
  return String(cell.t === 'e' ? (cell.w ?? '') : cell.v).trim();
}

/** A date whose form is that of the reader's country is written for all; a full stop in others is to be marked as text. */
function dateOf({ z, v }: CellObject, date1904: boolean): string {
  const form = z === dateOfCountry ? 'yyyy-mm-dd' : String(z).replaceAll('.', '\\.');
  return SSF.is_date(z) ? SSF.format(form, v, { date1904 }) : String(v);
}

function sheetOf(all: SheetRow[]): Sheet {
  const [first, ...rows] = all.filter(({ cells }) => cells.some((cell) => cell !== ''));
  if (!first || rows.length === 0) return { fault: 'empty' };
  if (rows.length > maxRows) return { fault: 'tooMany' };
  let length = 0;
  for (const { cells } of rows) {
    if (cells.length > maxColumns) return { fault: 'tooLarge' };
    for (const cell of cells) length += cell.length;
    if (length > maxLength) return { fault: 'tooLarge' };
  }
  const width = rows.reduce((most, { cells }) => Math.max(most, cells.length), first.cells.length);
  return { header: Array.from({ length: width }, (_, at) => first.cells[at] ?? ''), rows };
}
