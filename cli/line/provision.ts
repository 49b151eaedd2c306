/** `slipway provision`: from a CSV file to flash files and labels, each unit exactly once however often it is run. */
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Ending, exitCodes, refused, trouble, UsageError } from '../usage.ts';
import type { Client } from './client.ts';
import { runChunk, tryRows } from './jobs.ts';
import { type Chunk, type ChunkState, type FailedUnit, Journal } from './journal.ts';
import {
  beginAgain,
  type FileOptions,
  flashPath,
  type Line,
  lostFiles,
  newKey,
  readAddresses,
  readFileOptions,
  unitRow,
} from './line.ts';
import type { Connection } from './options.ts';
import { type Progress, startProgress } from './progress.ts';
import { runUnit } from './single.ts';
import { removePartials, writeFiles } from './unit-files.ts';
import { type Csv, type CsvRow, failedCsv, indexCsv, judgeRows, readUnits } from './units-csv.ts';
import { withClient, withLine } from './work.ts';

interface ProvisionFlags extends Connection, FileOptions {
  csv: string;
  organization: string | undefined;
  out: string | undefined;
  concurrency: number;
  /** Rows of one job: some seconds of work, so that little is repeated and many rows share a commit. */
  chunkRows: number;
  dryRun: boolean;
  again: string[];
  takeOver: boolean;
}

export async function provision(flags: ProvisionFlags): Promise<void> {
  const { out = '', concurrency, dryRun: isDryRun } = flags;
  const csv = readUnits(flags.csv);
  const files = readFileOptions({ ...flags, format: flags.format ?? (isDryRun ? 'json' : undefined) });
  if (!isDryRun && out === '') throw new UsageError('--out is missing.');
  const { good, bad } = judgeRows(csv);
  const progress = await startProgress(good.length);
  try {
    if (isDryRun) {
      const done = await doneIn(out);
      const fresh = good.filter(({ serialNumber }) => !done.has(serialNumber));
      for (const row of good) {
        const lost = done.get(row.serialNumber);
        if (lost !== undefined) bad.set(row, lostReason(lost, row.serialNumber));
      }
      return await withClient(flags, progress.printLine, async (client) => {
        await printIfNotReached(client, flags.broker, progress.printLine);
        await tryAll(client, flags, csv, fresh, bad, progress);
      });
    }
    await withLine(flags, { out, files, printLine: progress.printLine }, async (line) => {
      await removePartials(out);
      const rows = { csv, good, bad, progress, concurrency };
      await run({ ...line, takesOver: flags.takeOver }, flags, rows);
    });
  } finally {
    progress.endProgress();
  }
}

/** A dry run makes no files, so an address that units cannot use does not end it. */
async function printIfNotReached(
  client: Client,
  broker: string | undefined,
  printLine: (line: string) => void,
): Promise<void> {
  try {
    await readAddresses(client, broker);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    printLine(error.message);
  }
}

/** Code of rows that a station may no longer make: correcting the rows does not help. */
const forbidden = 21;

interface Rows {
  csv: Csv;
  good: CsvRow[];
  bad: Map<CsvRow, string>;
  progress: Progress;
  concurrency: number;
}

async function run(line: Line, flags: ProvisionFlags, { csv, good, bad, progress, concurrency }: Rows): Promise<void> {
  const { journal } = line;
  await beginLost(line, flags);
  const again = serialsOf(journal.begun.filter(({ by }) => by === 'unit'));
  const already = new Set([...journal.done.keys()].filter((serialNumber) => !again.has(serialNumber)));
  const before = good.filter(({ serialNumber }) => already.has(serialNumber)).length;
  progress.written(before);
  progress.made(before);
  printOthers(
    line,
    good.filter(({ serialNumber }) => already.has(serialNumber)),
  );
  const failed = new Map<string, FailedUnit>();
  const stopped: unknown[] = [];

  /** One chunk to its end; what stops it stops the run, after what others have begun. */
  const finish = async (chunk: ChunkState) => {
    const isNew = chunk.state === 'begun';
    let [gone, written] = [0, 0];
    const made = (rows: number) => {
      progress.made(rows - gone);
      gone = rows;
    };
    const telling = {
      ...line,
      written: (units: number) => {
        progress.written(units);
        written += units;
      },
    };
    const given = chunk.by === 'job' ? await runChunk(telling, chunk, made) : await runUnit(telling, chunk);
    for (const unit of given) failed.set(unit.serialNumber, unit);
    const done = chunk.rows.filter(({ serialNumber }) => journal.done.has(serialNumber)).length;
    if (isNew) progress.written(done - written);
  };
  const finishAll = async (chunks: AsyncIterable<ChunkState> | Iterable<ChunkState>) => {
    const waiting = (async function* () {
      yield* chunks;
    })();
    const work = async () => {
      for await (const chunk of { [Symbol.asyncIterator]: () => waiting }) {
        await finish(chunk).catch((error) => stopped.push(error));
        if (stopped.length > 0) return;
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
  };

  const seen = new Set<string>();
  // Continues earlier work first; a chunk whose results are gone leaves single units.
  for (let begun = journal.begun; begun.length > 0 && stopped.length === 0; begun = journal.begun) {
    for (const { rows } of begun) for (const { serialNumber } of rows) seen.add(serialNumber);
    await finishAll(begun);
  }
  if (stopped.length === 0) {
    const fresh = good.filter(({ serialNumber }) => !journal.done.has(serialNumber) && !seen.has(serialNumber));
    await finishAll(beginChunks(line, flags, fresh));
    for (let left = journal.begun; left.length > 0 && stopped.length === 0; left = journal.begun) await finishAll(left);
  }
  progress.endProgress();
  await report(line, flags, { csv, bad, failed, already, stopped });
}

/** Units that are done are not made again because a flag is another one: that is said, where the journal knows it. */
function printOthers({ journal, madeWith, printLine }: Line, rows: readonly CsvRow[]): void {
  const others = rows.filter(({ serialNumber }) => {
    const before = journal.done.get(serialNumber)?.madeWith;
    return before !== undefined && before !== madeWith;
  }).length;
  if (others > 0) printLine(`${others} done before with another --broker, --ca or --template: they stay as they are.`);
}

/** Units of `--again`, once each however often a run breaks off. @throws UsageError for one that was not made here. */
async function beginLost(line: Line, flags: ProvisionFlags): Promise<void> {
  const { journal } = line;
  const begun = serialsOf(journal.begun.filter(({ by }) => by === 'unit'));
  const units = [...new Set(flags.again)].map((serialNumber) => {
    const unit = journal.done.get(serialNumber);
    if (!unit) throw new UsageError(`--again ${serialNumber}: no such unit has been made in ${journal.directory}.`);
    return unit;
  });
  for (const unit of units) if (!begun.has(unit.serialNumber)) await beginAgain(line, unit);
}

function serialsOf(chunks: readonly Chunk[]): Set<string> {
  return new Set(chunks.flatMap(({ rows }) => rows.map(({ serialNumber }) => serialNumber)));
}

/** Chunks of rows, each in the journal before anything is asked for. */
async function* beginChunks(
  { client, journal }: Line,
  flags: ProvisionFlags,
  rows: readonly CsvRow[],
): AsyncGenerator<ChunkState> {
  for (const chunk of chunksOf(client, flags, rows)) {
    await journal.append({ type: 'chunk', ...chunk });
    const state = journal.chunks.get(chunk.key);
    if (state) yield state;
  }
}

function* chunksOf(client: Client, flags: ProvisionFlags, rows: readonly CsvRow[]): Generator<Chunk> {
  const { chunkRows: size, template, organization } = flags;
  for (let from = 0; from < rows.length; from += size) {
    const units = rows.slice(from, from + size).map(({ serialNumber, fields }) => unitRow(serialNumber, fields));
    yield { ...newKey(client), by: 'job', template, organization, rows: units };
  }
}

interface Outcome {
  csv: Csv;
  /** Rows that were not asked for. */
  bad: Map<CsvRow, string>;
  failed: Map<string, FailedUnit>;
  /** Units that were done before this run. */
  already: ReadonlySet<string>;
  stopped: unknown[];
}

/** Writes what failed and what is where, says the sum, and ends with the code for it. */
async function report(
  line: Line,
  flags: ProvisionFlags,
  { csv, bad, failed, already, stopped }: Outcome,
): Promise<void> {
  const { journal } = line;
  const reasons = new Map(bad);
  let [done, made, open] = [0, 0, 0];
  for (const row of csv.rows) {
    if (reasons.has(row)) continue;
    const unit = journal.done.get(row.serialNumber);
    const [lost] = unit ? lostFiles(line, unit) : [];
    const reason = failed.get(row.serialNumber)?.reason ?? (lost && lostReason(lost, row.serialNumber));
    if (unit && reason === undefined) {
      done += 1;
      made += already.has(row.serialNumber) ? 0 : 1;
    } else if (reason === undefined) open += 1;
    else reasons.set(row, reason);
  }
  const index = [...journal.done.values()].map((unit) => ({ ...unit, file: flashPath(line, unit.file) }));
  const files = [{ path: 'units.csv', content: indexCsv(index) }];
  if (reasons.size > 0) files.push({ path: 'failed.csv', content: failedCsv(csv, reasons) });
  else await rm(join(journal.directory, 'failed.csv'), { force: true });
  await writeFiles(journal.directory, files).catch((error: Error) => {
    stopped.push(trouble(`The files in ${journal.directory} cannot be written: ${error.message}`));
  });
  printSummary(flags, { rows: csv.rows.length, done, made, failed: reasons.size, open });
  if (stopped.length > 0) throw worst(stopped);
  if (reasons.size === 0) return;
  const sentence = `${rowCount(reasons.size)} failed: see ${join(journal.directory, 'failed.csv')}.`;
  const ended = [...failed.values()].find(({ code }) => code === forbidden);
  if (ended) throw refused(`${sentence} ${ended.reason}`);
  throw new Ending(exitCodes.failed, sentence);
}

function lostReason(path: string, serialNumber: string): string {
  return `It was made, and ${path} is not there any more; --again '${serialNumber}' gives it a new secret and files`;
}

function rowCount(count: number): string {
  return count === 1 ? '1 row' : `${count} rows`;
}

interface Sum {
  rows: number;
  /** Units of the file that are done, and how many of them by this run. */
  done: number;
  made: number;
  failed: number;
  /** Neither: the run was stopped before. */
  open: number;
}

function printSummary(flags: ProvisionFlags, sum: Sum): void {
  const { rows, done, made, failed, open } = sum;
  const sentence = `${rowCount(rows)}: ${done} done (${made} now), ${failed} failed, ${open} open`;
  process.stdout.write(`${flags.json ? JSON.stringify(sum) : sentence}\n`);
}

/** A refusal needs somebody; trouble may be over the next time. */
function worst(errors: unknown[]): unknown {
  return errors.find((error) => !(error instanceof Ending) || error.exitCode !== exitCodes.trouble) ?? errors[0];
}

/** Reasons that are said, where nothing is written. */
const maxReported = 20;

/** Units that a directory has already, each with a file of it that is lost: a run would leave them alone. */
async function doneIn(out: string): Promise<ReadonlyMap<string, string | undefined>> {
  if (out === '' || !existsSync(join(out, 'journal.ndjson'))) return new Map();
  const journal = await Journal.open(out);
  await journal.close();
  const { settings } = journal;
  return new Map(
    [...journal.done].map(([serialNumber, unit]) => [
      serialNumber,
      settings && lostFiles({ ...settings, journal }, unit)[0],
    ]),
  );
}

async function tryAll(
  client: Client,
  flags: ProvisionFlags,
  csv: Csv,
  good: readonly CsvRow[],
  bad: Map<CsvRow, string>,
  progress: Progress,
): Promise<void> {
  const failed: FailedUnit[] = [...bad].map(([{ serialNumber, line }, reason]) => ({
    serialNumber,
    reason: serialNumber === '' ? `line ${line}: ${reason}` : reason,
  }));
  for (const chunk of chunksOf(client, flags, good)) {
    failed.push(...(await tryRows(client, chunk, () => {})));
    progress.made(chunk.rows.length);
  }
  progress.endProgress();
  const sum = { dryRun: true, rows: csv.rows.length, good: csv.rows.length - failed.length, failed: failed.length };
  if (flags.json) process.stdout.write(`${JSON.stringify({ ...sum, errors: failed })}\n`);
  else {
    for (const { serialNumber, reason } of failed.slice(0, maxReported))
      progress.printLine([serialNumber, reason].filter(Boolean).join(': '));
    if (failed.length > maxReported) progress.printLine(`and ${failed.length - maxReported} more; --json has all`);
    process.stdout.write(`${rowCount(sum.rows)}: ${sum.good} could be made, ${sum.failed} could not\n`);
  }
  if (failed.length > 0) throw new Ending(exitCodes.failed, `${rowCount(failed.length)} would fail.`);
}
