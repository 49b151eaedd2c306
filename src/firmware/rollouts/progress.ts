/** The progress of firmware downloads. It changes with every piece sent, so each is written once a second, many in one transaction. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.ts';
import { rowsOf } from '../../../db/registry/statement.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import { type Entry, Gathered } from '../../core/limits/gathered.ts';
import type { Delivery } from './rollout.ts';

/** In milliseconds. */
const writeInterval = 1000;
const devicesPerTransaction = 500;

const setReceived = `UPDATE "firmwareDeliveries"
  SET "state" = 'downloading', "bytes" = "received"."value" ->> 'bytes', "updated" = ?
  FROM json_each(?) AS "received"
  WHERE "rolloutId" = "received"."value" ->> 'rolloutId' AND "deviceId" = "received"."value" ->> 'deviceId'
    AND "offer" = "received"."value" ->> 'offer' AND "state" IN ('pending', 'offered', 'downloading')`;

type Services = { registry: Registry; clock: Clock; log: Logger; gate: Pick<AccountGate, 'isAway' | 'work'> };

/** The bytes that a device has received of a file, and are not written yet. */
interface Received {
  rolloutId: string;
  /** A later offer of the same rollout begins again at zero. */
  offer: number;
  bytes: number;
}

export class Progress {
  readonly #services: Services;
  readonly #written: (rolloutIds: Iterable<string>) => void;
  /** By device. */
  readonly #received = new Gathered<Received>({
    ...{ interval: writeInterval, atOnce: devicesPerTransaction },
    write: (entries) => this.#services.gate.work(() => this.#write(entries)),
  });

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
    this.#received.putValue(accountId, deviceId, { rolloutId, offer, bytes });
  }

  /** Writes what is not written yet. */
  close(): Promise<void> {
    return this.#received.flush();
  }

  /** Never rejects: a lost write only makes progress look older, because the device itself reports the end. */
  async #write(entries: ReadonlyArray<Entry<Received>>): Promise<void> {
    const { registry, clock, log, gate } = this.#services;
    // A device of an account that is away asks again where the account is then, and says how far it has come.
    const here = entries.filter(({ accountId }) => !gate.isAway(accountId));
    try {
      const received = JSON.stringify(here.map(({ key: deviceId, value }) => ({ deviceId, ...value })));
      await registry.transaction((tx) => rowsOf(tx, setReceived, [timestamp(clock), received]));
      this.#written(new Set(here.map(({ value }) => value.rolloutId)));
    } catch (error) {
      log.error({ err: error }, 'the progress of downloads could not be written');
    }
  }
}
