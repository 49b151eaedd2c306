import type { Socket } from 'node:net';
import type { Placement } from '../../db/registry/index.ts';
import type { Caller } from '../../src/access.ts';
import type {
  BrokerServices,
  Direct,
  ProofRefusal,
  ProvenCaller,
  Published,
  Publisher,
  Rejection,
} from '../../src/broker-ports.ts';
import { failure, failureOf } from '../../src/errors.ts';
import { Attempts } from '../../src/limits/attempts.ts';
import type { BrokerCore, Incoming, ProvenIdentity } from '../aedes-types.ts';
import { type Authenticator, ConnectRefused, connack } from '../authenticate.ts';
import { type Authority, type DeviceAddress, deviceItself } from '../authorize.ts';
import { privateClientId } from '../connections/client-ids.ts';
import { type Counters, type PublishRefusal, refusePublish, variableOf } from '../connections/counters.ts';
import type { Limits } from '../connections/limits.ts';
import type { Ingest } from '../ingest/ingest.ts';
import type { Outcome } from '../ingest/message.ts';
import { type Refusal, type Refusals, reasonOf, refusedPrincipal } from '../refusals.ts';
import type { ServiceChannels } from '../service-channels.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import type { PostedLog, PostedLogs } from './posted-logs.ts';

const second = 1000;
const minute = 60_000;

type RateLimit = 'publish_rate_per_client' | 'byte_rate_per_client' | 'point_rate_per_client';

/** The path of messages from callers without an MQTT connection. */
export interface DirectParts {
  services: BrokerServices;
  aedes: BrokerCore;
  counters: Counters;
  authenticator: Pick<Authenticator, 'prove' | 'proveShown'>;
  authority: Authority;
  limits: Limits;
  persistence: Pick<SessionStore, 'durable'>;
  channels: ServiceChannels;
  ingest: Ingest;
  refusals: Refusals;
  postedLogs: PostedLogs;
}

/** Messages that come over HTTP: the rules, refusals and promises of a PUBLISH, without a connection. */
export class DirectPublisher implements Publisher {
  readonly #parts: DirectParts;
  readonly #perSecond: Record<RateLimit, Attempts>;
  readonly #refusedPerMinute: Attempts;

  constructor(parts: DirectParts) {
    this.#parts = parts;
    const { clock, config } = parts.services;
    const { publishRatePerClient, byteRatePerClient, pointRatePerClient, refusalsPerMinute } = config.mqtt;
    const rate = (limit: RateLimit, most: number, what: string) =>
      new Attempts(clock, most, second, `${variableOf(limit)}: too many ${what} of one client.`);
    this.#perSecond = {
      publish_rate_per_client: rate('publish_rate_per_client', publishRatePerClient, 'messages'),
      byte_rate_per_client: rate('byte_rate_per_client', byteRatePerClient, 'bytes'),
      point_rate_per_client: rate('point_rate_per_client', pointRatePerClient, 'points'),
    };
    const tooOften = `${variableOf('refusals_per_minute')}: refused too often.`;
    this.#refusedPerMinute = new Attempts(clock, refusalsPerMinute, minute, tooOften);
  }

  /** As in Publisher. */
  async prove(username: string, password: string, address: string): Promise<ProvenCaller | ProofRefusal> {
    try {
      return this.#proven(await this.#parts.authenticator.prove(username, password, address));
    } catch (error) {
      return this.#refusal(error, username, address);
    }
  }

  /** As in Publisher. */
  async proveCertificate(
    socket: Socket,
    username: string,
    address: string,
  ): Promise<ProvenCaller | ProofRefusal | undefined> {
    try {
      const identity = await this.#parts.authenticator.proveShown(socket, username, address);
      return identity && this.#proven(identity);
    } catch (error) {
      return this.#refusal(error, username, address);
    }
  }

  #proven({ caller, principal, generation, sessionId, certificateId }: ProvenIdentity): ProvenCaller {
    const { authority } = this.#parts;
    const clientId = privateClientId(caller.accountId, principal, '');
    const proof = { clientId, generation: generation ?? null, sessionId: sessionId ?? certificateId ?? null };
    return { caller, currentCaller: () => authority.identityOf(proof)?.caller };
  }

  /** Counts and notes a refused proof. @throws any other error. */
  async #refusal(error: unknown, username: string, address: string): Promise<ProofRefusal> {
    if (!(error instanceof ConnectRefused)) throw error;
    const { limits, counters } = this.#parts;
    counters.failedBasics += 1;
    await limits.failed(error, { address });
    const { message, limit, returnCode: code, isProven } = error;
    const { allowance, deviceId = username } = error.about;
    const reason = limit === undefined ? message : `${variableOf(limit)}: ${message}`;
    const principal = isProven ? ({ type: 'device', id: deviceId } as const) : undefined;
    this.#note(deviceId, { action: 'connect', topic: null, reason, code, address, principal });
    if (limit !== undefined && allowance) return { refused: 'tooMany', limit: variableOf(limit), allowance };
    return { refused: code === connack.badCredentials ? 'wrong' : 'notNow' };
  }

  /** As in Publisher. */
  async publish(given: Caller, message: Direct): Promise<Published> {
    const { services, authority, ingest, aedes, persistence } = this.#parts;
    if (aedes.closed) throw new Error('the broker is closed');
    // Bodies arrive slowly.
    const caller = authority.currentCaller(given);
    if (!caller) return { delivered: false, rejection: loggedOut };
    this.#takeRate('publish_rate_per_client', caller);
    this.#takeRate('byte_rate_per_client', caller, message.payload.length);
    // How many points it holds is known when they have been read.
    this.#takeRate('point_rate_per_client', caller, 0);
    const packet = toPacket(message);
    const { topic } = packet;
    const own = deviceItself(caller);
    const { maxPayloadBytes } = services.config.mqtt;
    if (maxPayloadBytes > 0 && packet.payload.length > maxPayloadBytes)
      return this.#refuse(caller, packet, 'too_large', payloadTooLarge, own);
    if (!this.#isTopic(topic)) return this.#refuse(caller, packet, 'malformed', malformedTopic, own);
    const decision = authority.decidePublish({ caller, ownChannels: authority.ownChannelsOf(caller) }, topic);
    if (decision.verdict === 'malformed') return this.#refuse(caller, packet, 'malformed', malformedTopic, own);
    // Control topics belong to the device's own MQTT connection.
    if (decision.verdict === 'control') return this.#refuse(caller, packet, 'no_such_channel', noControl, own);
    if (decision.verdict === 'refused')
      return this.#refuse(caller, packet, decision.reason, decision.rejection, decision.device);
    const { rejection, points } = await new Promise<Outcome>((resolve, reject) => {
      ingest.acceptDirect(caller, packet, decision.route, (failure, outcome) => {
        this.#perSecond.point_rate_per_client.charge(caller.id, outcome.points);
        if (failure) reject(failure);
        else aedes.publish(packet, (error) => (error ? reject(error) : resolve(outcome)));
      });
    });
    // A retained message of QoS 1 is on disk before; this one is promised nothing over MQTT.
    if (packet.retain && packet.qos === 0) await persistence.durable();
    // A refusal on `_set/fields` is already published as its explanation.
    return { delivered: packet.topic === topic, rejection, points };
  }

  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed' {
    return this.#parts.authority.decide(caller, action, topic);
  }

  logPosted({ id, accountId }: Placement, entry: PostedLog, payload: Buffer): Promise<string> {
    return this.#parts.postedLogs.take({ deviceId: id, accountId }, entry, payload);
  }

  #isTopic(topic: string): boolean {
    const { maxTopicLevels } = this.#parts.services.config.mqtt;
    if (topic === '' || /[+#]/.test(topic)) return false;
    return maxTopicLevels === 0 || topic.split('/').length <= maxTopicLevels;
  }

  /** Explains a refusal where MQTT does; `device` is undefined when nobody may notice. */
  #refuse(
    caller: Caller,
    packet: Incoming,
    reason: PublishRefusal,
    rejection: Rejection,
    device: DeviceAddress | undefined,
  ): Published {
    refusePublish(this.#parts.counters, reason);
    this.#take(this.#refusedPerMinute, 'refusals_per_minute', caller);
    if (!device) return { delivered: false, rejection };
    const { topic } = packet;
    const why = { reason: reasonOf(rejection), code: failureOf(rejection.kind).code };
    const by = { address: caller.address, principal: refusedPrincipal(caller) };
    this.#note(device.deviceId, { action: 'publish', topic, ...why, ...by });
    this.#parts.channels.reject(device, packet, rejection);
    return { delivered: false, rejection };
  }

  /** Into the list of a device, if it is one. */
  #note(deviceId: string, refusal: Omit<Refusal, 'clientId'>): void {
    const { services, refusals } = this.#parts;
    if (services.access.placement(deviceId)) refusals.note(deviceId, { clientId: undefined, ...refusal });
  }

  /** @throws PlatformError 429 when nothing is left. */
  #take(attempts: Attempts, limit: RateLimit | 'refusals_per_minute', { id, address }: Caller, cost = 1): void {
    const { limit: most, remaining } = attempts.left(id);
    if (most > 0 && remaining === 0) this.#parts.limits.hit(limit, { address });
    attempts.take(id, cost);
  }

  #takeRate(limit: RateLimit, caller: Caller, cost = 1): void {
    this.#take(this.#perSecond[limit], limit, caller, cost);
  }
}

/** With a buffer object of its own: a message that is kept for sessions is known again by it. */
function toPacket({ topic, payload, qos, retain }: Direct): Incoming {
  return { cmd: 'publish', dup: false, topic, qos, retain, payload: payload.subarray() };
}

const loggedOut = failure('tokenInvalid');
const payloadTooLarge = failure('tooLarge', {
  message: `${variableOf('max_payload_bytes')}: the payload is too large.`,
});
const noControl = failure('forbidden', { message: 'Control topics are used over MQTT only.' });
const malformedTopic = failure('invalid', { details: [{ path: 'topic', message: 'is malformed' }] });
