/** The cell that an account leaves: it lets the account be read while it works, then stops acting for it. */
import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { TouchedSeries } from '../../../db/messages/series/touched.ts';
import { invalid, PlatformError } from '../../../src/core/errors.ts';
import { slotOf } from '../../../src/core/ids.ts';
import type { CellsContext } from '../../context.ts';
import { MessagesOut, type PointRow, type SeriesRow, type StoredLog } from './messages-out.ts';
import {
  firstPage,
  type HashedRange,
  hashOf,
  type Page,
  type PagePlace,
  type PageRange,
  RegistryPages,
} from './pages.ts';
import { accountsOfSlot, removeAccounts } from './removal.ts';
import { TouchedRows } from './touched.ts';
import { runTriggers } from './triggers.ts';

/** Rows of one answer, about; reading them takes some milliseconds. */
const rowsAtOnce = 250;
const pagesAtOnce = 20;
const pointsAtOnce = 10_000;
/** Bytes of a part of a firmware file. */
const partBytes = 4 * 1024 * 1024;
/** Bytes of a row of the registry with its indexes, about. */
const bytesOfRow = 500;
/** Milliseconds without a word of the command after which a copy ends: the command has died. */
export const lapsesAfter = 15 * 60_000;
/** Milliseconds that what is under way may take to end; the account waits for so long at most. */
const patience = 1000;

/** Messages that have been stored in the order of their numbers. `isRoundOver` says that all that there was has been read. */
export interface MessagesChunk {
  series: (Omit<SeriesRow, 'id'> & { points: PointRow[] })[];
  logs: StoredLog[];
  isRoundOver: boolean;
}

/** How many points and log entries have been read since the begin. */
export interface Amounts {
  points: number;
  logs: number;
}

/** What accounts take on the disk. */
export interface Bytes {
  messages: number;
  all: number;
}

interface Copy {
  move: string;
  lapse: NodeJS.Timeout;
  accounts: string[];
  pages: RegistryPages;
  touched: TouchedRows;
  out: MessagesOut;
  chunks: AsyncGenerator<MessagesChunk, void>;
  /** What has been read, of all up to the number `end`. */
  sent: Amounts & { end: number };
}

/** At most one slot leaves at a time. */
export class MoveSource {
  readonly #ctx: CellsContext;
  #copy: Copy | undefined;

  constructor(ctx: CellsContext) {
    this.#ctx = ctx;
  }

  /** Begins to copy an account, and all others of its slot; an earlier copy ends. */
  async beginCopy(
    accountId: string,
    move: string,
    names: { from: string; to: string },
  ): Promise<{ accounts: string[]; bytes: Bytes }> {
    const { config, messages, gate, registry } = this.#ctx;
    const accounts = await accountsOfSlot(registry, slotOf(accountId));
    if (!accounts.includes(accountId)) throw new PlatformError('notFound', { message: 'The account is not here.' });
    if (accounts.some((id) => gate.isAway(id)))
      throw invalid('accountId', 'is on its way already: it has to be taken back first');
    this.endCopy();
    const pages = new RegistryPages(join(config.dataDir, 'registry.db'), accounts);
    const out = new MessagesOut(join(config.dataDir, 'messages.db'), accounts, pages.own().bridges);
    const sent = { points: 0, logs: 0, end: 0 };
    const touched = await TouchedRows.watchTables(registry, pages.watched);
    const lapse = setTimeout(() => this.endCopy(), lapsesAfter).unref();
    this.#copy = { move, lapse, accounts, pages, touched, out, sent, chunks: this.#chunks(out, sent) };
    this.#names = names;
    gate.copying(accounts);
    messages.touched.watchAccounts(new Set(accounts));
    // What purges or expires stops at its next step.
    await gate.whenRested(patience);
    return { accounts, bytes: await this.#bytesOf(accounts, move) };
  }

  #names = { from: '', to: '' };

  /** About what the accounts take on the disk. */
  async #bytesOf(accounts: readonly string[], move: string): Promise<Bytes> {
    const { messages } = this.#ctx;
    const held = new Map((await messages.heldByAccount()).map(({ accountId, bytes }) => [accountId, bytes]));
    const ofMessages = accounts.reduce((sum, id) => sum + (held.get(id) ?? 0), 0);
    const rows = Object.values(this.#demand(move).pages.counts()).reduce((sum, count) => sum + count, 0);
    const files = (await this.files(move)).reduce((sum, { bytes }) => sum + bytes, 0);
    return { messages: ofMessages, all: ofMessages + rows * bytesOfRow + files };
  }

  /** Ends a copy, without a word about where the accounts are. */
  endCopy(): void {
    const copy = this.#copy;
    if (!copy) return;
    this.#copy = undefined;
    clearTimeout(copy.lapse);
    this.#ctx.gate.copying([]);
    this.#ctx.messages.touched.watchAccounts(new Set());
    copy.pages.close();
    copy.out.close();
    // What another copy notes begins after this.
    copy.touched.unwatch().catch(() => {});
  }

  /** Some pages of the registry from a place on, without their rows; null is the begin, and the end. */
  async pages(move: string, place: PagePlace | null): Promise<{ pages: HashedRange[]; next: PagePlace | null }> {
    const { pages } = this.#demand(move);
    const read: HashedRange[] = [];
    let next: PagePlace | undefined = place ?? firstPage;
    while (next && read.length < pagesAtOnce) {
      const found: ReturnType<RegistryPages['read']> = pages.read(next, rowsAtOnce);
      const { rows, ...range } = found.page;
      read.push({ ...range, hash: hashOf(rows) });
      next = found.next;
      await nextTurn();
      this.#demand(move);
    }
    return { pages: read, next: next ?? null };
  }

  /**
   * The rows of the registry that were written since the last call, or the begin, as they are now; of a row that was deleted
   * the key alone. Null when that is too much, or not known: then all pages have to be compared.
   */
  async touched(move: string): Promise<{ pages: Page[] | null }> {
    const touched = await this.#demand(move).touched.takeRows();
    if (!touched) return { pages: null };
    const pages: Page[] = [];
    for (const page of this.#demand(move).pages.touched(touched, rowsAtOnce)) {
      pages.push(page);
      await nextTurn();
      this.#demand(move);
    }
    return { pages };
  }

  /** How many rows each table of the registry has, and which devices are connected. */
  counts(move: string) {
    const { pages } = this.#demand(move);
    return { rows: pages.counts(), connected: pages.connected() };
  }

  /** A page with its rows. */
  page(move: string, range: PageRange): Page {
    return this.#demand(move).pages.range(range);
  }

  /** The next messages: first all that there are, then round by round what has come since. */
  async messages(move: string): Promise<MessagesChunk> {
    const { value } = await this.#demand(move).chunks.next();
    if (!value) throw new Error('The copy has ended.');
    return value;
  }

  /** What bridges have still to deliver or keep, after a number. */
  outbox(move: string, after: number) {
    return this.#demand(move).out.outbox(after, rowsAtOnce);
  }

  /** Stored sessions and retained messages. */
  sessions(move: string) {
    return this.#demand(move).out.mqtt();
  }

  /** Firmware contents by their hash, and uploads under way by their name, with their sizes. */
  async files(move: string): Promise<{ name: string; isWhole: boolean; bytes: number }[]> {
    const { contents, uploads } = this.#demand(move).pages.own();
    const files: { name: string; isWhole: boolean; bytes: number }[] = [];
    for (const [isWhole, names] of [
      [true, contents],
      [false, uploads],
    ] as const)
      for (const name of names) {
        const about = await stat(this.#pathOf(name, isWhole)).catch(() => undefined);
        if (about) files.push({ name, isWhole, bytes: about.size });
      }
    return files;
  }

  /** A part of a firmware file. */
  async file(move: string, name: string, isWhole: boolean, from: number): Promise<Buffer> {
    const { contents, uploads } = this.#demand(move).pages.own();
    if (!(isWhole ? contents : uploads).includes(name)) throw new PlatformError('notFound');
    const file = await open(this.#pathOf(name, isWhole), 'r');
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(partBytes), 0, partBytes, from);
      return buffer.subarray(0, bytesRead);
    } finally {
      await file.close();
    }
  }

  /**
   * Stops acting for the accounts. When it resolves, all that was acknowledged can be read, and no start of this server acts
   * for them again before `resume`. Rejects with 503 when what is under way takes too long; the accounts then go on.
   */
  async pause(move: string): Promise<void> {
    const { accounts } = this.#demand(move);
    const { audit, bridges, broker, messages, gate } = this.#ctx;
    const held = new Set(accounts);
    gate.holdAccounts(accounts);
    try {
      const until = performance.now() + patience;
      const ended = await Promise.all([
        gate.whenAnswered(accounts, patience),
        broker.handover.whenAnswered(held, patience),
      ]);
      if (ended.includes(false) || !(await gate.whenRested(until - performance.now())))
        throw new PlatformError('stopping', { message: 'What is under way did not end in time. Try again.' });
      await audit.flush();
      await broker.handover.flush();
      for (const accountId of accounts) bridges.endOf(accountId);
      await messages.proveWritable();
      this.#demand(move);
      gate.recordMove(accounts, { move, accounts, state: 'away', ...this.#names });
    } catch (error) {
      await this.#actAgain(accounts);
      throw error;
    } finally {
      gate.releaseAccounts(accounts);
    }
  }

  /** Acts for the accounts again. The other cell must have let go of them for good before. */
  async resume(accountId: string): Promise<{ accounts: string[] }> {
    const { gate } = this.#ctx;
    const record = gate.recordOf(accountId);
    this.endCopy();
    if (record?.state !== 'away') return { accounts: [] };
    gate.holdAccounts(record.accounts);
    gate.recordMove(record.accounts, undefined);
    await this.#actAgain(record.accounts);
    return { accounts: record.accounts };
  }

  async #actAgain(accounts: readonly string[]): Promise<void> {
    const { audit, broker, gate } = this.#ctx;
    await runTriggers(this.#ctx, accounts);
    await audit.flush();
    await broker.handover.closeConnections(new Set(accounts));
    gate.dismissWaiting(accounts);
  }

  /** The accounts count in the other cell: clients are sent there. */
  async releaseMove(move: string): Promise<void> {
    const { accounts } = this.#demandAway(move);
    await this.#ctx.broker.handover.endConnections(new Set(accounts));
    this.#ctx.audit.forgetAccounts(accounts);
    this.#ctx.gate.dismissWaiting(accounts);
  }

  /** Removes what is left of the accounts, which count in the other cell. */
  async removeMoved(move: string): Promise<Amounts> {
    const { accounts } = this.#demandAway(move);
    const copy = this.#copy;
    if (copy) {
      const { end } = copy.sent;
      const stored = { points: copy.out.countPoints(end), logs: copy.out.countLogs(end) };
      if (stored.points !== copy.sent.points || stored.logs !== copy.sent.logs)
        throw invalid('move', `has copied ${JSON.stringify(copy.sent)}, and there are ${JSON.stringify(stored)}`);
    }
    this.endCopy();
    await this.releaseMove(move);
    await removeAccounts(this.#ctx, accounts);
    this.#ctx.gate.recordMove(accounts, undefined);
    return copy?.sent ?? { points: 0, logs: 0 };
  }

  async *#chunks(out: MessagesOut, sent: Copy['sent']): AsyncGenerator<MessagesChunk, void> {
    const { messages } = this.#ctx;
    await messages.proveWritable();
    let end = out.end;
    const first = end;
    /** Up to which number the points of a series have been read. */
    const read = new Map<number, number>();
    let logsRead = 0;
    let chunk = emptyChunk();
    const points = async function* (series: SeriesRow, since: number): AsyncGenerator<MessagesChunk, void> {
      const from = read.get(series.id) ?? (since === Number.NEGATIVE_INFINITY ? 0 : first);
      for (let [time, after] = [Math.max(since, -8.64e15), 0]; ; ) {
        const rows = out.points({ series: series.id, time, after, from, to: end, limit: pointsAtOnce });
        if (rows.length > 0) {
          const { id: _, ...key } = series;
          chunk.series.push({ ...key, points: rows });
          sent.points += rows.length;
        }
        if (sizeOf(chunk) >= pointsAtOnce) {
          yield chunk;
          chunk = emptyChunk();
        }
        const last = rows.at(-1);
        if (!last || rows.length < pointsAtOnce) break;
        [time, after] = [last[0], last[1]];
      }
      read.set(series.id, end);
    };
    const logs = async function* (): AsyncGenerator<MessagesChunk, void> {
      for (;;) {
        const rows = out.logs(logsRead, end, pointsAtOnce / 10);
        chunk.logs.push(...rows);
        sent.logs += rows.length;
        const last = rows.at(-1);
        if (!last) break;
        logsRead = last.sequence;
        yield chunk;
        chunk = emptyChunk();
      }
      logsRead = end;
    };
    for (const [place, series] of out.series().entries()) {
      if (place % 100 === 99) await nextTurn();
      yield* points(series, Number.NEGATIVE_INFINITY);
    }
    yield* logs();
    for (;;) {
      sent.end = end;
      yield { ...chunk, isRoundOver: true };
      chunk = emptyChunk();
      const touched: TouchedSeries[] = messages.touched.takeSeries();
      // What was given before is committed after this, so its series have been named.
      await messages.proveWritable();
      end = out.end;
      for (const { since, ...key } of touched) {
        const series = out.seriesOf(key);
        if (series) yield* points(series, since);
      }
      yield* logs();
    }
  }

  #pathOf(name: string, isWhole: boolean): string {
    const { firmware } = this.#ctx;
    return isWhole ? firmware.pathOf(name) : firmware.partialPath(name);
  }

  #demand(move: string): Copy {
    const copy = this.#copy;
    if (copy?.move !== move) throw invalid('move', 'is not under way here');
    copy.lapse.refresh();
    return copy;
  }

  #demandAway(move: string) {
    const record = this.#ctx.gate.records.find((one) => one.move === move);
    if (record?.state !== 'away') throw invalid('move', 'has not taken any account away from here');
    return record;
  }
}

/** Proves that two cells have the same sealing key, without showing it. */
export function proofOf({ sealing }: Pick<CellsContext, 'sealing'>, move: string): string {
  return createHash('sha256').update(sealing.digest('move', move)).digest('hex');
}

function emptyChunk(): MessagesChunk {
  return { series: [], logs: [], isRoundOver: false };
}

function sizeOf({ series, logs }: MessagesChunk): number {
  // Each series costs something, however few its points are.
  return series.reduce((sum, { points }) => sum + points.length + 10, 0) + logs.length * 10;
}
