/** Shared by targets that send messages one by one: rounds, outcomes, one lazy connection. */
import type { Clock } from '../core/clock.ts';
import {
  type BridgedMessage,
  type Fate,
  type Outcome,
  type Retry,
  type SendOptions,
  type Target,
  wholly,
} from './target.ts';

/** The outcome of one message: stored, refused for good with a reason, or to be sent again. */
export type Sent = 'accepted' | { refused: string } | Retry;

/**
 * Divides a batch so that no round has two messages of one device, and each device's messages are in order. A message
 * is then never stored before an earlier one of its device that has to be sent again.
 */
export function roundsOf(batch: readonly BridgedMessage[]): BridgedMessage[][] {
  const rounds: BridgedMessage[][] = [];
  const seen = new Map<string, number>();
  for (const message of batch) {
    const round = seen.get(message.deviceId) ?? 0;
    seen.set(message.deviceId, round + 1);
    rounds[round] = [...(rounds[round] ?? []), message];
  }
  return rounds;
}

/** By how many times its timeout a batch may take longer than one answer, until its connection is given up. */
const maxBatchTime = 3;

/**
 * Sends round by round; a device of which a message is to be sent again is in no later round. Stops when the target itself fails,
 * and after `timeout` (milliseconds): a batch of one device has many rounds, and others wait for its place.
 */
export async function sendInRounds(
  batch: readonly BridgedMessage[],
  { clock, timeout }: { clock: Clock; timeout: number },
  sendRound: (round: readonly BridgedMessage[]) => Promise<Sent[]>,
): Promise<Outcome> {
  const began = clock.now();
  const held = new Set<string>();
  const sent: Array<[id: string, Sent]> = [];
  for (const all of roundsOf(batch)) {
    const round = all.filter(({ deviceId }) => !held.has(deviceId));
    if (round.length === 0) continue;
    const results = await sendRound(round);
    let hasFailed = false;
    for (const [index, { id, deviceId }] of round.entries()) {
      const result = results[index] ?? { result: 'retry', about: 'target', reason: 'no answer' };
      sent.push([id, result]);
      if (result === 'accepted' || 'refused' in result) continue;
      held.add(deviceId);
      hasFailed ||= result.about === 'target';
    }
    if (hasFailed || clock.now() - began >= timeout) break;
  }
  return partsOf(sent);
}

/** Messages with the same fate are one part; each refusal is a part of its own, because it is told of one message. */
export function partsOf(sent: ReadonlyArray<[id: string, Sent]>): Outcome {
  const parts = new Map<string, Fate & { ids: string[] }>();
  for (const [id, one] of sent) {
    const fate = fateOf(one);
    const key = fate.result === 'refused' ? id : JSON.stringify(fate);
    const part = parts.get(key);
    if (part) part.ids.push(id);
    else parts.set(key, { ids: [id], ...fate });
  }
  return [...parts.values()];
}

function fateOf(sent: Sent): Fate {
  if (sent === 'accepted') return { result: 'accepted' };
  return 'refused' in sent ? { result: 'refused', reason: sent.refused } : sent;
}

/** One connection, opened when it is first needed and again after it has ended. */
class Connecting<C> {
  readonly #open: () => Promise<C>;
  readonly #endConnection: (connection: C) => void;
  #current: Promise<C> | undefined;
  #closed = false;

  constructor(open: () => Promise<C>, endConnection: (connection: C) => void) {
    this.#open = open;
    this.#endConnection = endConnection;
  }

  /** @throws whatever opening throws; the next call tries again. */
  async get(): Promise<C> {
    if (this.#closed) throw new Error('closed');
    this.#current ??= this.#open();
    const opening = this.#current;
    try {
      const connection = await opening;
      if (this.#closed) this.#endConnection(connection);
      return connection;
    } catch (error) {
      this.dropConnection(opening);
      throw error;
    }
  }

  /** The connection has ended, so that the next message opens another. */
  dropConnection(which: Promise<C>): void {
    if (this.#current === which) this.#current = undefined;
  }

  /** Ends the connection, also one that is being opened; the next message opens another. */
  reset(): void {
    void this.#current?.then(this.#endConnection, () => {});
    this.#current = undefined;
  }

  close(): void {
    this.#closed = true;
    this.reset();
  }
}

/** What a kind of target does with its connection. */
export interface ConnectionMethods<C> {
  /** Opens a connection; it calls `ended` when that has ended by itself. */
  open(ended: () => void): Promise<C>;
  endConnection(connection: C): void;
  /** @throws whatever keeps all of the batch from being delivered now. */
  send(connection: C, batch: readonly BridgedMessage[], options: SendOptions): Promise<Outcome>;
  /** An error in a sentence that holds nothing of addresses and secrets. */
  explain?(error: unknown): string;
}

/** No answer came within the timeout of a target. */
export class NoAnswer extends Error {
  readonly code = 'NO_ANSWER';
}

/**
 * A target that keeps one connection; whatever fails is to be tried again, and is the fault of the target. A batch that
 * has no outcome after three times `timeout` (milliseconds) ends its connection: libraries have waits of their own.
 */
export function targetOf<C>(
  { open, endConnection, send, explain = failureCode }: ConnectionMethods<C>,
  { timeout }: { timeout: number },
): Target {
  const connecting: Connecting<C> = new Connecting(() => {
    const opened: Promise<C> = open(() => connecting.dropConnection(opened));
    return opened;
  }, endConnection);
  const attempt: Target['send'] = async (batch, options) => {
    try {
      return await send(await connecting.get(), batch, options);
    } catch (error) {
      return wholly(batch, { result: 'retry', about: 'target', reason: explain(error) });
    }
  };
  return {
    send: (batch, options) =>
      new Promise((resolve) => {
        const deadline = setTimeout(() => {
          connecting.reset();
          resolve(wholly(batch, { result: 'retry', about: 'target', reason: explain(new NoAnswer()) }));
        }, maxBatchTime * timeout);
        void attempt(batch, options).then((outcome) => {
          clearTimeout(deadline);
          resolve(outcome);
        });
      }),
    close: () => connecting.close(),
  };
}

/** A failure in a word: the code of a system error or the name of the library's error, never its message. */
export function failureCode(error: unknown): string {
  if (!(error instanceof Error)) return 'failed';
  const { code } = error as NodeJS.ErrnoException;
  if (typeof code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(code)) return code;
  const cause = error.cause instanceof Error ? error.cause : undefined;
  return cause ? failureCode(cause) : error.name;
}
