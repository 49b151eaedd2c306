import type { Caller } from '../src/core/caller.ts';
import { errorBody } from '../src/core/errors.ts';
import { isNestedDeeply } from '../src/core/formats/json-size.ts';
import { controlTopic, formatTopic, parseTopic } from '../src/core/topics.ts';
import type { BrokerBase, DeviceAddress, Rejection } from '../src/ports/broker-ports.ts';
import { faultOf } from './connections/safe-error.ts';
import type { Incoming } from './message-types.ts';
import type { Routing } from './routing.ts';

/** Topic characters that an explanation repeats at most. */
const repeatedTopic = 1024;
/** Bytes of JSON; a longer state is left out of an explanation. */
const maxRepeatedStateLength = 16_384;

/** What the service publishes on service channels and control topics. */
export class ServiceChannels {
  readonly #services: BrokerBase;
  readonly #root: string;
  readonly #routing: Routing;

  constructor(services: BrokerBase, routing: Routing) {
    this.#services = services;
    this.#root = services.config.topicRoot;
    this.#routing = routing;
  }

  /** Says on the device's `_rejected` why a message was not stored or not retained; `done` after it has been handed on. */
  explain(device: DeviceAddress, message: Incoming, rejection: Rejection, done?: () => void): void {
    this.#publish({ ...this.explanationOf(device, message, rejection), qos: 1 }, done);
  }

  /** What is said on the device's `_rejected` instead of a refused message, at its QoS. */
  explanationOf({ accountId, deviceId }: DeviceAddress, message: Incoming, rejection: Rejection): Incoming {
    const topic = formatTopic(this.#root, accountId, deviceId, '_rejected');
    return {
      cmd: 'publish',
      topic,
      payload: explanation(message, rejection),
      qos: message.qos,
      retain: false,
      dup: false,
    };
  }

  /** Publishes on a channel for firmware or commands; resolves when the device's connections have taken it. */
  sendDown(device: DeviceAddress, channel: string, payload: Buffer, expires?: number): Promise<void> {
    const packet = this.#packet(device, channel, payload);
    if (expires !== undefined) packet.messageExpiry = expires;
    return new Promise((resolve) => this.#publish(packet, resolve));
  }

  /** Publishes on a device's control topic; resolves when its connections have taken it. */
  sendControl(deviceId: string, payload: Buffer, qos: 0 | 1): Promise<void> {
    const topic = controlTopic(this.#services.config.controlRoot, deviceId, 'cln');
    return new Promise((resolve) =>
      this.#publish({ cmd: 'publish', topic, payload, qos, retain: false, dup: false }, resolve),
    );
  }

  /** Publishes changed fields on the device's `_updates/fields`. */
  deviceUpdated(device: DeviceAddress, changes: Record<string, unknown>): void {
    if (Object.keys(changes).length > 0) this.#publish(this.#packet(device, '_updates/fields', stateOf(changes)));
  }

  /** What the caller sees of the state of the device whose `_updates/fields` this is; undefined for other topics. */
  async stateOn(caller: Caller, topic: string): Promise<Buffer | undefined> {
    const named = parseTopic(this.#root, topic);
    if (named?.channel !== '_updates/fields') return undefined;
    const state = await this.#services.devices.state(caller, named.deviceId);
    return state && stateOf(state);
  }

  #packet({ accountId, deviceId }: DeviceAddress, channel: string, payload: Buffer): Incoming {
    const topic = formatTopic(this.#root, accountId, deviceId, channel);
    return { cmd: 'publish', topic, payload, qos: 1, retain: false, dup: false };
  }

  #publish(packet: Incoming, done: () => void = () => {}): void {
    // While the broker closes there is nobody left to hear it.
    if (this.#routing.isClosed) {
      done();
      return;
    }
    this.#routing.publish(packet, (error) => {
      if (error)
        this.#services.log.error(
          { fault: faultOf(error), topic: packet.topic },
          'a message of the service was not published',
        );
      done();
    });
  }
}

function explanation({ topic, payload }: Incoming, rejection: Rejection): Buffer {
  const said = JSON.stringify({ error: errorBody(rejection), topic: topic.slice(0, repeatedTopic) });
  const state = topic.endsWith('/_set/fields') ? stateIn(payload) : undefined;
  return Buffer.from(state === undefined ? said : `${said.slice(0, -1)},"state":${state}}`);
}

/** The state that a refused `_set/fields` message wanted, as JSON; undefined for none, and for one that is long or nested deeply. */
function stateIn(payload: Buffer): string | undefined {
  try {
    const text = payload.toString();
    if (isNestedDeeply(text)) return undefined;
    const wanted = JSON.parse(text) as { state?: unknown } | null;
    const state = JSON.stringify(wanted?.state) as string | undefined;
    return state !== undefined && Buffer.byteLength(state) <= maxRepeatedStateLength ? state : undefined;
  } catch {
    return undefined;
  }
}

function stateOf(fields: Record<string, unknown>): Buffer {
  return Buffer.from(JSON.stringify({ state: fields }));
}
