/** `_credentials`: a device asks for its next credential, and this connection alone hears the answer, on the same topic. */
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import { credentialOf } from './authenticate.ts';
import type { DeviceAddress } from './authorize.ts';
import type { LiveClient } from './client-types.ts';
import { faultOf } from './connections/safe-error.ts';
import type { Reports } from './ingest/reports.ts';
import { write, writePayload } from './packets/write.ts';

type CredentialChannelServices = Pick<BrokerServices, 'credentials' | 'log'>;

export class CredentialChannel {
  readonly #services: CredentialChannelServices;
  readonly #reports: Reports;

  constructor(services: CredentialChannelServices, reports: Reports) {
    this.#services = services;
    this.#reports = reports;
  }

  /** Answers a request. `done` is called in the client's order, before the answer leaves. */
  take(live: LiveClient, device: DeviceAddress, topic: string, payload: Buffer, done: () => void): void {
    const present = live.identity && credentialOf(live.identity);
    let answer: Buffer | undefined;
    const turn = live.turns.reserve(() => {
      done();
      if (answer) this.#answer(live, topic, answer);
    });
    const lane = { accountId: device.accountId, callerId: device.deviceId };
    this.#reports
      .take(
        { live, lane },
        async () => present && this.#services.credentials.renewMessage(device.deviceId, present, payload),
      )
      .then((given) => {
        answer = given;
      })
      .catch((error) => this.#services.log.error({ fault: faultOf(error) }, 'a credential was not renewed'))
      .finally(() => live.turns.complete(turn));
  }

  /** At QoS 0: the queue of a stored session would keep the secret. Lost, it is asked for again. */
  #answer({ client, ended }: LiveClient, topic: string, payload: Buffer): void {
    if (ended || client.closed) return;
    const bytes = client.codec.publish({ topic, retain: false, dup: false }, payload, 0, undefined);
    // Too long for what the client takes.
    if (!bytes) return;
    write(client.conn, bytes);
    writePayload(client.conn, payload);
  }
}
