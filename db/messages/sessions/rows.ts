import type Sqlite from 'better-sqlite3';
import { retainedSize } from '../../migrations/row-sizes.ts';
import type { RetainedMessage, StoredMessage, StoredWill } from './changes.ts';

/**
 * `left` in milliseconds since 1970; null when a crash has ended the connection that held it. `expiry` in seconds; null for
 * the server's own.
 */
export interface SessionRow {
  id: number;
  clientId: string;
  left: number | null;
  expiry: number | null;
}

/** Bytes of topics and payloads. */
export interface RetainedUse {
  accountId: string;
  count: number;
  bytes: number;
}

/** A will without what it says; `size` is bytes of its topic, payload and properties. */
export type WillRow = Pick<StoredWill, 'clientId' | 'delay' | 'due'> & { size: number };

/** Session, filter, options, subscription identifier. */
export type SubscriptionRow = [number, string, number, number | null];
/** Message, session, packet id, released, bytes of topic, payload and properties, and when it expires (milliseconds since 1970). */
export type QueueRow = [number, number, number | null, number, number, number | null];
/** Session, packet id. */
export type IncomingRow = [number, number];

/** Reads what messages.db holds of MQTT sessions; it sees what is committed, and answers at once. */
export class MqttRows {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
  }

  /** The longest left first; those that were connected last. */
  sessions(): IterableIterator<SessionRow> {
    return this.#statements.sessions.iterate();
  }

  subscriptions(): IterableIterator<SubscriptionRow> {
    return this.#statements.subscriptions.iterate();
  }

  /** In the order in which the messages were accepted. */
  queue(): IterableIterator<QueueRow> {
    return this.#statements.queue.iterate();
  }

  incoming(): IterableIterator<IncomingRow> {
    return this.#statements.incoming.iterate();
  }

  wills(): IterableIterator<WillRow> {
    return this.#statements.wills.iterate();
  }

  will(clientId: string): StoredWill | undefined {
    return this.#statements.will.get(clientId);
  }

  message(id: number): StoredMessage | undefined {
    return this.#statements.message.get(id);
  }

  qosOf(id: number): number | undefined {
    return this.#statements.qos.get(id);
  }

  topicOf(id: number): string | undefined {
    return this.#statements.topic.get(id);
  }

  retained(topic: string): RetainedMessage | undefined {
    return this.#statements.retained.get(topic);
  }

  /** Bytes of a retained message with its topic; undefined when there is none. */
  retainedSize(topic: string): number | undefined {
    return this.#statements.retainedSize.get(topic);
  }

  /** Topics of what an account has retained. */
  retainedOf(accountId: string): string[] {
    return this.#statements.retainedOf.all(accountId);
  }

  /** Topics of retained messages that have expired at `now`, in milliseconds since 1970; at most `limit`. */
  retainedExpired(now: number, limit: number): string[] {
    return this.#statements.retainedExpired.all(now, limit);
  }

  /** How many retained messages each account has, and their bytes. */
  retainedUse(): RetainedUse[] {
    return this.#statements.retainedUse.all();
  }

  /** Retained topics that begin with `prefix` and come after `after`, in their order, at most `limit`. */
  retainedTopics(prefix: string, after: string, limit: number): string[] {
    return this.#statements.retainedTopics.all({ prefix, after, limit });
  }
}

function prepare(reader: Sqlite.Database) {
  return {
    sessions: reader.prepare<[], SessionRow>(
      'SELECT "id", "clientId", "left", "expiry" FROM "mqttSessions" ORDER BY "left" IS NULL, "left", "id"',
    ),
    subscriptions: reader.prepare<[], SubscriptionRow>('SELECT * FROM "mqttSubscriptions"').raw(),
    queue: reader
      .prepare<[], QueueRow>(
        `SELECT q.*, coalesce(octet_length(m."topic") + octet_length(m."payload") + coalesce(octet_length(m."properties"), 0), 0),
         m."expires" FROM "mqttQueue" q LEFT JOIN "mqttMessages" m ON m."id" = q."message" ORDER BY q."message"`,
      )
      .raw(),
    incoming: reader.prepare<[], IncomingRow>('SELECT * FROM "mqttIncoming"').raw(),
    wills: reader.prepare<[], WillRow>(
      `SELECT "clientId", "delay", "due", octet_length("topic") + octet_length("payload")
         + coalesce(octet_length("properties"), 0) AS "size" FROM "mqttWills"`,
    ),
    will: reader.prepare<[string], StoredWill>('SELECT * FROM "mqttWills" WHERE "clientId" = ?'),
    message: reader.prepare<[number], StoredMessage>(
      'SELECT "id", "topic", "qos", "payload", "properties", "expires", "retain" FROM "mqttMessages" WHERE "id" = ?',
    ),
    qos: reader.prepare<[number], number>('SELECT "qos" FROM "mqttMessages" WHERE "id" = ?').pluck(),
    topic: reader.prepare<[number], string>('SELECT "topic" FROM "mqttMessages" WHERE "id" = ?').pluck(),
    retained: reader.prepare<[string], RetainedMessage>('SELECT * FROM "mqttRetained" WHERE "topic" = ?'),
    retainedSize: reader
      .prepare<[string], number>(`SELECT ${retainedSize('')} FROM "mqttRetained" WHERE "topic" = ?`)
      .pluck(),
    retainedOf: reader.prepare<[string], string>('SELECT "topic" FROM "mqttRetained" WHERE "accountId" = ?').pluck(),
    retainedExpired: reader
      .prepare<[number, number], string>('SELECT "topic" FROM "mqttRetained" WHERE "expires" <= ? LIMIT ?')
      .pluck(),
    retainedUse: reader.prepare<[], RetainedUse>('SELECT * FROM "mqttRetainedUse"'),
    // char(0x10FFFF) sorts after every character of a topic.
    retainedTopics: reader
      .prepare<[{ prefix: string; after: string; limit: number }], string>(
        `SELECT "topic" FROM "mqttRetained"
         WHERE "topic" >= @prefix AND "topic" < @prefix || char(0x10FFFF) AND "topic" > @after
         ORDER BY "topic" LIMIT @limit`,
      )
      .pluck(),
  };
}
