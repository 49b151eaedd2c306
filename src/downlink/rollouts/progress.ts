/** How far downloads have come: what is measured all the time is written now and then, many devices at once. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.js';
import { type Clock, timestamp } from '../../clock.js';
import type { Moves } from '../../moves.js';
import type { Delivery } from './rollout.js';

/** Milliseconds between two writes, and devices of one transaction. */
const writeInterval = 1000;
const atOnce = 100;

type Services = { registry: Registry; clock: Clock; log: Logger; moves: Pick<Moves, 'isAway' | 'work'> };

interface Come {
  accountId: string;
  rolloutId: string;
  /** A later offer of the same rollout begins again at zero. */
  offer: number;
  bytes: number;
}

export class Progress {
  readonly #services: Services;
  readonly #written: (rolloutIds: Iterable<string>) => void;
  readonly #waiting = new Map<string, Come>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  /** `written` hears of the rollouts whose devices have come further. */
  constructor(services: Services, written: (rolloutIds: Iterable<string>) => void) {
    this.#services = services;
    this.#written = written;
  }

  /** A device has got so many bytes of a file. */
  come(
    { accountId, deviceId, rolloutId, offer }: Pick<Delivery, 'accountId' | 'deviceId' | 'rolloutId' | 'offer'>,
    bytes: number,
  ): void {
    this.#waiting.set(deviceId, { accountId, rolloutId, offer, bytes });
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#writing.then(() => this.#services.moves.work(() => this.#write()));
    }, writeInterval);
    this.#timer.unref();
  }

  /** Writes what is waiting. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    await this.#write();
  }

  /** Never rejects: the device itself says what counts. */
  async #write(): Promise<void> {
    const { registry, clock, log, moves } = this.#services;
    // A device of an account that is away asks again where the account is then, and says how far it has come.
    const all = [...this.#waiting].filter(([, { accountId }]) => !moves.isAway(accountId));
    this.#waiting.clear();
    try {
      for (let from = 0; from < all.length; from += atOnce) {
        const batch = all.slice(from, from + atOnce);
        await registry.transaction(async (tx) => {
          for (const [deviceId, { rolloutId, offer, bytes }] of batch)
            await tx
              .updateTable('firmwareDeliveries')
              .set({ state: 'downloading', bytes, updated: timestamp(clock) })
              .where('rolloutId', '=', rolloutId)
              .where('deviceId', '=', deviceId)
              .where('offer', '=', offer)
              .where('state', 'in', ['pending', 'offered', 'downloading'])
              .execute();
        });
      }
      this.#written(new Set(all.map(([, { rolloutId }]) => rolloutId)));
    } catch (error) {
      log.error({ err: error }, 'how far downloads have come could not be written');
    }
  }
}
