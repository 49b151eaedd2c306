/** Why a message was not stored, not retained or refused: the sentences, and everybody who is told. */
import { type BrokerServices, exceeded, type Rejection } from '../../src/broker-ports.ts';
import { failure, failureOf } from '../../src/errors.ts';
import { type Refusals, reasonOf, refusedPrincipal } from '../refusals.ts';
import type { ServiceChannels } from '../service-channels.ts';
import { type Done, once } from './callbacks.ts';
import type { Message } from './message.ts';

/** The payload cannot be read, or nothing in it can be stored. */
export const notReadable = (reason: string) =>
  failure('invalid', { message: 'The payload was delivered but not stored.', details: [{ message: reason }] });
/** Some points of the payload cannot be stored. */
export const storedInPart = (reason: string) =>
  failure('invalid', { message: 'The payload was delivered, and stored in part.', details: [{ message: reason }] });
/** A limit of the account keeps the message from being retained. */
export const notRetained = (services: BrokerServices, limit: 'mqttRetained' | 'mqttRetainedBytes') =>
  failure('invalid', {
    message: 'The message was delivered but not retained.',
    details: [exceeded(services.config.limits, limit, 'retain')],
  });
const notStored = failure('server', { message: 'The message could not be stored.' });
const noRoom = (reason: string) =>
  failure('storeFull', { message: 'The message could not be stored.', details: [{ message: reason }] });

/** Tells the device on `_rejected`, its list of refusals, and the caller over HTTP. */
export class Rejections {
  readonly #services: Pick<BrokerServices, 'log' | 'messages'>;
  readonly #channels: ServiceChannels;
  readonly #refusals: Refusals;

  constructor(services: Pick<BrokerServices, 'log' | 'messages'>, channels: ServiceChannels, refusals: Refusals) {
    this.#services = services;
    this.#channels = channels;
    this.#refusals = refusals;
  }

  /** Says why on the device's `_rejected`, and in its list of refusals. */
  reject(message: Message, rejection: Rejection, done?: () => void): void {
    this.note(message, rejection);
    const { route, packet, explanations } = message;
    // The turn waits for the explanation.
    if (explanations && !done) explanations.push(() => this.#channels.reject(route, packet, rejection));
    else this.#channels.reject(route, packet, rejection, done);
  }

  /** In the list of refusals only. */
  note(message: Message, rejection: Rejection): void {
    const { packet, route, caller, client, outcome } = message;
    message.isRejected = true;
    if (outcome) outcome.rejection = rejection;
    this.#refusals.note(route.deviceId, {
      action: 'publish',
      topic: packet.topic,
      reason: reasonOf(rejection),
      code: failureOf(rejection.kind).code,
      address: client?.live?.address ?? caller?.address,
      clientId: client?.live?.clientId,
      principal: caller && refusedPrincipal(caller),
    });
  }

  /** The store did not take it: no acknowledgement, so that the client sends it again; the reason on `_rejected`. */
  failed(message: Message, error: Error, settled: Done): void {
    const { packet, client, cause = { connectionId: client?.live?.connectionId } } = message;
    const { log, messages } = this.#services;
    const isRefused = messages.isNoRoom(error);
    // Many come at once, and the log would take the last of the disk: the store itself has said it once.
    log[isRefused ? 'debug' : 'error']({ err: error, topic: packet.topic, ...cause }, 'a message could not be stored');
    const refused = once(() => settled(new Error('not stored', { cause: error })));
    try {
      this.reject(message, isRefused ? noRoom(error.message) : notStored, refused);
    } catch (fault) {
      refused();
      throw fault;
    }
  }
}
