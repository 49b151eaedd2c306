import type { BrokerGround, Rejection } from '../src/broker-ports.ts';
import { errorBody } from '../src/errors.ts';
import { isNestedDeeply } from '../src/formats/json-size.ts';
import { formatTopic, parseTopic } from '../src/topics.ts';
import { type BrokerCore, forOneClient, type Incoming, type LiveClient } from './aedes-types.ts';
import type { DeviceAddress } from './authorize.ts';
import { faultOf } from './connections/safe-error.ts';

/** Topic characters that an explanation repeats at most. */
const repeatedTopic = 1024;
/** Bytes of JSON; a longer state is left out of an explanation. */
const maxRepeatedStateLength = 16_384;

/** The channels on which only the service speaks: `_rejected` and `_updates/fields`. */
export class ServiceChannels {
  readonly #services: BrokerGround;
  readonly #root: string;
  readonly #aedes: BrokerCore;

  constructor(services: BrokerGround, aedes: BrokerCore) {
    this.#services = services;
    this.#root = services.config.topicRoot;
    this.#aedes = aedes;
  }

  /** Explains on the device's `_rejected` why a message was refused or not stored; `done` after it has been handed on. */
  reject(device: DeviceAddress, message: Incoming, rejection: Rejection, done: () => void = () => {}): void {
    this.#publish(device, '_rejected', explanation(message, rejection), done);
  }

  /** Turns a refused message itself into its explanation; its QoS and packet id stay, for the acknowledgement. */
  rewrite(device: DeviceAddress, message: Incoming, rejection: Rejection): void {
    message.payload = explanation(message, rejection);
    message.topic = formatTopic(this.#root, device.accountId, device.deviceId, '_rejected');
    message.retain = false;
  }

  /** Publishes on a channel for firmware or commands; resolves when the device's connections have taken it. */
  sendDown(device: DeviceAddress, channel: string, payload: Buffer): Promise<void> {
    return new Promise((resolve) => this.#publish(device, channel, payload, resolve));
  }

  /** Publishes changed fields on the device's `_updates/fields`. */
  deviceUpdated(device: DeviceAddress, changes: Record<string, unknown>): void {
    if (Object.keys(changes).length > 0) this.#publish(device, '_updates/fields', stateOf(changes));
  }

  /** Sends the whole state to a connection that has subscribed to exactly this device's `_updates/fields`. */
  async sendState({ client }: LiveClient, topic: string, qos: 0 | 1 | 2): Promise<void> {
    const named = parseTopic(this.#root, topic);
    if (named?.channel !== '_updates/fields') return;
    const state = await this.#services.deviceState(named.deviceId);
    if (!state || client.closed) return;
    const packet = { cmd: 'publish', topic, payload: stateOf(state), qos, retain: false, dup: false } as const;
    client.publish(Object.assign(packet, { brokerId: forOneClient }), () => {});
  }

  #publish(
    { accountId, deviceId }: DeviceAddress,
    channel: string,
    payload: Buffer,
    done: () => void = () => {},
  ): void {
    // While the broker closes there is nobody left to hear it.
    if (this.#aedes.closed) {
      done();
      return;
    }
    const topic = formatTopic(this.#root, accountId, deviceId, channel);
    this.#aedes.publish({ cmd: 'publish', topic, payload, qos: 1, retain: false, dup: false }, (error) => {
      if (error) this.#services.log.error({ fault: faultOf(error), topic }, 'a service message was not published');
      done();
    });
  }
}

/** Empties a refused message that nobody may notice: no filter of a client reaches topics below `$SYS`. */
export function silence(message: Incoming): void {
  message.topic = '$SYS/refused';
  message.payload = Buffer.alloc(0);
  message.retain = false;
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
