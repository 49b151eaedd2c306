import type { Logger } from 'pino';
import type { ControlService, DeviceAddress, Rejection } from '../src/ports/broker-ports.ts';
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
   * it; with the rejection when the service could not use it, or with the fault for which it was not handled.
   */
  take(
    live: LiveClient,
    device: DeviceAddress,
    payload: Buffer,
    done: (rejection: Rejection | undefined, failure: Error | undefined) => void,
  ): void {
    const { connectionId } = live;
    const { control, log } = this.#services;
    this.#reports.takeInTurn(
      live,
      device,
      () => control.takeMessage(device, payload),
      (rejection, failure) => {
        if (failure) log.error({ err: failure, connectionId }, 'a control message was not handled');
        done(rejection, failure);
      },
    );
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
