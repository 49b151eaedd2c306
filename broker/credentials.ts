/** `_credentials`: a device asks for its next credential, and this connection alone hears the answer, on the same topic. */
import type { BrokerServices, DeviceAddress } from '../src/ports/broker-ports.ts';
import { credentialOf } from './authenticate.ts';
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

  /** Answers a request. `done` is called in the client's order, before the answer leaves; with the fault for which there is none. */
  take(
    live: LiveClient,
    device: DeviceAddress,
    topic: string,
    payload: Buffer,
    done: (failure: Error | undefined) => void,
  ): void {
    const { credentials, log } = this.#services;
    const present = live.identity && credentialOf(live.identity);
    this.#reports.takeInTurn(
      live,
      device,
      async () => present && credentials.renewMessage(device.deviceId, present, payload),
      (answer, failure) => {
        if (failure) log.error({ fault: faultOf(failure) }, 'a credential was not renewed');
        done(failure);
        if (answer) this.#answer(live, topic, answer);
      },
    );
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
