/** Chunks of units by provisioning jobs: asked for, awaited, written, and only then confirmed. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Unit } from '../../src/factory/provisioning/unit.ts';
import { refused, trouble, UsageError } from '../usage.ts';
import { type Answer, type Client, reasonOf } from './client.ts';
import type { Chunk, ChunkState, FailedUnit } from './journal.ts';
import { deliver, flagsOf, isOfAnother, type Line, newKey, ofAnother } from './line.ts';

interface Job {
  id: string;
  state: string;
  created: string;
  dryRun: boolean;
  total: number;
  done: number;
  failed: number;
  skipped: number;
  reason: string | null;
  confirmed: string | null;
}

interface JobRow {
  row: number;
  serialNumber: string;
  state: string;
  deviceId: string | null;
  errors: Array<{ code?: number; column?: string; message: string }> | null;
}

/** Rows that the server has gone through so far. */
export type Progress = (gone: number) => void;

const firstLook = 50;
const maxPollInterval = 1000;
const ndjson = 'application/x-ndjson';
/** How far the clocks of a line and its server may be apart. */
const wrongClock = 24 * 60 * 60 * 1000;

/**
 * Brings a chunk to its end, from wherever it stands. Units that its job cannot give any more are left as chunks of their
 * own in the journal, one by one. @throws Ending 3, 4; UsageError when the server takes the rows not at all.
 */
export async function runChunk(line: Line, chunk: ChunkState, progress: Progress): Promise<FailedUnit[]> {
  const { client, journal } = line;
  if (chunk.state === 'written') {
    await confirm(line, chunk);
    return [];
  }
  const id = chunk.jobId ?? (await (isOfAnother(client, chunk) ? findOrBegin : beginJob)(line, chunk));
  const known = await client.call('GET', `/provisioning/jobs/${id}`);
  if (known.status === 403 || known.status === 404) throw jobOfAnother(id, known);
  const job = await untilEnded(client, id, progress);
  const failed = await failedRows(client, job, chunk);
  if (job.done === 0) {
    await journal.append({ type: 'written', key: chunk.key, done: [], failed });
    await journal.append({ type: 'confirmed', key: chunk.key });
    return failed;
  }
  const answer = await client.call('GET', `/provisioning/jobs/${id}/results?format=ndjson`);
  if (answer.status === 410) return recover(line, chunk, job, failed);
  if (answer.status === 403 || answer.status === 404) {
    if (line.takesOver) return recover(line, chunk, job, failed);
    throw jobOfAnother(id, answer);
  }
  await deliver(line, chunk, readResults(job, answer), failed);
  await confirm(line, chunk);
  return failed;
}

function jobOfAnother(id: string, answer: Answer): Error {
  return ofAnother(`Job ${id} (${reasonOf(answer)}) was`, '--take-over and ');
}

/** The job of rows that were asked for with another token, where its answer was lost; where there is none, it is begun. */
async function findOrBegin(line: Line, chunk: ChunkState): Promise<string> {
  const { client, journal, takesOver } = line;
  const [first] = chunk.rows;
  if (!takesOver || client.caller.isStation)
    throw ofAnother(`${chunk.rows.length} rows, ${first?.serialNumber} first, were`, '--take-over and ');
  for await (const job of jobsSince(client, Date.parse(chunk.time) - wrongClock)) {
    if (!(await isJobOf(client, chunk, job))) continue;
    await journal.append({ type: 'job', key: chunk.key, jobId: job.id });
    return job.id;
  }
  return beginJob(line, chunk);
}

/** Jobs that make units, the newest first. */
async function* jobsSince(client: Client, time: number): AsyncGenerator<Job> {
  const pageSize = 1000;
  for (let page = 1; ; page += 1) {
    const query = `accountId=${client.accountId}&action=provision&pageSize=${pageSize}&page=${page}`;
    const answer = await client.call('GET', `/provisioning/jobs?${query}`);
    if (answer.status === 416) return;
    if (answer.status !== 200) throw refused(`The jobs cannot be read: ${reasonOf(answer)}`);
    const { results } = (JSON.parse(answer.text) as { jobs: { results: Job[] } }).jobs;
    for (const job of results) {
      if (Date.parse(job.created) < time) return;
      yield job;
    }
    if (results.length < pageSize) return;
  }
}

async function isJobOf(client: Client, { rows }: Chunk, job: Job): Promise<boolean> {
  if (job.dryRun || job.total !== rows.length) return false;
  let seen = 0;
  for await (const { row, serialNumber } of rowsOf(client, job)) {
    if (rows[row - 1]?.serialNumber !== serialNumber) return false;
    seen += 1;
  }
  return seen === rows.length;
}

/** The result of a dry run. It creates nothing and writes nothing. */
export async function tryRows(client: Client, chunk: Chunk, progress: Progress): Promise<FailedUnit[]> {
  const call = { body: bodyOf(chunk), type: ndjson };
  const answer = await client.call('POST', pathOf(chunk, 'dryRun=true'), call);
  const sentence = `The server refuses: ${reasonOf(answer)}${flagsOf(chunk)}`;
  if (answer.status === 403) throw refused(sentence);
  if (answer.status >= 300) throw new UsageError(sentence);
  const { job } = JSON.parse(answer.text) as { job: Job };
  return failedRows(client, await untilEnded(client, job.id, progress), chunk);
}

function pathOf({ template, organization }: Chunk, more: string): string {
  const query = new URLSearchParams({ ...(template && { template }), ...(organization && { organization }) });
  return `/provisioning/jobs?${[`${query}`, more].filter(Boolean).join('&')}`;
}

function bodyOf({ rows }: Chunk): string {
  return rows.map(({ serialNumber, fields }) => `${JSON.stringify({ ...fields, serialNumber })}\n`).join('');
}

/** The key makes it one job, however often it is asked for; `force` keeps it apart from jobs of other directories. */
async function beginJob({ client, journal }: Line, chunk: ChunkState): Promise<string> {
  const call = { body: bodyOf(chunk), type: ndjson, idempotencyKey: chunk.key, patience: 120_000 };
  const answer = await client.call('POST', pathOf(chunk, 'force=true'), call);
  if (answer.status < 300) {
    const { job } = JSON.parse(answer.text) as { job: Job };
    await journal.append({ type: 'job', key: chunk.key, jobId: job.id });
    return job.id;
  }
  // Refused by the first request of its key, or by this one: in both cases nothing was made of it.
  const reason = `${reasonOf(answer)}${flagsOf(chunk)}`;
  await journal.append({ type: 'dropped', key: chunk.key, reason });
  throw answer.status === 403
    ? refused(`The server refuses: ${reason}`)
    : new UsageError(`The server refuses: ${reason}`);
}

async function untilEnded(client: Client, id: string, progress: Progress): Promise<Job> {
  for (let pause = firstLook; ; pause = Math.min(maxPollInterval, 1.5 * pause)) {
    const { job } = await client.ok<{ job: Job }>('GET', `/provisioning/jobs/${id}`);
    progress(job.done + job.failed + job.skipped);
    if (job.state !== 'pending' && job.state !== 'running') return job;
    await delay(pause);
  }
}

/** All rows that are not done, with why. */
async function failedRows(client: Client, job: Job, { rows }: Chunk): Promise<FailedUnit[]> {
  const failed: FailedUnit[] = [];
  const states = job.done === job.total ? [] : ['failed', 'skipped', 'pending'];
  for (const state of states) {
    for await (const { row, errors, deviceId } of rowsOf(client, job, state)) {
      const serialNumber = rows[row - 1]?.serialNumber ?? '';
      const said = (errors ?? []).map(({ column, message }) => [column, message].filter(Boolean).join(' '));
      if (state === 'skipped' && deviceId !== null) said.push(`It is device ${deviceId}.`);
      const reason = said.join('; ').replaceAll('.; ', '. ') || job.reason || `The job is ${job.state}.`;
      failed.push({ serialNumber, reason, code: errors?.find(({ code }) => code !== undefined)?.code });
    }
  }
  return failed;
}

/** The rows in one state, or all. */
async function* rowsOf(client: Client, { id }: Job, state?: string): AsyncGenerator<JobRow> {
  const pageSize = 1000;
  for (let page = 1; ; page += 1) {
    const path = `/provisioning/jobs/${id}/rows?${state ? `state=${state}&` : ''}pageSize=${pageSize}&page=${page}`;
    const answer = await client.call('GET', path);
    // A page past the end.
    if (answer.status === 416) return;
    if (answer.status !== 200) throw refused(`The rows of job ${id}: ${reasonOf(answer)}`);
    const { results } = (JSON.parse(answer.text) as { rows: { results: JobRow[] } }).rows;
    yield* results;
    if (results.length < pageSize) return;
  }
}

function readResults(job: Job, answer: Answer): Unit[] {
  if (answer.status !== 200) throw trouble(`The results of job ${job.id}: ${reasonOf(answer)}`);
  const lines = answer.text.split('\n').filter((line) => line !== '');
  if (lines.length !== job.done) throw trouble(`Job ${job.id} has made ${job.done} units, and gives ${lines.length}.`);
  return lines.map((line) => JSON.parse(line) as Unit);
}

/** Tells the server to forget the results; those of another token cannot be, and its units have their files all the same. */
async function confirm({ client, journal, printLine }: Line, { key, jobId }: ChunkState): Promise<void> {
  const answer = await client.call('POST', `/provisioning/jobs/${jobId}/results/confirm`);
  const isOfAnotherToken = answer.status === 403 || answer.status === 404;
  // Gone already is as good as confirmed now.
  if (answer.status >= 300 && answer.status !== 410 && !isOfAnotherToken)
    throw trouble(`Job ${jobId} cannot be confirmed: ${reasonOf(answer)}`);
  if (isOfAnotherToken)
    printLine(
      `Job ${jobId} was made with another token: anyone who has that can read its results until 24 hours after its end.`,
    );
  await journal.append({ type: 'confirmed', key });
}

/** The results are gone before they were written: nobody else has them, so each device gets a new secret. */
async function recover({ client, journal }: Line, chunk: ChunkState, job: Job, failed: FailedUnit[]) {
  const isTaken = job.confirmed !== null;
  const chunks: Chunk[] = [];
  for await (const { row, deviceId } of rowsOf(client, job, 'done')) {
    const unit = chunk.rows[row - 1];
    if (!unit) continue;
    const { serialNumber } = unit;
    if (isTaken || deviceId === null)
      failed.push({ serialNumber, reason: `Its secret was fetched elsewhere. It is device ${deviceId}.` });
    else chunks.push({ ...newKey(client), by: 'unit', rows: [{ ...unit, deviceId }] });
  }
  await journal.append({ type: 'recover', key: chunk.key, chunks, failed });
  return failed;
}
