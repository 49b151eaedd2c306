/** Refusals of CONNECT and SUBSCRIBE, and what ends a connection, in the list of the device that was refused. */
import type { BrokerServices, Rejection } from '../../src/broker-ports.ts';
import { failureOf } from '../../src/errors.ts';
import type { LiveClient } from '../aedes-types.ts';
import type { ConnectRefused } from '../authenticate.ts';
import { connectedDevice } from '../authorize.ts';
import { variableOf } from '../connections/counters.ts';
import { type Refusals, reasonOf, refusedPrincipal } from '../refusals.ts';

/** Notes what the hooks refuse. */
export class RefusalNotes {
  readonly #services: Pick<BrokerServices, 'access' | 'log'>;
  readonly #refusals: Refusals;

  constructor(services: Pick<BrokerServices, 'access' | 'log'>, refusals: Refusals) {
    this.#services = services;
    this.#refusals = refusals;
  }

  /** Into the list of the device that was refused; nothing for other people. */
  note(live: LiveClient, action: 'publish' | 'subscribe', topic: string | null, rejection: Rejection): void {
    const device = connectedDevice(live);
    if (!device) return;
    const { address, clientId, identity } = live;
    const principal = identity && refusedPrincipal(identity.caller);
    const why = { reason: reasonOf(rejection), code: failureOf(rejection.kind).code };
    this.#refusals.note(device.deviceId, { action, topic, ...why, address, clientId, principal });
  }

  /** A CONNECT is noted when its name is that of a device, proven or not. Never throws: it has been answered already. */
  noteConnect(
    name: string,
    { address, clientId }: Pick<LiveClient, 'address' | 'clientId'>,
    { limit, message, returnCode: code, isProven }: ConnectRefused,
  ): void {
    try {
      if (!this.#services.access.placement(name)) return;
    } catch (error) {
      this.#services.log.error({ err: error }, 'a refused CONNECT could not be noted');
      return;
    }
    const reason = limit === undefined ? message : `${variableOf(limit)}: ${message}`;
    const principal = isProven ? ({ type: 'device', id: name } as const) : undefined;
    this.#refusals.note(name, { action: 'connect', topic: null, reason, code, address, clientId, principal });
  }
}
