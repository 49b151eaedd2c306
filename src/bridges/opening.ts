/** Opens the targets of bridges, and lets them send in turns. */
import type { Logger } from 'pino';
import type { Row } from '../../db/registry/records.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { Scheduler, unbounded } from '../core/scheduler/scheduler.ts';
import type { Sealing } from '../identity/secrets/sealing.ts';
import { openHeaders } from './headers.ts';
import { kindOf } from './kinds.ts';
import { missingLibraries } from './libraries.ts';
import { type BridgedMessage, type Form, type Target, wholly } from './target.ts';

export type BridgeRow = Row<'bridges'>;

/** Batches under way at once, of all bridges and of those of one account: a slow target holds its place for long. */
const maxUnderWay = { ofAll: 64, ofAccount: 16 };
/** Bytes of payload that count as one message, and messages of an ordinary batch. */
const messageBytes = 1000;
const ordinaryBatch = 100;

interface OpeningServices {
  config: Pick<Config, 'bridges' | 'headerPrefix'>;
  clock: Clock;
  log: Logger;
  sealing: Sealing;
}

/** Opens targets that share one queue, which is fair by account. Bridges wait with a batch or two: their number is the bound. */
export class Opening {
  readonly #around: OpeningServices;
  readonly #queue = new Scheduler({
    atOnce: maxUnderWay.ofAll,
    perAccount: maxUnderWay.ofAccount,
    maxWaiting: unbounded,
    quantum: ordinaryBatch,
  });
  /** What goes to a target is made, and signed, at once: a megabyte of it takes milliseconds of the event loop. */
  readonly #making = new Scheduler({ atOnce: 1, maxWaiting: unbounded, quantum: ordinaryBatch, isLong: true });

  constructor(around: OpeningServices) {
    this.#around = around;
  }

  /** @throws Error if the row cannot be unsealed, or its kind is unknown. */
  open(row: BridgeRow, sealedSecret: string): Target {
    const { sealing, clock, log, config } = this.#around;
    const { timeout, allowPrivate } = config.bridges;
    const kind = kindOf(row.kind);
    const missing = missingLibraries(kind);
    if (missing) {
      log.error({ bridgeId: row.id, kind: row.kind }, `a bridge of this kind ${missing}, then restart it`);
      return waitingFor(missing);
    }
    const target = kind.open(
      {
        bridgeId: row.id,
        url: new URL(sealing.open(urlOwner(row.id), row.sealedUrl)),
        form: row.form as Form,
        settings: JSON.parse(row.settings),
        credentials: readCredentials(row.kind, sealing.open(secretOwner(row.id), sealedSecret)),
        headers: Object.fromEntries(openHeaders(sealing, row).map(({ name, value }) => [name, value])),
        ca: row.ca ?? undefined,
      },
      { clock, headerPrefix: config.headerPrefix, timeout, allowPrivate },
    );
    const lane = { accountId: row.accountId, callerId: row.id };
    const send: Target['send'] = (batch, options) =>
      this.#queue.run(lane, costOf(batch), async () => {
        const { sent } = await this.#making.run(lane, costOf(batch), async () => ({
          sent: target.send(batch, options),
        }));
        return sent;
      });
    return {
      send,
      close: () => target.close(),
      get note() {
        return target.note;
      },
    };
  }
}

/** Delivers nothing, so that guaranteed messages stay pending. */
function waitingFor(reason: string): Target {
  return { send: async (batch) => wholly(batch, { result: 'retry', about: 'target', reason }), close: () => {} };
}

/** The owners under which texts of a bridge are sealed. */
export const secretOwner = (id: string) => `bridge/${id}/secret`;
export const urlOwner = (id: string) => `bridge/${id}/url`;

/** The cost of a batch in the queue: its messages, and the bytes of large ones. */
function costOf(batch: readonly BridgedMessage[]): number {
  return batch.reduce((cost, { size }) => cost + 1 + size / messageBytes, 0);
}

/** Webhooks seal their secret alone, all others a JSON object. */
function readCredentials(kind: string, text: string): Record<string, string> {
  return kind === 'webhook' ? { secret: text } : JSON.parse(text);
}
