import type { LogInput } from '../db/series.js';
import type { BrokerServices } from '../src/context.js';
import { formatTopic } from '../src/topics.js';
import type { BrokerCore, Incoming } from './aedes-types.js';
import type { DeviceAddress } from './authorize.js';
import { afterBoth } from './ingest.js';
import type { SessionStore } from './persistence.js';

/** Log entries that came over HTTP: whoever listens to a device's `_log` hears them like those of the device. */
export class PostedLogs {
  readonly #services: BrokerServices;
  readonly #aedes: BrokerCore;
  readonly #persistence: Pick<SessionStore, 'keep'>;

  constructor(services: BrokerServices, aedes: BrokerCore, persistence: Pick<SessionStore, 'keep'>) {
    this.#services = services;
    this.#aedes = aedes;
    this.#persistence = persistence;
  }

  /** Stores an entry and its places in stored sessions, in one transaction; its id when that is on disk. */
  async take(
    { accountId, deviceId }: DeviceAddress,
    entry: LogInput & { received: number },
    payload: Buffer,
  ): Promise<string> {
    const { messages, config } = this.#services;
    const topic = formatTopic(config.topicRoot, accountId, deviceId, '_log');
    const packet: Incoming = { cmd: 'publish', topic, payload, qos: 1, retain: false, dup: false };
    const id = await new Promise<string>((resolve, reject) => {
      const stored = afterBoth((error) => (error ? reject(error) : resolve(given)));
      const given = messages.appendLog({ ...entry, accountId, deviceId }, stored);
      this.#persistence.keep(undefined, packet, stored);
    });
    if (!this.#aedes.closed) this.#aedes.publish(packet, () => {});
    return id;
  }
}
