/** The outbox: messages that bridges must deliver, have delivered, or could not deliver. */
import type Sqlite from 'better-sqlite3';

/** A message on its way to a bridge; `time` is that of its acceptance, in milliseconds since 1970. */
export interface OutboxMessage {
  /** The same for every bridge and at every try. */
  id: string;
  deviceId: string;
  organizationId: string | null;
  deviceTemplateId: string;
  channel: string;
  qos: number;
  time: number;
  payload: Uint8Array;
  /** Properties of MQTT 5 that travel with it, as bytes of the protocol; null without any. */
  properties: Uint8Array | null;
  /** Milliseconds since 1970; null for a message that does not expire. */
  expires: number | null;
}

export const outboxStates = { pending: 0, delivered: 1, dead: 2 } as const;
export type OutboxState = keyof typeof outboxStates;

/** `sequence` grows in the order of acceptance, over the life of the file; `since` is when it came into its state. */
export type OutboxRow = OutboxMessage & { sequence: number; since: number };

/** All of a row, as another file takes it over. */
export type WholeOutboxRow = OutboxRow & { bridgeId: string; state: number; reason: string | null; accountId: string };

/** Written twice, each is as written once but `add` and `take`. Rows that are in another state than `from` are left alone. */
export type OutboxChange =
  | { kind: 'add'; accountId: string; message: OutboxMessage; bridgeIds: readonly string[] }
  /** A row of another file, which gets a number of this one. */
  | { kind: 'take'; row: Omit<WholeOutboxRow, 'sequence'> }
  /** Every row of these bridges. */
  | { kind: 'forget'; bridgeIds: readonly string[] }
  | { kind: 'move'; from: OutboxState; to: OutboxState; sequences: number[]; time: number; reason: string | null }
  | { kind: 'remove'; from: OutboxState; sequences: number[] };

/** The part of a row that is in the index. */
export type OutboxPlace = Pick<OutboxRow, 'sequence' | 'time' | 'since'>;

export type DeadRow = OutboxRow & { reason: string | null };

/** Reads what messages.db holds of the outbox; it sees what is committed, and answers at once. */
export class OutboxRows {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(reader: Sqlite.Database) {
    this.#statements = prepare(reader);
  }

  /** Pending messages of a bridge after a position, in order: at most `limit`, and `bytes` of payload and properties. */
  pending(bridgeId: string, after: number, limit: number, bytes: number): OutboxRow[] {
    return within(bytes, this.#statements.pending.iterate({ bridgeId, after, limit }));
  }

  /** As pending, from the first of one device. */
  pendingOf(bridgeId: string, deviceId: string, limit: number, bytes: number): OutboxRow[] {
    return within(bytes, this.#statements.pendingOf.iterate({ bridgeId, deviceId, limit }));
  }

  /** Rows of a bridge in one state after a place, in order, without what they hold. */
  places(bridgeId: string, state: OutboxState, after: number, limit: number): OutboxPlace[] {
    return this.#statements.places.all({ bridgeId, state: outboxStates[state], after, limit });
  }

  /** Rows of a bridge in one state, between two positions, that belong to these devices. */
  ofDevices(
    bridgeId: string,
    state: OutboxState,
    deviceIds: readonly string[],
    { from, to }: { from: number; to: number },
  ): number[] {
    const devices = JSON.stringify(deviceIds);
    return this.#statements.ofDevices.all({ bridgeId, state: outboxStates[state], from, to, devices });
  }

  /** Where dead letters are, newest first, without the first `offset`, and how many bytes of payload each has. */
  deadPlaces(bridgeId: string, limit: number, offset: number): Array<{ id: number; bytes: number }> {
    return this.#statements.deadPlaces.all({ bridgeId, limit, offset });
  }

  /** Some of the dead letters, in any order. */
  dead(bridgeId: string, sequences: readonly number[]): DeadRow[] {
    return this.#statements.dead.all({ bridgeId, sequences: JSON.stringify(sequences) });
  }

  /** How many rows of a bridge are in a state; counting ends at `most`. */
  countInState(bridgeId: string, state: OutboxState, most: number): number {
    return this.#statements.count.get({ bridgeId, state: outboxStates[state], most }) ?? 0;
  }

  /** Every bridge that has rows, live or not. */
  bridgeIds(): string[] {
    const ids: string[] = [];
    for (let id = this.#statements.nextBridge.get(''); id; id = this.#statements.nextBridge.get(id)) ids.push(id);
    return ids;
  }
}

/** Bytes of what a message carries: its payload and its properties. */
export function contentBytes({ payload, properties }: Pick<OutboxMessage, 'payload' | 'properties'>): number {
  return payload.length + (properties?.length ?? 0);
}

/** Takes rows while they fit, one at least. */
function within(bytes: number, rows: Iterable<OutboxRow>): OutboxRow[] {
  const taken: OutboxRow[] = [];
  let left = bytes;
  for (const row of rows) {
    left -= contentBytes(row);
    if (left < 0 && taken.length > 0) break;
    taken.push(row);
  }
  return taken;
}

const columns = `"sequence", "since", "id", "deviceId", "organizationId", "deviceTemplateId", "channel", "qos", "time", "payload", "properties", "expires"`;

interface PendingQuery {
  bridgeId: string;
  after: number;
  limit: number;
}

function prepare(reader: Sqlite.Database) {
  return {
    pending: reader.prepare<[PendingQuery], OutboxRow>(
      `SELECT ${columns} FROM "outbox" INDEXED BY "outbox_state"
       WHERE "bridgeId" = @bridgeId AND "state" = 0 AND "sequence" > @after ORDER BY "sequence" LIMIT @limit`,
    ),
    pendingOf: reader.prepare<[{ bridgeId: string; deviceId: string; limit: number }], OutboxRow>(
      `SELECT ${columns} FROM "outbox" INDEXED BY "outbox_device"
       WHERE "bridgeId" = @bridgeId AND "deviceId" = @deviceId AND "state" = 0
       ORDER BY "sequence" LIMIT @limit`,
    ),
    places: reader.prepare<[PendingQuery & { state: number }], OutboxPlace>(
      `SELECT "sequence", "time", "since" FROM "outbox" INDEXED BY "outbox_state"
       WHERE "bridgeId" = @bridgeId AND "state" = @state AND "sequence" > @after ORDER BY "sequence" LIMIT @limit`,
    ),
    ofDevices: reader
      .prepare<[{ bridgeId: string; state: number; from: number; to: number; devices: string }], number>(
        `SELECT "sequence" FROM "outbox" INDEXED BY "outbox_state"
         WHERE "bridgeId" = @bridgeId AND "state" = @state AND "sequence" BETWEEN @from AND @to
         AND "deviceId" IN (SELECT "value" FROM json_each(@devices))`,
      )
      .pluck(),
    deadPlaces: reader.prepare<[{ bridgeId: string; limit: number; offset: number }], { id: number; bytes: number }>(
      `SELECT "sequence" AS "id", octet_length("payload") + coalesce(octet_length("properties"), 0) AS "bytes" FROM "outbox" INDEXED BY "outbox_state"
       WHERE "bridgeId" = @bridgeId AND "state" = 2 ORDER BY "sequence" DESC LIMIT @limit OFFSET @offset`,
    ),
    dead: reader.prepare<[{ bridgeId: string; sequences: string }], DeadRow>(
      `SELECT ${columns}, "reason" FROM "outbox" INDEXED BY "outbox_state"
       WHERE "bridgeId" = @bridgeId AND "state" = 2 AND "sequence" IN (SELECT "value" FROM json_each(@sequences))`,
    ),
    count: reader
      .prepare<[{ bridgeId: string; state: number; most: number }], number>(
        `SELECT count(*) FROM (SELECT 1 FROM "outbox" WHERE "bridgeId" = @bridgeId AND "state" = @state LIMIT @most)`,
      )
      .pluck(),
    nextBridge: reader
      .prepare<[string], string | null>('SELECT min("bridgeId") FROM "outbox" WHERE "bridgeId" > ?')
      .pluck(),
  };
}
