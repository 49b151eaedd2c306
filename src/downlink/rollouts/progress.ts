/** The progress of firmware downloads. It changes with every piece sent, so it is written once a second, for many devices in one transaction. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.js';
import { type Clock, timestamp } from '../../clock.js';
import type { Moves } from '../../moves.js';
import type { Delivery } from './rollout.js';

/** In milliseconds. */
const writeInterval = 1000;
const devicesPerTransaction = 100;

type Services = { registry: Registry; clock: Clock; log: Logger; moves: Pick<Moves, 'isAway' | 'work'> };

/** The bytes that a device has received of a file, and are not written yet. */
interface Received {
  accountId: string;
  rolloutId: string;
  /** A later offer of the same rollout begins again at zero. */
  offer: number;
  bytes: number;
}

export class Progress {
  readonly #services: Services;
  readonly #written: (rolloutIds: Iterable<string>) => void;
  /** By device id. */
  readonly #unwritten = new Map<string, Received>();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  /** `written` is called after each write, with the rollouts of its devices. */
  constructor(services: Services, written: (rolloutIds: Iterable<string>) => void) {
    this.#services = services;
    this.#written = written;
  }

  /** Notes how many bytes of a file a device has received. */
  received(
    { accountId, deviceId, rolloutId, offer }: Pick<Delivery, 'accountId' | 'deviceId' | 'rolloutId' | 'offer'>,
    bytes: number,
  ): void {
    this.#unwritten.set(deviceId, { accountId, rolloutId, offer, bytes });
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#writing.then(() => this.#services.moves.work(() => this.#write()));
    }, writeInterval);
    this.#timer.unref();
  }

  /** Writes what is not written yet. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#writing;
    await this.#write();
  }

  /** Never rejects: a lost write only makes progress look older, because the device itself reports the end. */
  async #write(): Promise<void> {
    const { registry, clock, log, moves } = this.#services;
    // A device of an account that is away asks again where the account is then, and says how far it has come.
    const all = [...this.#unwritten].filter(([, { accountId }]) => !moves.isAway(accountId));
    this.#unwritten.clear();
    try {
      for (let from = 0; from < all.length; from += devicesPerTransaction) {
        const batch = all.slice(from, from + devicesPerTransaction);
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
      log.error({ err: error }, 'the progress of downloads could not be written');
    }
  }
}
