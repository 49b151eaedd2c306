import type { BrokerServices, Rejection } from '../src/broker-ports.ts';
import { controlTopic } from '../src/topics.ts';
import type { BrokerCore, Incoming, LiveClient } from './aedes-types.ts';
import type { DeviceAddress } from './authorize.ts';
import { faultOf } from './connections/safe-error.ts';
import type { Reports } from './ingest/reports.ts';
import { silence } from './service-channels.ts';

type Needed = Pick<BrokerServices, 'config' | 'control' | 'log'>;

/** Messages between the service and devices on the control topics. No subscriber ever gets what a device publishes. */
export class ControlTopics {
  readonly #services: Needed;
  readonly #aedes: Pick<BrokerCore, 'closed' | 'publish'>;
  readonly #reports: Reports;

  constructor(services: Needed, aedes: Pick<BrokerCore, 'closed' | 'publish'>, reports: Reports) {
    this.#services = services;
    this.#aedes = aedes;
    this.#reports = reports;
  }

  /**
   * Hands a message on `…/svc` to the service. `done` is called in the client's order, when the service has finished with
   * it; with the rejection when the service could not use it.
   */
  take(live: LiveClient, device: DeviceAddress, packet: Incoming, done: (rejection?: Rejection) => void): void {
    const { payload } = packet;
    // The broker goes on with the same packet, and nobody may hear this one.
    silence(packet);
    let rejection: Rejection | undefined;
    const turn = live.turns.take(() => done(rejection));
    const { connectionId } = live;
    const lane = { accountId: device.accountId, callerId: device.deviceId };
    this.#reports
      .take({ live, lane }, () => this.#services.control.take(device, payload))
      .then((answer) => {
        rejection = answer;
      })
      .catch((error) => this.#services.log.error({ err: error, connectionId }, 'a control message was not handled'))
      .finally(() => live.turns.finish(turn));
  }

  /** The device has subscribed to its `…/cln`. */
  listening(device: DeviceAddress): void {
    try {
      this.#services.control.listening(device);
    } catch (error) {
      this.#services.log.error(
        { err: error, deviceId: device.deviceId },
        'a device on its control topic was not noted',
      );
    }
  }

  /** Publishes on `…/cln`; resolves when its connections have taken the message. Without a subscription nothing happens. */
  send({ deviceId }: Pick<DeviceAddress, 'deviceId'>, payload: Buffer, qos: 0 | 1): Promise<void> {
    return new Promise((resolve) => {
      if (this.#aedes.closed) {
        resolve();
        return;
      }
      const topic = controlTopic(this.#services.config.controlRoot, deviceId, 'cln');
      this.#aedes.publish({ cmd: 'publish', topic, payload, qos, retain: false, dup: false }, (error) => {
        if (error) this.#services.log.error({ fault: faultOf(error), topic }, 'a control message was not published');
        resolve();
      });
    });
  }
}
