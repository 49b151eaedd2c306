import { failureOf, lineOf } from '../../src/core/errors.ts';
import { exceeded } from '../../src/core/limits/table.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import { faultOf } from '../connections/safe-error.ts';
import { type Reason, reason } from '../reasons.ts';
import { type Refusals, refusedPrincipal } from '../refusals.ts';
import type { ServiceChannels } from '../service-channels.ts';
import type { Message, Sent } from './message.ts';

/** Tells why a message was refused, not stored or not retained: the device on `_rejected`, and in its list of refusals. */
export class Rejections {
  readonly #services: Pick<BrokerServices, 'config' | 'log' | 'messages'>;
  readonly #channels: ServiceChannels;
  readonly #refusals: Refusals;

  constructor(
    services: Pick<BrokerServices, 'config' | 'log' | 'messages'>,
    channels: ServiceChannels,
    refusals: Refusals,
  ) {
    this.#services = services;
    this.#channels = channels;
    this.#refusals = refusals;
  }

  /** A message that is delivered all the same: says why on the device's `_rejected`, and in its list of refusals. */
  explain(message: Message, why: Reason, done?: () => void): void {
    const { route, packet, explanations } = message;
    message.reason = why;
    this.note(message, why, route.deviceId);
    // The turn waits for the explanation.
    if (explanations && !done) explanations.push(() => this.#channels.explain(route, packet, why));
    else this.#channels.explain(route, packet, why, done);
  }

  /** A message that is not delivered: its explanation goes to the subscribers of `_rejected` instead. */
  replace(message: Message, why: Reason): void {
    const { route, packet } = message;
    message.reason = why;
    this.note(message, why, route.deviceId);
    message.packet = this.#channels.explanationOf(route, packet, why);
  }

  /** In the list of refusals of a device only. */
  note({ packet, caller, origin }: Sent, why: Reason, deviceId: string): void {
    const { live } = origin;
    this.#refusals.note(deviceId, {
      action: 'publish',
      topic: packet.topic,
      reason: lineOf(why),
      cause: why.code,
      code: failureOf(why.kind).code,
      address: live?.address ?? caller.address,
      clientId: live?.clientId,
      principal: refusedPrincipal(caller),
    });
  }

  /** Beyond the limits of its account a message is delivered and not retained, and the device hears why. */
  notRetained(message: Message, limit: 'mqttRetained' | 'mqttRetainedBytes'): void {
    this.explain(message, reason('notRetained', [exceeded(this.#services.config.limits, limit, 'retain')]));
  }

  /**
   * The store did not take it: no acknowledgement, so that the client sends it again; the reason on `_rejected`. Resolves to
   * what ends its connection when that has been handed on.
   */
  async failed(message: Message, error: Error): Promise<Error> {
    const { packet, origin } = message;
    const { live, cause = { connectionId: live?.connectionId } } = origin;
    const { log, messages } = this.#services;
    const isRefused = messages.isNoRoom(error);
    // Many come at once, and the log would take the last of the disk: the store itself has said it once.
    log[isRefused ? 'debug' : 'error']({ err: error, topic: packet.topic, ...cause }, 'a message could not be stored');
    const why = isRefused ? reason('storeFull', [{ message: error.message }]) : reason('notStored');
    try {
      await new Promise<void>((resolve) => this.explain(message, why, resolve));
    } catch (fault) {
      log.error({ fault: faultOf(fault) }, 'a message could not be explained');
    }
    return new Error('not stored', { cause: error });
  }
}
