/** What messages.db has of accounts, read while they are copied to another cell. */
import type Sqlite from 'better-sqlite3';
import type { WholeOutboxRow } from '../../../db/messages/outbox/rows.ts';
import type { MqttState, StoredWill } from '../../../db/messages/sessions/changes.ts';
import type { LogRow } from '../../../db/messages/threads/protocol.ts';
import type { SeriesKey } from '../../../db/messages/types.ts';
import { openSqlite } from '../../../db/sqlite/open.ts';
import { fillTable } from '../account-contents.ts';
import { messageRules } from '../tables.ts';

export interface SeriesRow {
  id: number;
  accountId: string;
  deviceId: string;
  channelTemplateId: string;
  possession: number;
  ahead: 0 | 1;
}

/** Time, sequence, category, number, text. */
export type PointRow = [number, number, string, number | null, string | null];

/** A log entry as it is stored. */
export type StoredLog = Required<LogRow> & { sequence: number };

/** Its own connection, which sees what is committed; `close` it. */
export class MessagesOut {
  readonly #file: Sqlite.Database;
  readonly #points: Sqlite.Statement<[object], PointRow>;

  constructor(path: string, accounts: readonly string[], bridges: readonly string[]) {
    this.#file = openSqlite(path, { readonly: true });
    fillTable(this.#file, 'moving', accounts);
    fillTable(this.#file, 'movingBridges', bridges);
    this.#points = this.#file
      .prepare<[object], PointRow>(
        `SELECT p."time", p."sequence", c."text", p."number", p."text"
         FROM "points" p CROSS JOIN "categories" c ON c."id" = p."category"
         WHERE p."series" = @series AND (p."time", p."sequence") > (@time, @after)
           AND p."sequence" > @from AND p."sequence" <= @to
         ORDER BY p."time", p."sequence" LIMIT @limit`,
      )
      .raw();
  }

  /** The number of the last row of all that is committed. */
  get end(): number {
    return (
      this.#file.prepare<[], number>(`SELECT "value" FROM "counters" WHERE "name" = 'sequence'`).pluck().get() ?? 0
    );
  }

  series(): SeriesRow[] {
    return this.#file
      .prepare<[], SeriesRow>(
        'SELECT "id", "accountId", "deviceId", "channelTemplateId", "possession", "ahead" FROM "series" WHERE "accountId" IN "moving" ORDER BY "id"',
      )
      .all();
  }

  seriesOf({ deviceId, channelTemplateId, possession = 0, ahead = false }: SeriesKey): SeriesRow | undefined {
    return this.#file
      .prepare<[string, string, number, 0 | 1], SeriesRow>(
        `SELECT "id", "accountId", "deviceId", "channelTemplateId", "possession", "ahead" FROM "series"
         WHERE "deviceId" = ? AND "channelTemplateId" = ? AND "possession" = ? AND "ahead" = ? AND "accountId" IN "moving"`,
      )
      .get(deviceId, channelTemplateId, possession, ahead ? 1 : 0);
  }

  /** Points of a series after a place, with numbers above `from` up to `to`. */
  points(query: { series: number; time: number; after: number; from: number; to: number; limit: number }): PointRow[] {
    return this.#points.all(query);
  }

  /** How many points of the accounts have a number up to `to`. */
  countPoints(to: number): number {
    return (
      this.#file
        .prepare<[number], number>(
          `SELECT count(*) FROM "points" WHERE "series" IN (SELECT "id" FROM "series" WHERE "accountId" IN "moving")
           AND "sequence" <= ?`,
        )
        .pluck()
        .get(to) ?? 0
    );
  }

  logs(after: number, to: number, limit: number): StoredLog[] {
    return this.#file
      .prepare<[number, number, number], StoredLog>(
        `SELECT * FROM "logs" WHERE "accountId" IN "moving" AND "sequence" > ? AND "sequence" <= ? ORDER BY "sequence" LIMIT ?`,
      )
      .all(after, to, limit);
  }

  countLogs(to: number): number {
    return (
      this.#file
        .prepare<[number], number>('SELECT count(*) FROM "logs" WHERE "accountId" IN "moving" AND "sequence" <= ?')
        .pluck()
        .get(to) ?? 0
    );
  }

  /** Devices that have points or log entries. */
  devices(): string[] {
    return this.#file
      .prepare<[], string>(
        `SELECT "deviceId" FROM "series" WHERE "accountId" IN "moving"
         UNION SELECT "deviceId" FROM "logs" WHERE "accountId" IN "moving"`,
      )
      .pluck()
      .all();
  }

  outbox(after: number, limit: number): WholeOutboxRow[] {
    return this.#file
      .prepare<[number, number], WholeOutboxRow>(
        `SELECT * FROM "outbox" WHERE ${whereOf('outbox')} AND "sequence" > ? ORDER BY "sequence" LIMIT ?`,
      )
      .all(after, limit);
  }

  mqtt(): MqttState {
    const all = <R>(columns: string, table: string, order: string) =>
      this.#file.prepare<[], R>(`SELECT ${columns} FROM "${table}" WHERE ${whereOf(table)} ORDER BY ${order}`);
    return {
      sessions: all<MqttState['sessions'][number]>('*', 'mqttSessions', '"left" IS NULL, "left", "id"').all(),
      subscriptions: all<MqttState['subscriptions'][number]>(
        '"session", "filter", "options", "identifier"',
        'mqttSubscriptions',
        '1, 2',
      )
        .raw()
        .all(),
      queue: all<MqttState['queue'][number]>('"message", "session", "packetId", "released"', 'mqttQueue', '1, 2')
        .raw()
        .all(),
      incoming: all<[number, number]>('"session", "packetId"', 'mqttIncoming', '1, 2').raw().all(),
      messages: all<MqttState['messages'][number]>(
        '"id", "topic", "qos", "payload", "properties", "expires", "retain"',
        'mqttMessages',
        '"id"',
      ).all(),
      retained: all<MqttState['retained'][number]>('*', 'mqttRetained', '"topic"').all(),
      wills: all<StoredWill>('*', 'mqttWills', '"clientId"').all(),
    };
  }

  close(): void {
    this.#file.close();
  }
}

function whereOf(table: string): string {
  const rule = messageRules.find((one) => one.table === table);
  if (!rule) throw new RangeError(`There is no rule for ${table}.`);
  return rule.where.replaceAll('@', '');
}
