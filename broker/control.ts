import type { Logger } from 'pino';
import type { ControlService, Rejection } from '../src/ports/broker-ports.ts';
import type { DeviceAddress } from './authorize.ts';
import type { LiveClient } from './client-types.ts';
import type { Reports } from './ingest/reports.ts';

type ControlTopicServices = { control: ControlService; log: Pick<Logger, 'error'> };

/** Messages of devices on their control topics. No subscriber ever gets them. */
export class ControlTopics {
  readonly #services: ControlTopicServices;
  readonly #reports: Reports;

  constructor(services: ControlTopicServices, reports: Reports) {
    this.#services = services;
    this.#reports = reports;
  }

  /**
   * Hands a message on `…/svc` to the service. `done` is called in the client's order, when the service has finished with
   * it; with the rejection when the service could not use it.
   */
  take(live: LiveClient, device: DeviceAddress, payload: Buffer, done: (rejection?: Rejection) => void): void {
    let rejection: Rejection | undefined;
    const turn = live.turns.reserve(() => done(rejection));
    const { connectionId } = live;
    const lane = { accountId: device.accountId, callerId: device.deviceId };
    this.#reports
      .take({ live, lane }, () => this.#services.control.takeMessage(device, payload))
      .then((answer) => {
        rejection = answer;
      })
      .catch((error) => this.#services.log.error({ err: error, connectionId }, 'a control message was not handled'))
      .finally(() => live.turns.complete(turn));
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
}
