/** Refusals of CONNECT and SUBSCRIBE, and what ends a connection, in the list of the device that was refused. */

import { failureOf, lineOf } from '../src/core/errors.ts';
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import type { ConnectRefused } from './authenticate.ts';
import { connectedDevice } from './authorize.ts';
import type { LiveClient } from './client-types.ts';
import { variableOf } from './connections/counters.ts';
import type { Reason } from './reasons.ts';
import { type Refusal, type Refusals, refusedPrincipal } from './refusals.ts';

/** Notes what the hooks refuse. */
export class RefusalNotes {
  readonly #services: Pick<BrokerServices, 'access' | 'log'>;
  readonly #refusals: Refusals;

  constructor(services: Pick<BrokerServices, 'access' | 'log'>, refusals: Refusals) {
    this.#services = services;
    this.#refusals = refusals;
  }

  /** Into the list of the device that was refused; nothing for other people. */
  note(live: LiveClient, action: 'publish' | 'subscribe', topic: string | null, why: Reason): void {
    const device = connectedDevice(live);
    if (!device) return;
    const { address, clientId, identity } = live;
    const principal = identity && refusedPrincipal(identity.caller);
    const said = { reason: lineOf(why), cause: why.code, code: failureOf(why.kind).code };
    this.#refusals.note(device.deviceId, { action, topic, ...said, address, clientId, principal });
  }

  /** A CONNECT is noted when its name is that of a device, proven or not. Never throws: it has been answered already. */
  noteConnect(
    name: string,
    { address, clientId }: Pick<LiveClient, 'address' | 'clientId'>,
    refused: ConnectRefused,
  ): void {
    try {
      if (!this.#services.access.placement(name)) return;
    } catch (error) {
      this.#services.log.error({ err: error }, 'a refused CONNECT could not be noted');
      return;
    }
    this.#refusals.note(name, { ...refusedConnect(name, refused), address, clientId });
  }
}

/** A CONNECT that was refused, as it is noted of the device that it names. */
export function refusedConnect(
  deviceId: string,
  { limit, message, reason: why, returnCode, isProven }: ConnectRefused,
): Pick<Refusal, 'action' | 'topic' | 'reason' | 'cause' | 'code' | 'principal'> {
  return {
    action: 'connect',
    topic: null,
    reason: limit === undefined ? message : `${variableOf(limit)}: ${message}`,
    cause: (limit ?? why).replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase()),
    code: returnCode,
    principal: isProven ? { type: 'device', id: deviceId } : undefined,
  };
}
