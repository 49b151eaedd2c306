/** The results of a job as files: one for all units, or a ZIP of one for each, made as they are sent. */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import yazl from 'yazl';
import { spreadsheetCell } from '../../core/formats/spreadsheets.ts';
import type { FlashFormat, Label, Unit } from '../provisioning/unit.ts';
import { flashFile } from './formats.ts';
import type { Drawing, LabelAnswer } from './label-drawer.ts';
import { labelSheet } from './labels.ts';

export const resultFormats = ['csv', 'ndjson', 'json', 'env', 'c-header', 'esp-nvs-csv'] as const;
export type ResultFormat = (typeof resultFormats)[number];
export const labelFormats = ['svg', 'png', 'html'] as const;
export type LabelFormat = (typeof labelFormats)[number];

type Draw = (drawing: Drawing, label: Label) => Promise<LabelAnswer>;

/** What is sent. */
export interface Download {
  type: string;
  /** Of the file, without a dot. */
  extension: string;
  body: Readable;
}

export const fileTypes = [
  'text/csv',
  'application/x-ndjson',
  'application/json',
  'application/zip',
  'text/html',
] as const;

/** The units in a format. */
export function resultFile(format: ResultFormat, units: AsyncIterable<Unit>): Download {
  switch (format) {
    case 'csv':
      return { type: 'text/csv; charset=utf-8; header=present', extension: 'csv', body: streamOf(csvOf(units)) };
    case 'ndjson':
      return { type: 'application/x-ndjson; charset=utf-8', extension: 'ndjson', body: streamOf(linesOf(units)) };
    case 'json':
      return { type: 'application/json; charset=utf-8', extension: 'json', body: streamOf(arrayOf(units)) };
    default:
      return zipOf(flashFiles(format, units));
  }
}

/** The labels of the units, each drawn by `draw`. */
export function labelFile(format: LabelFormat, units: AsyncIterable<Unit>, draw: Draw): Download {
  if (format === 'html')
    return { type: 'text/html; charset=utf-8', extension: 'html', body: streamOf(labelSheet(labelsOf(units), draw)) };
  return zipOf(labelFiles(format, units, draw));
}

function streamOf(pieces: AsyncIterable<string>): Readable {
  return Readable.from(pieces, { objectMode: false, highWaterMark: 1 });
}

const csvColumns = [
  'row',
  'serialNumber',
  'deviceId',
  'accountId',
  'secret',
  'associationCode',
  'claimUrl',
  'broker',
  'topics',
] as const satisfies ReadonlyArray<keyof Unit>;

async function* csvOf(units: AsyncIterable<Unit>): AsyncGenerator<string> {
  yield `${csvColumns.join(',')}\n`;
  for await (const unit of units) {
    const cells = csvColumns.map((column) =>
      column === 'topics' ? JSON.stringify(unit.topics) : String(unit[column]),
    );
    yield `${cells.map(spreadsheetCell).join(',')}\n`;
  }
}

async function* linesOf(units: AsyncIterable<Unit>): AsyncGenerator<string> {
  for await (const unit of units) yield `${JSON.stringify(unit)}\n`;
}

async function* arrayOf(units: AsyncIterable<Unit>): AsyncGenerator<string> {
  let before = '{"results":[';
  for await (const unit of units) {
    yield before + JSON.stringify(unit);
    before = ',';
  }
  yield before === ',' ? ']}' : `${before}]}`;
}

/** A file of a ZIP. */
interface Entry {
  name: string;
  content: Buffer;
}

async function* flashFiles(format: FlashFormat, units: AsyncIterable<Unit>): AsyncGenerator<Entry> {
  for await (const unit of units) {
    const { extension, content } = flashFile(format, unit);
    yield { name: `${nameOf(unit)}.${extension}`, content: Buffer.from(content) };
  }
}

async function* labelFiles(format: 'svg' | 'png', units: AsyncIterable<Unit>, draw: Draw): AsyncGenerator<Entry> {
  for await (const unit of units) {
    const drawn = await draw(format, labelOf(unit));
    const content =
      typeof drawn === 'string' ? Buffer.from(drawn) : Buffer.from(drawn.buffer, drawn.byteOffset, drawn.byteLength);
    yield { name: `${nameOf(unit)}.${format}`, content };
  }
}

async function* labelsOf(units: AsyncIterable<Unit>): AsyncGenerator<Label> {
  for await (const unit of units) yield labelOf(unit);
}

/** The properties of a unit that are not secret. */
function labelOf({ serialNumber, deviceId, associationCode, claimUrl }: Unit): Label {
  return { serialNumber, deviceId, associationCode, claimUrl };
}

/** `<row>-<serial>`: the row makes it the only one, whatever is left of the serial number. */
function nameOf({ row, serialNumber }: Unit): string {
  return `${row}-${serialNumber.replace(/[^A-Za-z0-9._-]+/g, '_').slice(0, 100)}`;
}

function zipOf(entries: AsyncIterable<Entry>): Download {
  const zip = new yazl.ZipFile();
  const body = zip.outputStream as Readable & NodeJS.WritableStream & { writableNeedDrain: boolean };
  const fill = async () => {
    for await (const { name, content } of entries) {
      if (body.destroyed) return;
      zip.addBuffer(content, name, { compress: false, mode: 0o100600 });
      // The archive writes one entry in a turn.
      await nextTurn();
      if (body.writableNeedDrain) await taken(body);
    }
    zip.end();
  };
  fill().catch((error) => body.destroy(error));
  return { type: 'application/zip', extension: 'zip', body };
}

/** Resolves when the reader has taken what there is, or is gone; a long archive waits very often. */
async function taken(body: Readable): Promise<void> {
  const waiting = new AbortController();
  const { signal } = waiting;
  try {
    await Promise.race([once(body, 'drain', { signal }), once(body, 'close', { signal })]);
  } finally {
    waiting.abort();
  }
}
