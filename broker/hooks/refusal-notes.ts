/** Refusals at the MQTT hooks, in the list of the device that was refused or that the refused message names. */
import type { BrokerServices, Rejection } from '../../src/broker-ports.ts';
import { failure, failureOf } from '../../src/errors.ts';
import type { LiveClient } from '../aedes-types.ts';
import type { ConnectRefused } from '../authenticate.ts';
import { connectedDevice } from '../authorize.ts';
import { type LimitName, variableOf } from '../connections/counters.ts';
import { type Refusals, reasonOf, refusedPrincipal } from '../refusals.ts';

export const payloadTooLarge = failure('tooLarge', {
  message: `${variableOf('max_payload_bytes')}: the payload is too large.`,
});
export const tooManyRefusals = failure('tooMany', {
  message: `${variableOf('refusals_per_minute')}: refused too often, disconnected.`,
});
export const tooManyUnreleased = failure('tooMany', {
  message: `${variableOf('max_unreleased_per_account')}: too many QoS 2 messages of the account wait for PUBREL, disconnected.`,
});
export const farOver = (limit: LimitName) =>
  failure('tooMany', { message: `${variableOf(limit)}: far over it, disconnected.` });
export const malformedTopic = failure('invalid', { message: 'The topic is malformed; the connection ended.' });

/** Notes what the hooks refuse. */
export class RefusalNotes {
  readonly #services: Pick<BrokerServices, 'access' | 'log'>;
  readonly #refusals: Refusals;
  /** Errors whose refusal is in its list already. */
  readonly #noted = new WeakSet<Error>();

  constructor(services: Pick<BrokerServices, 'access' | 'log'>, refusals: Refusals) {
    this.#services = services;
    this.#refusals = refusals;
  }

  /** The connection will end by this error, and its refusal has been noted. */
  setNoted(error: Error): void {
    this.#noted.add(error);
  }

  /** Whether the refusal behind this error has been noted. */
  isNoted(error: Error): boolean {
    return this.#noted.has(error);
  }

  /** Into the list of the device that was refused, or that the refused message names; nothing for other people. */
  note(
    live: LiveClient,
    action: 'publish' | 'subscribe',
    topic: string | null,
    rejection: Rejection,
    device = connectedDevice(live),
  ): void {
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
