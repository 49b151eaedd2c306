/** What a message must be, whatever its topic and the rights of its sender allow. */
import { isUtf8 } from 'node:buffer';
import type { Caller } from '../src/core/caller.ts';
import { type ClientProperties, maxUserProperties } from '../src/core/formats/message-properties.ts';
import type { BrokerBase } from '../src/ports/broker-ports.ts';
import type { Authority } from './authorize.ts';
import type { Incoming } from './message-types.ts';
import { type Reason, reason } from './reasons.ts';

interface CheckParts {
  config: BrokerBase['config'];
  authority: Pick<Authority, 'decide'>;
  maxTopicLevels: number;
}

/** Looks at messages that are published, and at wills when their clients connect. */
export class MessageChecks {
  readonly #parts: Pick<CheckParts, 'authority' | 'maxTopicLevels'>;
  readonly #maxPayloadBytes: number;
  readonly #maxPropertyBytes: number;

  constructor({ config, ...parts }: CheckParts) {
    this.#parts = parts;
    const { maxPayloadBytes, maxPropertyBytes } = config.mqtt;
    this.#maxPayloadBytes = maxPayloadBytes || Number.POSITIVE_INFINITY;
    this.#maxPropertyBytes = maxPropertyBytes || Number.POSITIVE_INFINITY;
  }

  /** Why nobody gets a message; undefined when its topic and the rights of its sender decide. */
  refusalOf(
    caller: Caller,
    { topic, payload, clientProperties }: Pick<Incoming, 'topic' | 'payload' | 'clientProperties'>,
  ): Reason | undefined {
    if (payload.length > this.#maxPayloadBytes) return reason('payloadTooLarge');
    if (levelsOf(topic) > this.#parts.maxTopicLevels) return reason('tooManyLevels');
    return clientProperties && this.#refusalOfProperties(caller, payload, clientProperties);
  }

  #refusalOfProperties(caller: Caller, payload: Buffer, clientProperties: ClientProperties): Reason | undefined {
    const { travelling, userProperties, isText, responseTopic } = clientProperties;
    if (travelling.length > this.#maxPropertyBytes || userProperties > maxUserProperties)
      return reason('propertiesTooLarge');
    // Otherwise a back-end would publish where the sender may not look.
    if (responseTopic !== undefined && !this.#mayAnswerOn(caller, responseTopic))
      return reason('responseTopicNotPermitted');
    return isText && !isUtf8(payload) ? reason('noText') : undefined;
  }

  /** A topic, no filter [MQTT-3.3.2-14]. */
  #mayAnswerOn(caller: Caller, topic: string): boolean {
    return !/[+#]|^\$/.test(topic) && this.#parts.authority.decide(caller, 'subscribe', topic) === 'granted';
  }
}

/** Levels of a topic or filter. */
export function levelsOf(topic: string): number {
  let levels = 1;
  for (let at = topic.indexOf('/'); at !== -1; at = topic.indexOf('/', at + 1)) levels += 1;
  return levels;
}
