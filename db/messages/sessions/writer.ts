/** Writes changes of MQTT sessions; part of the worker of messages.db, inside its transactions. */
import type Sqlite from 'better-sqlite3';
import type { MqttChange, RetainedMessage, StoredMessage, StoredWill } from './changes.ts';

export class MqttWriter {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(file: Sqlite.Database) {
    this.#statements = prepare(file);
  }

  /** Removes rows that a crash or a failed write left without an owner; only before the sessions are read. */
  tidy(): void {
    for (const statement of this.#statements.tidy) statement.run();
  }

  write(change: MqttChange): void {
    const run = this.#statements;
    switch (change.kind) {
      case 'message':
        run.addMessage.run({ ...change.message, accountId: change.accountId, places: change.sessions.length });
        for (const session of change.sessions) run.enqueue.run(change.message.id, session);
        return;
      case 'queue':
        run.queue.run(change.id, change.session, change.packetId, change.released);
        return;
      case 'unqueue':
        this.#unqueue(change.id, change.session);
        return;
      case 'session':
        run.session.run(change.session, change.clientId, change.left, change.expiry);
        return;
      case 'endSession':
        // Triggers count a subscription for the account of its session.
        run.endSubscriptions.run(change.session);
        run.endSession.run(change.session);
        run.endIncoming.run(change.session);
        for (const id of change.messages) this.#unqueue(id, change.session);
        return;
      case 'subscribe':
        run.subscribe.run(change.session, change.filter, change.options, change.identifier);
        return;
      case 'unsubscribe':
        run.unsubscribe.run(change.session, change.filter);
        return;
      case 'incoming':
        run.incoming.run(change.session, change.packetId);
        return;
      case 'unincoming':
        run.unincoming.run(change.session, change.packetId);
        return;
      case 'retain':
        run.retain.run(change.retained);
        return;
      case 'unretain':
        run.unretain.run(change.topic);
        return;
      case 'will':
        run.will.run(change.will);
        return;
      case 'willDue':
        run.willDue.run(change.due, change.clientId);
        return;
      case 'unwill':
        run.unwill.run(change.clientId);
        return;
    }
  }

  #unqueue(id: number, session: number): void {
    this.#statements.unqueue.run(id, session);
    this.#statements.dropMessage.run(id, id);
  }
}

const lastSessions = 'SELECT max("id") FROM "mqttSessions" GROUP BY "clientId"';

function prepare(file: Sqlite.Database) {
  return {
    session: file.prepare<[number, string, number | null, number | null]>(
      `INSERT INTO "mqttSessions" VALUES (?, ?, ?, ?)
       ON CONFLICT ("id") DO UPDATE SET "left" = excluded."left", "expiry" = excluded."expiry"`,
    ),
    endSession: file.prepare<[number]>('DELETE FROM "mqttSessions" WHERE "id" = ?'),
    endSubscriptions: file.prepare<[number]>('DELETE FROM "mqttSubscriptions" WHERE "session" = ?'),
    endIncoming: file.prepare<[number]>('DELETE FROM "mqttIncoming" WHERE "session" = ?'),
    // Triggers count what an account has; of a REPLACE they would not see the row that goes.
    subscribe: file.prepare<[number, string, number, number | null]>(
      `INSERT INTO "mqttSubscriptions" VALUES (?, ?, ?, ?)
       ON CONFLICT ("session", "filter") DO UPDATE SET "options" = excluded."options", "identifier" = excluded."identifier"`,
    ),
    unsubscribe: file.prepare<[number, string]>('DELETE FROM "mqttSubscriptions" WHERE "session" = ? AND "filter" = ?'),
    addMessage: file.prepare<[StoredMessage & { accountId: string; places: number }]>(
      `INSERT OR IGNORE INTO "mqttMessages" ("id", "topic", "qos", "payload", "accountId", "places", "properties", "expires", "retain")
       VALUES (@id, @topic, @qos, @payload, @accountId, @places, @properties, @expires, @retain)`,
    ),
    dropMessage: file.prepare<[number, number]>(
      'DELETE FROM "mqttMessages" WHERE "id" = ? AND NOT EXISTS (SELECT 1 FROM "mqttQueue" WHERE "message" = ?)',
    ),
    // A message that is written again finds what has become of it since.
    enqueue: file.prepare<[number, number]>('INSERT OR IGNORE INTO "mqttQueue" VALUES (?, ?, NULL, 0)'),
    queue: file.prepare<[number, number, number | null, number]>('REPLACE INTO "mqttQueue" VALUES (?, ?, ?, ?)'),
    unqueue: file.prepare<[number, number]>('DELETE FROM "mqttQueue" WHERE "message" = ? AND "session" = ?'),
    incoming: file.prepare<[number, number]>('REPLACE INTO "mqttIncoming" VALUES (?, ?)'),
    unincoming: file.prepare<[number, number]>('DELETE FROM "mqttIncoming" WHERE "session" = ? AND "packetId" = ?'),
    retain: file.prepare<[RetainedMessage]>(
      `INSERT INTO "mqttRetained" ("accountId", "topic", "qos", "payload", "properties", "expires", "stored")
       VALUES (@accountId, @topic, @qos, @payload, @properties, @expires, @stored)
       ON CONFLICT ("topic") DO UPDATE SET "qos" = excluded."qos", "payload" = excluded."payload",
         "properties" = excluded."properties", "expires" = excluded."expires", "stored" = excluded."stored"`,
    ),
    unretain: file.prepare<[string]>('DELETE FROM "mqttRetained" WHERE "topic" = ?'),
    will: file.prepare<[StoredWill]>(
      `INSERT INTO "mqttWills" VALUES (@clientId, @topic, @qos, @retain, @payload, @generation, @sessionId, @properties,
         @messageExpiry, @delay, @due)
       ON CONFLICT ("clientId") DO UPDATE SET "topic" = excluded."topic", "qos" = excluded."qos", "retain" = excluded."retain",
         "payload" = excluded."payload", "generation" = excluded."generation", "sessionId" = excluded."sessionId",
         "properties" = excluded."properties", "messageExpiry" = excluded."messageExpiry", "delay" = excluded."delay",
         "due" = excluded."due"`,
    ),
    willDue: file.prepare<[number, string]>('UPDATE "mqttWills" SET "due" = ? WHERE "clientId" = ?'),
    unwill: file.prepare<[string]>('DELETE FROM "mqttWills" WHERE "clientId" = ?'),
    tidy: [
      // The last session of a client id is the one that counts. Subscriptions go first, as with endSession.
      `DELETE FROM "mqttSubscriptions" WHERE "session" NOT IN (${lastSessions})`,
      `DELETE FROM "mqttSessions" WHERE "id" NOT IN (${lastSessions})`,
      'DELETE FROM "mqttIncoming" WHERE "session" NOT IN (SELECT "id" FROM "mqttSessions")',
      'DELETE FROM "mqttQueue" WHERE "session" NOT IN (SELECT "id" FROM "mqttSessions")',
      `DELETE FROM "mqttQueue" WHERE NOT EXISTS (SELECT 1 FROM "mqttMessages" WHERE "id" = "message")`,
      `DELETE FROM "mqttMessages" WHERE NOT EXISTS (SELECT 1 FROM "mqttQueue" WHERE "message" = "id")`,
    ].map((text) => file.prepare(text)),
  };
}
