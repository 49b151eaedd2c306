/** The rows of a job as they come in: CSV, NDJSON or `{"rows":[...]}`, read in slices as they arrive. */
import { createHash } from 'node:crypto';
import { pipeline } from 'node:stream/promises';
import { demandKnown, failureOf, invalid, PlatformError } from '../../core/errors.ts';
import { csvOptionsOf } from '../../core/formats/csv-files.ts';
import { isNestedDeeply } from '../../core/formats/json-size.ts';
import { nearName } from '../../core/formats/near-names.ts';
import { normalizeSerialNumber } from '../../core/formats/serial-numbers.ts';
import { findUnstorable, unstorable } from '../../core/formats/unstorable.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';

export const maxRows = 50_000;
/** Bytes of a body, and characters of a row as JSON. */
export const maxBytes = 32 * 1024 * 1024;
const maxRowLength = 65_536;
/** Levels of a body as JSON: no text is expensive to check. */
const deepest = 64;
/** Characters that are looked at in one go. */
const pieceSize = 16_384;

export type RowValues = Record<string, unknown>;

/** A row as it is stored: what it gives, and the row before it that has the same serial number. */
export interface StoredRow {
  values: RowValues;
  sameAs?: number;
}

/** The rows of a body, each as the JSON of a StoredRow. */
export class RowsIn {
  readonly rows: string[] = [];
  readonly #columns: ReadonlySet<string>;
  readonly #serials = new Map<string, number>();
  readonly #hash = createHash('sha256');
  #digest: string | undefined;

  constructor(columns: ReadonlySet<string>) {
    this.#columns = columns;
  }

  /** @throws PlatformError 400/106 for an unknown column, a row that is too long, and one too many. */
  add(given: RowValues): void {
    const row = this.rows.length + 1;
    const values = { ...given };
    if (typeof given.serialNumber === 'string') values.serialNumber = normalizeSerialNumber(given.serialNumber);
    if (row > maxRows) throw invalid('rows', `must be at most ${maxRows}`);
    for (const name of Object.keys(values)) this.demandColumn(name, row);
    const { serialNumber } = values;
    const sameAs = typeof serialNumber === 'string' ? this.#serials.get(serialNumber) : undefined;
    if (typeof serialNumber === 'string' && sameAs === undefined) this.#serials.set(serialNumber, row);
    const stored: StoredRow = { values, ...(sameAs !== undefined && { sameAs }) };
    const text = textOf(stored, row);
    if (text.length > maxRowLength) throw invalid('rows', `row ${row} is longer than ${maxRowLength} characters`);
    this.#hash.update(`${text}\n`);
    this.rows.push(text);
  }

  /** A mistyped column costs as many units as there are rows: it is refused, and not ignored. */
  demandColumn(name: string, row: number | 'header'): void {
    if (this.#columns.has(name)) return;
    const shown = name.toWellFormed().slice(0, 100);
    const details = [
      { path: shown, message: row === 'header' ? 'is no column' : `is not a known column, in row ${row}` },
    ];
    const meant = nearName(name, this.#columns);
    const hint = `${shown}: did you mean ${meant}? ${failureOf('invalid').message}`;
    throw new PlatformError('invalid', { ...(meant !== undefined && { message: hint }), details });
  }

  /** Of all rows. */
  get digest(): string {
    this.#digest ??= this.#hash.digest('base64');
    return this.#digest;
  }

  /** For anyone who compares bodies: two with the same rows are the same. */
  toJSON(): string {
    return this.digest;
  }
}

function textOf(stored: StoredRow, row: number): string {
  let infinite = false;
  const text = JSON.stringify(stored);
  // A number that is too large would be stored as null.
  if (text.includes('null'))
    JSON.stringify(stored, (_, value: unknown) => {
      if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY) infinite = true;
      return value;
    });
  if (infinite) throw invalid('rows', `row ${row} has a number that is too large`);
  return text;
}

/** The media types of rows, and what reads each. */
const readers: Record<string, (pieces: AsyncIterable<string>, rows: RowsIn) => Promise<void>> = {
  'text/csv': readCsv,
  'application/x-ndjson': readNdjson,
  'application/json': readJson,
};
export const rowTypes = Object.keys(readers);

/**
 * Reads a body. @throws PlatformError 400/106 for what cannot be read, an unknown column, no rows or too many; 413/106.
 */
export async function readRows(
  type: string,
  source: AsyncIterable<Buffer>,
  columns: ReadonlySet<string>,
): Promise<RowsIn> {
  const rows = new RowsIn(columns);
  const reader = readers[type];
  if (!reader) throw new PlatformError('mediaType');
  await reader(piecesOf(source), rows);
  if (rows.rows.length === 0) throw invalid('rows', 'must not be empty');
  return rows;
}

/** The text of a body in small pieces; everybody else has a turn between them. */
async function* piecesOf(source: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const longWork = new LongWork();
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw new PlatformError('tooLarge');
    const text = decoded(() => decoder.decode(chunk, { stream: true }));
    for (let from = 0; from < text.length; from += pieceSize) {
      yield text.slice(from, from + pieceSize);
      await longWork.giveWay();
    }
  }
  const rest = decoded(() => decoder.decode());
  if (rest) yield rest;
}

function decoded(decode: () => string): string {
  try {
    return decode();
  } catch {
    throw invalid('body', 'must be UTF-8');
  }
}

/** The first line names the columns; an empty cell gives nothing, and neither do columns without a name. */
async function readCsv(pieces: AsyncIterable<string>, rows: RowsIn): Promise<void> {
  let names: string[] | undefined;
  const { parse } = await import('csv-parse');
  const { head, all } = await headOf(pieces);
  const parser = parse({ ...csvOptionsOf(head), max_record_size: maxRowLength });
  try {
    await pipeline(all, parser, async (records: AsyncIterable<string[]>) => {
      for await (const record of records) {
        if (names) rows.add(valuesOf(names, record, rows));
        else names = readHeader(record, rows);
      }
    });
  } catch (error) {
    const { lines } = error as Error & { lines?: number };
    if (error instanceof PlatformError || lines === undefined) throw error;
    throw invalid('body', `cannot be read as CSV, at line ${lines}`);
  }
}

/** What a text begins with, as much as a header may have, and the pieces of the whole. */
async function headOf(pieces: AsyncIterable<string>): Promise<{ head: string; all: AsyncIterable<string> }> {
  const rest = pieces[Symbol.asyncIterator]();
  let head = '';
  while (head.length < maxRowLength) {
    const { value, done } = await rest.next();
    if (done) break;
    head += value;
  }
  async function* all() {
    yield head;
    yield* { [Symbol.asyncIterator]: () => rest };
  }
  return { head, all: all() };
}

function readHeader(record: string[], rows: RowsIn): string[] {
  const names = record.map((name) => name.trim());
  for (const name of names) if (name !== '') rows.demandColumn(name, 'header');
  const twice = names.find((name, at) => name !== '' && names.indexOf(name) !== at);
  if (twice !== undefined) throw invalid(twice, 'must not be a column twice');
  if (!names.includes('serialNumber')) throw invalid('serialNumber', 'is a required column');
  return names;
}

function valuesOf(names: readonly string[], record: readonly string[], { rows }: RowsIn): RowValues {
  const values: RowValues = {};
  for (const [at, name] of names.entries()) {
    if (!record[at]) continue;
    if (name === '')
      throw invalid(
        'rows',
        `row ${rows.length + 1} has a value in column ${at + 1}, which has no name in the first line`,
      );
    values[name] = record[at];
  }
  return values;
}

/** An object in each line; empty lines are skipped. */
async function readNdjson(pieces: AsyncIterable<string>, rows: RowsIn): Promise<void> {
  let rest = '';
  for await (const piece of pieces) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') rows.add(readObject(line, rows));
    if (rest.length > maxRowLength) throw tooLong(rows);
  }
  if (rest.trim() !== '') rows.add(readObject(rest, rows));
}

/** `{"rows":[...]}`: the elements are cut out as they come, and each is parsed by itself. */
async function readJson(pieces: AsyncIterable<string>, rows: RowsIn): Promise<void> {
  const cutter = new ElementCutter('rows', (text) => rows.add(readObject(text, rows)));
  for await (const piece of pieces) {
    cutter.takePiece(piece);
    if (cutter.waiting > maxRowLength) throw tooLong(rows);
  }
  const around = parsed(cutter.around);
  const bad = findUnstorable(around);
  if (bad !== undefined) throw invalid(bad, unstorable);
  const isRows = typeof around === 'object' && around !== null && 'rows' in around && Array.isArray(around.rows);
  if (!isRows || cutter.arrays !== 1) throw invalid('body', 'must be {"rows":[...]}');
  // A property next to the rows has no effect; it may have been meant for the query, such as dryRun.
  demandKnown(around, ['rows'], 'the body');
}

function readObject(text: string, { rows }: RowsIn): RowValues {
  if (isNestedDeeply(text)) throw invalid('rows', `row ${rows.length + 1} is nested too deeply`);
  const value = parsed(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid('body', `row ${rows.length + 1} must be a JSON object`);
  return value as RowValues;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function tooLong({ rows }: RowsIn): PlatformError {
  return invalid('rows', `row ${rows.length + 1} is longer than ${maxRowLength} characters`);
}

/** Cuts the elements of the array `name` of an object out of its JSON, whatever is in them. */
class ElementCutter {
  /** The JSON without the elements, and how many such arrays it had. */
  around = '';
  arrays = 0;
  readonly #quotedName: string;
  readonly #take: (element: string) => void;
  #depth = 0;
  #inString = false;
  #escaped = false;
  #inArray = false;
  #hasElements = false;
  /** The rest of the element, or the last text of the enclosing object. */
  #text = '';

  constructor(name: string, take: (element: string) => void) {
    this.#quotedName = JSON.stringify(name);
    this.#take = take;
  }

  /** Characters that wait for the end of an element, or stand around. */
  get waiting(): number {
    return this.#text.length + this.around.length;
  }

  takePiece(piece: string): void {
    let from = 0;
    for (let at = 0; at < piece.length; at += 1) {
      const character = piece[at];
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false;
        else if (character === '\\') this.#escaped = true;
        else if (character === '"') this.#inString = false;
        continue;
      }
      if (character === '"') this.#inString = true;
      else if (character === '{' || character === '[') {
        this.#depth += 1;
        if (this.#depth > deepest) throw invalid('body', unstorable);
        if (this.#inArray || this.#depth !== 2 || character !== '[') continue;
        this.#keepText(piece.slice(from, at + 1));
        from = at + 1;
        if (!this.#isNamed()) continue;
        this.#inArray = true;
        this.#hasElements = false;
        this.arrays += 1;
      } else if (character === '}' || character === ']') {
        this.#depth -= 1;
        if (!this.#inArray || this.#depth !== 1) continue;
        this.#cut(piece.slice(from, at), this.#hasElements);
        this.#inArray = false;
        from = at;
      } else if (character === ',' && this.#inArray && this.#depth === 2) {
        this.#cut(piece.slice(from, at), true);
        this.#hasElements = true;
        from = at + 1;
      }
    }
    if (this.#inArray) this.#text += piece.slice(from);
    else this.#keepText(piece.slice(from));
  }

  #keepText(text: string): void {
    this.around += text;
  }

  /** Whether the array that begins here is the value of the name. */
  #isNamed(): boolean {
    const before = this.around.slice(0, -1).trimEnd();
    return before.endsWith(':') && before.slice(0, -1).trimEnd().endsWith(this.#quotedName);
  }

  #cut(rest: string, isElement: boolean): void {
    const text = this.#text + rest;
    this.#text = '';
    if (isElement || text.trim() !== '') this.#take(text);
  }
}
