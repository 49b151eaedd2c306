import type { LogInput } from '../../db/messages/store.ts';
import type { BrokerServices } from '../../src/broker-ports.ts';
import { newId } from '../../src/ids.ts';
import { formatTopic } from '../../src/topics.ts';
import type { BrokerCore, Incoming } from '../aedes-types.ts';
import type { DeviceAddress } from '../authorize.ts';
import { afterBoth } from '../ingest/callbacks.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { Marks } from './marks.ts';

export type PostedLog = LogInput & { received: number };

/** Log entries that came over HTTP: anyone who listens to a device's `_log` hears them like those of the device. */
export class PostedLogs {
  readonly #services: BrokerServices;
  readonly #aedes: BrokerCore;
  readonly #persistence: Pick<SessionStore, 'keep'>;
  readonly #marks: Marks;

  constructor(services: BrokerServices, aedes: BrokerCore, persistence: Pick<SessionStore, 'keep'>, marks: Marks) {
    this.#services = services;
    this.#aedes = aedes;
    this.#persistence = persistence;
    this.#marks = marks;
  }

  /** Stores an entry and its places in stored sessions, in one transaction; its id when that is on disk. */
  async take({ accountId, deviceId }: DeviceAddress, entry: PostedLog, payload: Buffer): Promise<string> {
    const { messages, config } = this.#services;
    const topic = formatTopic(config.topicRoot, accountId, deviceId, '_log');
    const packet: Incoming = { cmd: 'publish', topic, payload, qos: 1, retain: false, dup: false };
    const id = newId(accountId);
    await new Promise<void>((resolve, reject) => {
      const stored = afterBoth((error) => {
        if (error) {
          reject(error);
          return;
        }
        // At once: what is stored later is handed on later, and readers get ids that only grow.
        if (!this.#aedes.closed) this.#aedes.publish(packet, () => {});
        resolve();
      });
      messages.appendLog({ ...entry, id, accountId, deviceId }, (error, end) => {
        if (end && !error) this.#marks.stored(accountId, payload, end, { points: 0, logs: 1 });
        stored(error);
      });
      this.#persistence.keep(undefined, packet, stored);
    });
    return id;
  }
}
