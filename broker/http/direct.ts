import type { Socket } from 'node:net';
import type { Placement } from '../../db/registry/index.ts';
import type { Caller } from '../../src/core/caller.ts';
import { failure } from '../../src/core/errors.ts';
import { newId } from '../../src/core/ids.ts';
import type { Attempts } from '../../src/core/limits/attempts.ts';
import { limitTries } from '../../src/core/limits/tries.ts';
import { causeNow } from '../../src/core/log.ts';
import { formatTopic } from '../../src/core/topics.ts';
import type {
  BrokerBase,
  Direct,
  PresentedCertificate,
  ProofRefusal,
  ProvenCaller,
  Published,
  Publisher,
} from '../../src/ports/broker-ports.ts';
import { type Authenticator, ConnectRefused, credentialOf } from '../authenticate.ts';
import { type Authority, deviceItself } from '../authorize.ts';
import type { ProvenIdentity } from '../client-types.ts';
import { privateClientId } from '../connections/client-ids.ts';
import { type Counters, variableOf } from '../connections/counters.ts';
import type { Limits } from '../connections/limits.ts';
import type { PeerCertificates } from '../connections/peer-certificates.ts';
import type { Origin, PostedLog, Verdict } from '../ingest/message.ts';
import type { Incoming } from '../message-types.ts';
import type { Publishing, Sender } from '../publish.ts';
import { reason } from '../reasons.ts';
import { refusedConnect } from '../refusal-notes.ts';
import type { Refusal, Refusals } from '../refusals.ts';
import type { Routing } from '../routing.ts';
import type { SessionStore } from '../sessions/persistence.ts';

type ClientLimit = 'publish_rate_per_client' | 'byte_rate_per_client' | 'point_rate_per_client' | 'refusals_per_minute';

/** The path of messages from callers without an MQTT connection. */
export interface DirectParts {
  services: BrokerBase;
  counters: Counters;
  authenticator: Pick<Authenticator, 'prove' | 'proveShown'>;
  authority: Authority;
  limits: Limits;
  peers: Pick<PeerCertificates, 'of'>;
  persistence: Pick<SessionStore, 'durable'>;
  publishing: Publishing;
  refusals: Refusals;
  routing: Pick<Routing, 'isClosed'>;
}

/** Messages that come over HTTP: the rules, refusals and promises of a PUBLISH, without a connection. */
export class DirectPublisher implements Publisher {
  readonly #parts: DirectParts;
  readonly #limits: Record<ClientLimit, Attempts>;

  constructor(parts: DirectParts) {
    this.#parts = parts;
    this.#limits = {
      publish_rate_per_client: limitTries('messages', parts.services),
      byte_rate_per_client: limitTries('messageBytes', parts.services),
      point_rate_per_client: limitTries('messagePoints', parts.services),
      refusals_per_minute: limitTries('refusedMessages', parts.services),
    };
  }

  /** As in Publisher. */
  async proveCaller(username: string, password: string, address: string): Promise<ProvenCaller | ProofRefusal> {
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

  /** As in Publisher. */
  presentedBy(socket: Socket): PresentedCertificate | undefined {
    return this.#parts.peers.of(socket);
  }

  #proven({ caller, principal, generation, sessionId, certificateId }: ProvenIdentity): ProvenCaller {
    const { authority } = this.#parts;
    const clientId = privateClientId(caller.accountId, principal, '');
    const proof = { clientId, generation: generation ?? null, sessionId: sessionId ?? certificateId ?? null };
    const credential = credentialOf({ generation, certificateId });
    return { caller, credential, currentCaller: () => authority.identityOf(proof)?.caller };
  }

  /** Counts and notes a refused proof. @throws any other error. */
  async #refusal(error: unknown, username: string, address: string): Promise<ProofRefusal> {
    if (!(error instanceof ConnectRefused)) throw error;
    const { limits, counters } = this.#parts;
    counters.failedBasics += 1;
    await limits.failed(error, { address });
    const { limit, reason: why } = error;
    const { allowance, deviceId = username } = error.about;
    this.#note(deviceId, { ...refusedConnect(deviceId, error), address });
    if (limit !== undefined && allowance) return { refused: 'tooMany', limit: variableOf(limit), allowance };
    return { refused: why === 'bad_credentials' ? 'wrong' : 'notNow' };
  }

  /** As in Publisher. */
  async publish(given: Caller, message: Direct): Promise<Published> {
    const { authority, persistence, publishing, routing } = this.#parts;
    if (routing.isClosed) throw new Error('the broker is closed');
    // Bodies arrive slowly.
    const caller = authority.currentCaller(given);
    if (!caller) return { delivered: false, rejection: loggedOut };
    this.#take('publish_rate_per_client', caller);
    this.#take(
      'byte_rate_per_client',
      caller,
      message.payload.length + (message.clientProperties?.travelling.length ?? 0),
    );
    // How many points it holds is known when they have been read.
    this.#take('point_rate_per_client', caller, 0);
    const packet = toPacket(message);
    const verdict = await this.#published(caller, (origin) => {
      if (isTopic(packet.topic)) publishing.publish(this.#senderOf(caller), packet, origin);
      else publishing.refuse({ packet, caller, origin }, reason('malformedTopic'), deviceItself(caller));
    });
    // A retained message of QoS 1 is on disk before; this one is promised nothing over MQTT.
    if (packet.retain && packet.qos === 0 && verdict.isAccepted) await persistence.durable();
    return { delivered: verdict.isAccepted, rejection: verdict.reason, points: verdict.points };
  }

  /** As in Publisher. It is published in the name of its device: its poster has been permitted to post. */
  async logPosted(
    { id: deviceId, accountId }: Placement,
    entry: Omit<PostedLog, 'id'>,
    payload: Buffer,
  ): Promise<string> {
    const { config } = this.#parts.services;
    const topic = formatTopic(config.topicRoot, accountId, deviceId, '_log');
    const posted = { ...entry, id: newId(accountId) };
    const device: Caller = { kind: 'device', id: deviceId, accountId };
    const { isAccepted } = await this.#published(device, (origin) =>
      this.#parts.publishing.publish(this.#senderOf(device), toPacket({ topic, payload, qos: 1, retain: false }), {
        ...{ ...origin, posted },
      }),
    );
    if (!isAccepted) throw new Error('a log entry was refused');
    return posted.id;
  }

  #senderOf(caller: Caller): Sender {
    return { caller, ownChannels: this.#parts.authority.ownChannelsOf(caller) };
  }

  /** Resolves to what has become of a message; rejects with what the store says when it did not take it, and with a 429. */
  #published(caller: Caller, publish: (origin: Origin) => void): Promise<Verdict> {
    return new Promise((resolve, reject) => {
      let tooMany: unknown;
      publish({
        live: undefined,
        cause: causeNow(),
        isRefusedTooOften: () => {
          try {
            this.#take('refusals_per_minute', caller);
          } catch (error) {
            tooMany = error;
          }
          return tooMany !== undefined;
        },
        acknowledge: () => {},
        end: (verdict, failure) => {
          this.#limits.point_rate_per_client.chargeTry(caller.id, verdict.points);
          if (tooMany) reject(tooMany);
          else if (failure) reject(failure.cause ?? failure);
          else resolve(verdict);
        },
      });
    });
  }

  decide(caller: Caller, action: 'publish' | 'subscribe', topic: string): 'granted' | 'refused' | 'malformed' {
    return this.#parts.authority.decide(caller, action, topic);
  }

  /** Into the list of a device, if it is one. */
  #note(deviceId: string, refusal: Omit<Refusal, 'clientId'>): void {
    const { services, refusals } = this.#parts;
    if (services.access.placement(deviceId)) refusals.note(deviceId, { clientId: undefined, ...refusal });
  }

  /** @throws PlatformError 429 when nothing is left. */
  #take(limit: ClientLimit, { id, address }: Caller, cost = 1): void {
    const attempts = this.#limits[limit];
    const { limit: most, remaining } = attempts.left(id);
    if (most > 0 && remaining === 0) this.#parts.limits.hit(limit, { address });
    attempts.takeTry(id, cost);
  }
}

/** With a buffer object of its own: a message that is kept for sessions is known again by it. */
function toPacket({ topic, payload, qos, retain, clientProperties }: Direct): Incoming {
  return {
    cmd: 'publish',
    dup: false,
    topic,
    qos,
    retain,
    payload: payload.subarray(),
    ...(clientProperties && { clientProperties }),
  };
}

const loggedOut = failure('tokenInvalid');

/** Whether a message may have this topic, as the parser of packets looks at it. */
function isTopic(topic: string): boolean {
  return topic !== '' && !/[+#]/.test(topic);
}
