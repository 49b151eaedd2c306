/** The cell that gets an account: it takes copies of rows and messages, and begins to act when the other cell has stopped. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { CompiledQuery } from 'kysely';
import { sync } from '../../../db/files/copies.ts';
import type { WholeOutboxRow } from '../../../db/messages/outbox/rows.ts';
import { fromLogRow } from '../../../db/messages/series/rows.ts';
import type { MqttState } from '../../../db/messages/sessions/changes.ts';
import { invalid, PlatformError } from '../../../src/core/errors.ts';
import { slotOf } from '../../../src/core/ids.ts';
import type { CellsContext } from '../../context.ts';
import { partialOf } from '../account-contents.ts';
import { type HashedRange, type Page, type PageRange, RegistryPages } from './pages.ts';
import { accountsOfSlot, forgetCaches, removeAccounts } from './removal.ts';
import { type Amounts, type Bytes, lapsesAfter, type MessagesChunk, type MoveSource, proofOf } from './source.ts';
import { runTriggers } from './triggers.ts';

interface Arrival {
  move: string;
  lapse: NodeJS.Timeout;
  accounts: string[];
  pages: RegistryPages;
  stored: Amounts;
}

export class MoveTarget {
  readonly #ctx: CellsContext;
  #arrival: Arrival | undefined;

  constructor(ctx: CellsContext) {
    this.#ctx = ctx;
  }

  /** Makes room for accounts. What an earlier attempt has brought is removed, and nothing of it can become active. */
  async beginArrival(given: {
    move: string;
    accounts: string[];
    bytes: Bytes;
    from: string;
    to: string;
    proof: string;
  }): Promise<void> {
    const { move, accounts, bytes, from, to, proof } = given;
    const { config, gate, registry } = this.#ctx;
    if (proof !== proofOf(this.#ctx, move))
      throw invalid('keys', 'differ: the cell needs a copy of the file keys/sealing.key of the other one');
    const [first = ''] = accounts;
    const known = await accountsOfSlot(registry, slotOf(first));
    const coming = new Set(gate.records.flatMap((one) => (one.state === 'coming' ? one.accounts : [])));
    if (known.some((id) => !coming.has(id))) throw invalid('accounts', `${known.join(', ')} is here already`);
    this.#demandRoom(bytes);
    this.#endArrival();
    gate.recordMove(accounts, { move, accounts, state: 'coming', from, to });
    await removeAccounts(this.#ctx, [...new Set([...accounts, ...known])]);
    const pages = new RegistryPages(join(config.dataDir, 'registry.db'), accounts);
    const lapse = setTimeout(() => this.#lapse(first), lapsesAfter).unref();
    this.#arrival = { move, lapse, accounts, pages, stored: { points: 0, logs: 0 } };
  }

  /** What others of this cell have must not be evicted for an account that comes. @throws PlatformError 400 */
  #demandRoom(bytes: Bytes): void {
    const { config, keeping, messages } = this.#ctx;
    const { diskReserveBytes, maxBytes } = config.messages;
    const free = (keeping.diskFree ?? Number.POSITIVE_INFINITY) - diskReserveBytes;
    if (bytes.all > free)
      throw invalid('room', `is too small: the account has ${bytes.all} bytes, and ${Math.max(0, free)} are free`);
    if (maxBytes > 0 && messages.size + bytes.messages > maxBytes)
      throw invalid(
        'room',
        `is too small: the account has ${bytes.messages} bytes of messages, and SLIPWAY_MESSAGES_MAX_BYTES leaves ${Math.max(0, maxBytes - messages.size)}`,
      );
  }

  /** Those of these ranges in which other rows are here. */
  async differing(move: string, ranges: readonly HashedRange[]): Promise<PageRange[]> {
    const differing: PageRange[] = [];
    for (const range of ranges) {
      if (!this.#demand(move).pages.isSame(range))
        differing.push({ table: range.table, after: range.after, to: range.to });
      await nextTurn();
    }
    return differing;
  }

  /** Makes these pages here what they are there. One that refers to what is not here yet throws. */
  async rows(move: string, given: readonly Page[]): Promise<void> {
    const { pages } = this.#demand(move);
    for (const page of given) {
      demandFree(pages, page);
      await this.#ctx.registry.longTransaction(async (tx) => {
        await tx.executeQuery(CompiledQuery.raw('PRAGMA defer_foreign_keys = ON'));
        const { clear, put } = pages.statements(page);
        for (const { sql, values } of [...clear, ...put]) await tx.executeQuery(CompiledQuery.raw(sql, values));
      });
      if (!pages.isHere(page)) throw new Error(`The copy of a page of ${page.table} differs.`);
    }
  }

  /** Makes these pages here what they are there, all or none. */
  async touched(move: string, given: readonly Page[]): Promise<void> {
    const { pages } = this.#demand(move);
    for (const page of given) demandFree(pages, page);
    const work = given.map((page) => pages.statements(page));
    // Children go before their parents, and come after them.
    const statements = [...work.toReversed().flatMap(({ clear }) => clear), ...work.flatMap(({ put }) => put)];
    await this.#ctx.registry.longTransaction(async (tx) => {
      await tx.executeQuery(CompiledQuery.raw('PRAGMA defer_foreign_keys = ON'));
      for (const { sql, values } of statements) await tx.executeQuery(CompiledQuery.raw(sql, values));
    });
    for (const page of given) if (!pages.isHere(page)) throw new Error(`The copy of rows of ${page.table} differs.`);
  }

  /** Stores messages; on disk when it resolves. */
  async messages(move: string, { series, logs }: MessagesChunk): Promise<void> {
    const { stored } = this.#demand(move);
    const { messages, clock } = this.#ctx;
    const given = series.map(
      ({ points, ahead, ...key }) =>
        new Promise<void>((resolve, reject) => {
          const taken = points.map(([time, , category, numericValue, stringValue]) => ({
            time,
            category,
            numericValue,
            stringValue,
            // Points that came ahead of their time came to this cell just now.
            ...(ahead === 1 && { arrived: clock.now() }),
          }));
          messages.append(key, taken, (error) => (error ? reject(error) : resolve()));
        }),
    );
    for (const row of logs)
      given.push(
        new Promise<void>((resolve, reject) =>
          messages.appendLog(fromLogRow(row), (error) => (error ? reject(error) : resolve())),
        ),
      );
    await Promise.all(given);
    stored.points += series.reduce((sum, { points }) => sum + points.length, 0);
    stored.logs += logs.length;
  }

  async outbox(move: string, rows: readonly WholeOutboxRow[]): Promise<void> {
    this.#demand(move);
    const changes = rows.map((row) => ({ kind: 'take', row }) as const);
    await new Promise<void>((resolve, reject) =>
      this.#ctx.messages.recordOutbox(changes, (error) => (error ? reject(error) : resolve())),
    );
  }

  /** Takes stored sessions, once: they have new numbers here. */
  async sessions(move: string, state: MqttState): Promise<void> {
    const { accounts } = this.#demand(move);
    await this.#ctx.broker.handover.depart(new Set(accounts));
    await this.#ctx.broker.handover.arrive(state);
  }

  /** Bytes of a firmware file that are here. */
  has(name: string, isWhole: boolean): number | 'whole' {
    const { firmware } = this.#ctx;
    return isWhole && existsSync(firmware.pathOf(name)) ? 'whole' : 0;
  }

  /** A part of a firmware file. The last one of a content must complete what its hash says. */
  async file(move: string, part: { name: string; isWhole: boolean; from: number; isLast: boolean }, bytes: Buffer) {
    this.#demand(move);
    const { name, isWhole, from, isLast } = part;
    if (!/^[\w-]+$/.test(name)) throw invalid('name', 'is no name of a firmware file');
    const { firmware } = this.#ctx;
    const partial = isWhole ? partialOf(name) : name;
    const file = await firmware.openPartial(partial, from);
    try {
      await file.write(bytes, 0, bytes.length, from);
      await file.sync();
    } finally {
      await file.close();
    }
    if (!isLast) return;
    if (!isWhole) return sync(dirname(firmware.partialPath(partial)));
    if ((await firmware.hashOfPartial(partial)) !== name) throw invalid('name', 'is not the hash of this content');
    await firmware.keepContent(partial, name);
  }

  /** Begins to act for the accounts. The other cell must have stopped, and all that it has must be here. */
  async activate(move: string, { connected, ...sent }: Amounts & ReturnType<MoveSource['counts']>): Promise<void> {
    const { accounts, pages, stored } = this.#demand(move);
    const { access, broker, clock, gate, overlaps, registry, retention, secretAnswers } = this.#ctx;
    const here = { points: stored.points, logs: stored.logs, rows: pages.counts() };
    if (!isDeepStrictEqual(here, sent))
      throw invalid('move', `was sent ${JSON.stringify(sent)}, and there are ${JSON.stringify(here)}`);
    const record = gate.records.find((one) => one.move === move);
    if (!record) throw new PlatformError('notFound');
    forgetCaches(this.#ctx);
    const of = accounts.slice();
    for (const node of registry.organizations()) if (of.includes(node.accountId)) access.organizationChanged(node);
    const { query } = registry;
    const settings = await query.selectFrom('accounts').select(['id', 'retentionDays']).where('id', 'in', of).execute();
    for (const { id, retentionDays } of settings) retention.accountChanged(id, retentionDays);
    const secrets = query.selectFrom('credentials').select(['entityId', 'previousUntil']).where('accountId', 'in', of);
    for (const { entityId, previousUntil } of await secrets.where('previousUntil', 'is not', null).execute())
      overlaps.changed(entityId, previousUntil);
    const answers = query.selectFrom('idempotentAnswers').select('secretOf').where('accountId', 'in', of);
    const kept = await answers.where('secretOf', 'is not', null).where('answer', 'is not', null).execute();
    secretAnswers.arrived(kept.flatMap(({ secretOf }) => secretOf ?? []));
    await broker.handover.endedElsewhere(connected);
    // Somebody may have taken it back meanwhile; from here to the record nothing else runs.
    this.#demand(move);
    gate.holdAccounts(accounts);
    gate.recordMove(accounts, { ...record, state: 'here', since: clock.now() });
    this.#endArrival();
    await runTriggers(this.#ctx, accounts);
    gate.dismissWaiting(accounts);
  }

  /** Lets go of accounts that have not become active here, for good. */
  async dropAccount(accountId: string): Promise<void> {
    const { gate } = this.#ctx;
    const record = gate.recordOf(accountId);
    if (record?.state === 'here') throw invalid('accountId', 'is here: it can only be moved back');
    if (record?.state !== 'coming') return;
    this.#endArrival();
    // First another attempt's name: from here on nothing of this one can become active.
    gate.recordMove(record.accounts, { ...record, move: 'dropped' });
    await removeAccounts(this.#ctx, record.accounts);
    gate.recordMove(record.accounts, undefined);
  }

  /** What has come is worth nothing: the command has died long ago. */
  #lapse(accountId: string): void {
    this.dropAccount(accountId).catch((error) =>
      this.#ctx.log.error({ err: error, accountId }, 'what has come of an account could not be removed'),
    );
  }

  #endArrival(): void {
    clearTimeout(this.#arrival?.lapse);
    this.#arrival?.pages.close();
    this.#arrival = undefined;
  }

  #demand(move: string): Arrival {
    const arrival = this.#arrival;
    if (arrival?.move !== move) throw invalid('move', 'is not under way here');
    arrival.lapse.refresh();
    return arrival;
  }
}

/** @throws PlatformError 400 when a device has the id of another account's device. */
function demandFree(pages: RegistryPages, page: Page): void {
  const [id] = pages.taken(page);
  if (id !== undefined)
    throw invalid('devices', `with the id ${id} are in another account here too. Purge one of them first`);
}
