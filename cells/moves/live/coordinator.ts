/** Leads the move of an account between two cells that run: asks both, and switches HAProxy. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { loadConfig } from '../../../src/core/config.ts';
import { slotOf, slotsText } from '../../../src/core/ids.ts';
import { UsageError } from '../../../src/core/usage-error.ts';
import { type Cell, type CellsConfig, contentOf, readCells, withSlotMoved } from '../../config.ts';
import { replaceFile } from '../../haproxy/files.ts';
import { askHaproxy, switchMaps } from '../../haproxy/socket.ts';
import { CellFailure, MovingCell } from './asked-cell.ts';

export interface LiveMove {
  config: string;
  to: string;
  undo: boolean;
}

/** Told before each step, for those who watch. While the account is paused, the move goes on when it has resolved. */
export type OnStep = (step: string) => void | Promise<void>;

/** Rounds after which the rest is copied while the account waits, however much it is. */
const maxRounds = 10;
/** A round that finds more than this part of what the one before has found shows that no further one would help. */
const shrinking = 0.7;
/** How often it is tried to stop the account while something is under way. */
const maxPauses = 5;

/** Where an account is, as all cells say. */
interface Places {
  /** The cell that acts for it, or has it without acting. */
  source: MovingCell | undefined;
  /** The cell that it is copied to, or has been. */
  target: MovingCell | undefined;
}

/** What it has taken. */
export interface Moved {
  accounts: string[];
  in: string;
  points: number;
  logs: number;
  seconds: number;
  /** Milliseconds in which no cell acted for the account. */
  silence: number;
}

/** Moves an account. @throws UsageError when it cannot be moved, CellFailure when a cell has failed. */
export async function moveLive(
  { config: path, to, undo }: LiveMove,
  account: string,
  onStep: OnStep = (step) => void process.stderr.write(`${step}\n`),
): Promise<Moved | { in: string; undone?: true; movedBefore?: true }> {
  const text = contentOf(path);
  const config = readCells(text, path);
  const { moveToken } = loadConfig();
  if (moveToken === undefined)
    throw new UsageError('SLIPWAY_MOVE_TOKEN is not set. It must be the same in every cell and here.');
  if (!config.cells.has(to))
    throw new UsageError(`There is no cell ${to} in ${path}. Its cells are ${[...config.cells.keys()].join(', ')}.`);
  // Before anything begins: without it the map could not be switched.
  await askHaproxy(config.public.adminSocket, 'show map');
  const cells = new Map([...config.cells.values()].map((cell) => [cell.name, cellOf(config, cell, moveToken)]));
  const work = new LiveMoving(path, config, cells, account, onStep);
  return undo ? work.undo(to) : work.move(to);
}

function cellOf({ public: { cellAuthority } }: CellsConfig, cell: Cell, token: string): MovingCell {
  return new MovingCell(cell, token, cellAuthority);
}

/** Waits for the end of all, and rejects as the first that did. */
async function together(all: readonly Promise<unknown>[]): Promise<void> {
  for (const one of await Promise.allSettled(all)) if (one.status === 'rejected') throw one.reason;
}

/** Pages of the registry without their rows, and where the next ones begin. */
interface Pages {
  pages: { hash: string; table: string; after: unknown; to: unknown }[];
  next: object | null;
}

class LiveMoving {
  readonly #path: string;
  readonly #config: CellsConfig;
  readonly #cells: ReadonlyMap<string, MovingCell>;
  readonly #account: string;
  readonly #onStep: OnStep;
  /** Whether every page of the registry was the same in both cells: from then on only rows that were written are copied. */
  #compared = false;
  /** Why the last comparison has not brought all pages. */
  #failure: unknown;

  constructor(
    path: string,
    config: CellsConfig,
    cells: ReadonlyMap<string, MovingCell>,
    account: string,
    onStep: OnStep,
  ) {
    this.#path = path;
    this.#config = config;
    this.#cells = cells;
    this.#account = account;
    this.#onStep = onStep;
  }

  async move(to: string): Promise<Moved | { in: string; movedBefore: true }> {
    const target = this.#cells.get(to) as MovingCell;
    const broken = await this.#finishOrTakeBack();
    const { source } = broken;
    if (!source)
      throw new UsageError(`No cell has the account ${this.#account}. slipway cells status shows the cells.`);
    if (source === target) {
      await this.#switch(target);
      return { in: to, movedBefore: true };
    }
    await this.#demandSame(source, target);
    return this.#copy(source, target);
  }

  /** @throws UsageError when one cell could not act for an account as the other one does. */
  async #demandSame(source: MovingCell, target: MovingCell): Promise<void> {
    const [here, there] = [await source.status(this.#account), await target.status(this.#account)];
    if (here.version !== there.version)
      throw new UsageError(
        `${source.name} has the version ${here.version} and ${target.name} ${there.version}. Upgrade the older one first.`,
      );
    if (here.topicRoot !== there.topicRoot)
      throw new UsageError(
        `SLIPWAY_TOPIC_ROOT is ${here.topicRoot} in ${source.name} and ${there.topicRoot} in ${target.name}. It must be the same.`,
      );
  }

  async undo(to: string): Promise<Moved | { in: string; undone: true }> {
    const before = await this.#places();
    const { source } = await this.#finishOrTakeBack();
    if (!source) throw new UsageError(`No cell has the account ${this.#account}.`);
    const { from } = await source.status(this.#account);
    // A move that had not come so far is taken back by now.
    if (before.target || source.name !== to || from === null) {
      await this.#switch(source);
      if (source.name !== to) return { in: source.name, undone: true };
    }
    const back = from === null ? undefined : this.#cells.get(from);
    if (!back) throw new UsageError(`${to} does not say from where the account came. Move it with --to.`);
    await this.#demandSame(source, back);
    return this.#copy(source, back);
  }

  /** Ends what an earlier call has begun. A cell that has become active stays so; otherwise the former one acts again. */
  async #finishOrTakeBack(): Promise<Places> {
    const { source, target } = await this.#places();
    if (source && target) {
      const [there, here] = [await target.status(this.#account), await source.status(this.#account)];
      if (there.state === 'here' && here.state === 'away') {
        this.#onStep(`finishing: ${target.name} acts for the account`);
        await this.#switch(target);
        await source.post('/release', { move: here.move ?? '' });
        await source.post('/clear', { move: here.move ?? '' });
        return { source: target, target: undefined };
      }
      if (there.state === 'coming') {
        this.#onStep(`taking back: ${target.name} lets go of the account`);
        await target.post('/drop', { accountId: this.#account });
        await source.post('/resume', { accountId: this.#account });
        return { source, target: undefined };
      }
      throw new UsageError(`Both ${source.name} and ${target.name} have the account ${this.#account}.`);
    }
    // The other cell knows of no move: it has been dropped there, and cannot become active.
    if (source && (await source.status(this.#account)).state === 'away')
      await source.post('/resume', { accountId: this.#account });
    return { source, target: undefined };
  }

  async #places(): Promise<Places> {
    const found: { cell: MovingCell; state: string }[] = [];
    // Every cell is asked: one that does not answer may be the one that acts.
    for (const cell of this.#cells.values()) found.push({ cell, state: (await cell.status(this.#account)).state });
    const of = (state: string) => found.filter((one) => one.state === state).map(({ cell }) => cell);
    const [here, away, coming] = [of('here'), of('away'), of('coming')];
    if (here.length > 1 || away.length > 1 || coming.length > 1)
      throw new UsageError(
        `Several cells have the account: ${[...here, ...away, ...coming].map(({ name }) => name).join(', ')}.`,
      );
    if (away[0]) return { source: away[0], target: here[0] ?? coming[0] };
    return { source: here[0], target: coming[0] };
  }

  async #copy(source: MovingCell, target: MovingCell): Promise<Moved> {
    const began = performance.now();
    const move = randomUUID();
    const names = { from: source.name, to: target.name };
    this.#onStep('copying');
    this.#compared = false;
    const accountId = this.#account;
    const left = await source.post<{ accounts: string[] }>('/leave', { accountId, move }, names);
    const { accounts } = left;
    try {
      await target.post('/come', { move }, { move, ...left, ...names });
    } catch (error) {
      if (!(error instanceof CellFailure) || error.status !== 400) throw error;
      await source.post('/resume', { accountId });
      throw new UsageError(`${target.name} cannot take the account: ${error.reason}.`);
    }
    const sent = { points: 0, logs: 0 };
    try {
      let before = Number.POSITIVE_INFINITY;
      for (let round = 1; round <= maxRounds; round += 1) {
        const rows = await this.#rows(source, target, move);
        await this.#files(source, target, move);
        const messages = await this.#messages(source, target, move, sent);
        this.#onStep(`round ${round}: ${rows} rows, ${messages} messages`);
        // What comes in the time of a round is there again after the next one.
        if (round > 1 && this.#compared && rows + messages > before * shrinking) break;
        before = rows + messages;
      }
      if (!this.#compared) throw this.#failure;
      await this.#messages(source, target, move, sent);
      const silentSince = await this.#stop(source, move);
      const after = () => `after ${Math.round(performance.now() - silentSince)} ms`;
      await this.#onStep(`paused ${after()}`);
      await together([
        this.#messages(source, target, move, sent).finally(() => this.#onStep(`messages copied ${after()}`)),
        this.#files(source, target, move),
        this.#rest(source, target, move).finally(() => this.#onStep(`sessions copied ${after()}`)),
        this.#rows(source, target, move).finally(() => this.#onStep(`rows copied ${after()}`)),
      ]);
      if (!this.#compared) throw this.#failure;
      const counts = await source.get<object>('/counts', { move });
      this.#onStep(`copied ${after()}`);
      await target.post('/activate', { move }, { ...sent, ...counts });
      this.#onStep(`activated ${after()}`);
      await this.#switch(target, () => source.post('/release', { move }));
      const silence = Math.round(performance.now() - silentSince);
      this.#onStep(`switched after ${silence} ms`);
      await source.post('/clear', { move });
      const seconds = Math.round(performance.now() - began) / 1000;
      this.#tellSlots();
      return { accounts, in: target.name, ...sent, seconds, silence };
    } catch (error) {
      // Cells that answer take it back at once; otherwise the next call does.
      if (error instanceof CellFailure && error.status !== undefined && error.path !== '/clear')
        await this.#finishOrTakeBack().catch(() => {});
      throw error;
    }
  }

  /** Messages up to the end of a round; how many. */
  async #messages(source: MovingCell, target: MovingCell, move: string, sent: { points: number; logs: number }) {
    let count = 0;
    for (let isOver = false; !isOver; ) {
      const text = await source.text('/messages', { move });
      const chunk = JSON.parse(text) as { series: { points: unknown[] }[]; logs: unknown[]; isRoundOver: boolean };
      isOver = chunk.isRoundOver;
      const points = chunk.series.reduce((sum, one) => sum + one.points.length, 0);
      count += points + chunk.logs.length;
      sent.points += points;
      sent.logs += chunk.logs.length;
      if (points + chunk.logs.length > 0) await target.post('/messages', { move }, text);
    }
    return count;
  }

  /** Rows of the registry: all once, and from then on what has been written since. How many, about. */
  async #rows(source: MovingCell, target: MovingCell, move: string): Promise<number> {
    const text = await source.text('/touched', { move });
    const { pages } = JSON.parse(text) as { pages: { rows: unknown[] }[] | null };
    if (!this.#compared || !pages) return this.#allRows(source, target, move);
    if (pages.length === 0) return 0;
    try {
      await target.post('/touched', { move }, text);
    } catch (error) {
      if (!(error instanceof CellFailure) || error.status !== 500) throw error;
      return this.#allRows(source, target, move);
    }
    return pages.reduce((sum, { rows }) => sum + Math.max(rows.length, 1), 0);
  }

  /** Compares all pages of the registry, and copies those that differ. */
  async #allRows(source: MovingCell, target: MovingCell, move: string): Promise<number> {
    this.#compared = false;
    let changed = 0;
    const refused: string[] = [];
    let reading: Promise<Pages> | undefined = source.get<Pages>('/pages', { move });
    while (reading) {
      const { pages, next }: Pages = await reading;
      // One cell reads while the other one compares.
      reading = next === null ? undefined : source.get<Pages>('/pages', { move, place: JSON.stringify(next) });
      reading?.catch(() => {});
      const { ranges } = await target.post<{ ranges: object[] }>('/differing', { move }, { pages });
      for (const range of ranges) {
        const text = await source.text('/page', { move, place: JSON.stringify(range) });
        const { pages: given } = JSON.parse(text) as { pages: { rows: unknown[] }[] };
        changed += given.reduce((sum, { rows }) => sum + Math.max(rows.length, 1), 0);
        try {
          await target.post('/rows', { move }, text);
        } catch (error) {
          if (!(error instanceof CellFailure) || error.status !== 500) throw error;
          // It refers to what is not there yet.
          refused.push(text);
        }
      }
    }
    let failure: unknown;
    for (const text of refused)
      await target.post('/rows', { move }, text).catch((error) => {
        failure ??= error;
      });
    this.#failure = failure;
    this.#compared = failure === undefined;
    return changed;
  }

  async #files(source: MovingCell, target: MovingCell, move: string): Promise<void> {
    const { files } = await source.get<{ files: { name: string; isWhole: boolean; bytes: number }[] }>('/files', {
      move,
    });
    for (const { name, isWhole, bytes } of files) {
      const whole = String(isWhole);
      if (isWhole && (await target.get<{ has: unknown }>('/has', { name, whole })).has === 'whole') continue;
      for (let from = 0; ; ) {
        const part = await source.bytes('/file', { move, name, whole, from: String(from) });
        const last = from + part.length >= bytes || part.length === 0;
        await target.post('/file', { move, name, whole, from: String(from), last: String(last) }, part);
        from += part.length;
        if (last) break;
      }
    }
  }

  /** What is only copied while the account waits: sessions, retained messages, the outbox. */
  async #rest(source: MovingCell, target: MovingCell, move: string): Promise<void> {
    await target.post('/sessions', { move }, await source.text('/sessions', { move }));
    for (let after = 0; ; ) {
      const text = await source.text('/outbox', { move, after: String(after) });
      const { rows } = JSON.parse(text) as { rows: { sequence: number }[] };
      if (rows.length === 0) return;
      await target.post('/outbox', { move }, text);
      after = rows.at(-1)?.sequence ?? after;
    }
  }

  /** Stops the source; when it has begun to (milliseconds of `performance`). */
  async #stop(source: MovingCell, move: string): Promise<number> {
    for (let tries = 1; ; tries += 1) {
      const since = performance.now();
      try {
        await source.post('/pause', { move });
        return since;
      } catch (error) {
        if (!(error instanceof CellFailure) || error.status !== 503 || tries === maxPauses) throw error;
        await pause(1000);
      }
    }
  }

  /** HAProxy, its map files and cells.yaml say that the slot is in this cell; `then` may begin when the running HAProxy does. */
  async #switch(target: MovingCell, then: () => Promise<unknown> = async () => {}): Promise<void> {
    const slot = slotOf(this.#account);
    const before = contentOf(this.#path);
    const after = withSlotMoved(before, slot, target.name, this.#path);
    const directory = await switchMaps(this.#config.public.adminSocket, slot, target.name);
    const begun = then();
    const { mapsOf } = await import('../../haproxy/maps.ts');
    for (const [name, content] of Object.entries(mapsOf(readCells(after, this.#path)))) {
      replaceFile(`${directory}/${name}`, content);
    }
    if (after !== before) writeInPlace(this.#path, after);
    await begun;
  }

  #tellSlots(): void {
    for (const { name, slots } of readCells(contentOf(this.#path), this.#path).cells.values())
      this.#onStep(`At its next start ${name} needs SLIPWAY_SLOTS=${slotsText(slots)}`);
  }
}

function writeInPlace(path: string, text: string): void {
  try {
    replaceFile(path, text);
  } catch {
    // The directory may not be writable where the file is.
    writeFileSync(path, text, { flush: true });
  }
}
