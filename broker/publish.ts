/**
 * The one way of a message: PUBLISH packets, wills, HTTP and posted log entries. It is decided what becomes of it, it is stored, and
 * in its turn it is acknowledged and handed on.
 */

import { lineOf } from '../src/core/errors.ts';
import type { ClientProperties } from '../src/core/formats/message-properties.ts';
import { serviceChannel } from '../src/core/topics.ts';
import type { BrokerServices, DeviceAddress } from '../src/ports/broker-ports.ts';
import type { Activity } from './activity.ts';
import { type Authority, type Decision, deviceItself, type Route } from './authorize.ts';
import type { BrokerClient, LiveClient, ProvenIdentity } from './client-types.ts';
import { type Counters, refusePublish } from './connections/counters.ts';
import { faultOf } from './connections/safe-error.ts';
import type { ControlTopics } from './control.ts';
import type { CredentialChannel } from './credentials.ts';
import type { Ingest } from './ingest/ingest.ts';
import { Message, type Origin, type Sent, type Verdict } from './ingest/message.ts';
import { type Outcome, outcomeOf, settle } from './ingest/outcomes.ts';
import type { Rejections } from './ingest/rejections.ts';
import type { MessageChecks } from './message-checks.ts';
import { forNow, type Incoming } from './message-types.ts';
import type { FanOut } from './packets/fan-out.ts';
import { type Turn, Turns } from './packets/turns.ts';
import type { Presence } from './presence.ts';
import type { Publications } from './publications.ts';
import { endsConnection, type Reason, reason, rowOf, unusable } from './reasons.ts';
import type { Routing } from './routing.ts';
import type { ServiceChannels } from './service-channels.ts';
import type { SessionStore } from './sessions/persistence.ts';

/** A caller with its rights; `ownChannels` are those of a device. */
export type Sender = Pick<ProvenIdentity, 'caller' | 'ownChannels'>;

export interface PublishingParts {
  services: Pick<BrokerServices, 'clock' | 'config' | 'log'>;
  activity: Pick<Activity, 'message'>;
  authority: Authority;
  channels: ServiceChannels;
  checks: MessageChecks;
  control: ControlTopics;
  credentials: CredentialChannel;
  counters: Counters;
  fanOut: FanOut;
  ingest: Ingest;
  persistence: Pick<SessionStore, 'afterRetaining' | 'isRetaining' | 'retaining'>;
  presence: Pick<Presence, 'message'>;
  publications: Publications;
  rejections: Rejections;
  routing: Pick<Routing, 'isClosed' | 'publish'>;
}

export class Publishing {
  readonly #parts: PublishingParts;

  constructor(parts: PublishingParts) {
    this.#parts = parts;
  }

  /** Decides by its size, its topic and the rights of its sender what becomes of a message, and tells its origin. */
  publish(sender: Sender, packet: Incoming, origin: Origin): void {
    const { fanOut, presence } = this.#parts;
    const { caller } = sender;
    if (caller.kind === 'device') presence.message(caller.id);
    const decision = this.#decide(sender, packet);
    if (decision.verdict === 'accepted' && isPrivate(decision.route))
      this.#renew({ packet, caller, origin }, decision.route);
    else if (decision.verdict === 'accepted') this.#accept(new Message(packet, caller, origin, decision.route, fanOut));
    else if (decision.verdict === 'control') this.#takeControl({ packet, caller, origin }, decision.device);
    else this.refuse({ packet, caller, origin }, decision.reason, decision.device);
  }

  /** By the size of a message, its topic and the rights of its sender. */
  #decide(sender: Sender, packet: Incoming): Decision {
    const { authority, checks } = this.#parts;
    const refusal = checks.refusalOf(sender.caller, packet);
    if (refusal) return { verdict: 'refused', reason: refusal, device: deviceItself(sender.caller) };
    if (packet.clientProperties) this.#carry(packet, packet.clientProperties);
    return authority.decidePublish(sender, packet.topic);
  }

  /** A message takes along what an MQTT 5 client says of it. */
  #carry(packet: Incoming, { travelling, messageExpiry }: ClientProperties): void {
    if (travelling.length > 0) packet.properties = travelling;
    if (messageExpiry !== undefined)
      packet.messageExpiry = messageExpiry === 0 ? forNow : this.#parts.services.clock.now() + messageExpiry * 1000;
  }

  /** `device` is that on whose `_rejected`, and in whose list of refusals, it says why; undefined when nobody may notice. */
  refuse(sent: Sent, why: Reason, device: DeviceAddress | undefined): void {
    const { packet, origin } = sent;
    const { live } = origin;
    const { channels, counters, rejections, services } = this.#parts;
    const endsAtOnce = live !== undefined && endsConnection(why, live.client.codec.level);
    const isTooOften = !endsAtOnce && origin.isRefusedTooOften();
    const said = isTooOften ? reason('tooManyRefusals') : why;
    refusePublish(counters, rowOf(said).counted ?? 'not_readable');
    const verdict = refused(said);
    if (device && (live || !isTooOften)) rejections.note(sent, said, device.deviceId);
    if (endsAtOnce || isTooOften) {
      origin.end(verdict);
      return;
    }
    if (live) {
      const { connectionId, client, refusals } = live;
      // Once a minute for each client: a program in a loop would fill the log.
      const level = refusals.count === 1 ? 'info' : 'debug';
      const about = { connectionId, clientId: client.id, topic: packet.topic, reason: lineOf(said) };
      services.log[level](about, 'PUBLISH refused');
    }
    const explanation = device && channels.explanationOf(device, packet, said);
    this.#inTurn(live, () =>
      settle(
        () => {
          origin.acknowledge(verdict);
          return explanation && this.#handOn(explanation, live?.client);
        },
        (failure) => void origin.end(verdict, failure),
      ),
    );
  }

  /** No subscriber ever gets what a device says on its control topic, which belongs to its own connection. */
  #takeControl(sent: Sent, device: DeviceAddress): void {
    const { packet, origin } = sent;
    const { live } = origin;
    const { control, counters, rejections } = this.#parts;
    if (!live) {
      this.refuse(sent, reason('controlOverHttp'), device);
      return;
    }
    control.take(live, device, packet.payload, (rejection, failure) => {
      if (failure) rejections.note(sent, reason('notStored'), device.deviceId);
      if (failure || !rejection) {
        this.#endPrivate(sent, failure);
        return;
      }
      const isTooOften = origin.isRefusedTooOften();
      const why = isTooOften ? reason('tooManyRefusals') : unusable(rejection);
      refusePublish(counters, 'not_readable');
      rejections.note(sent, why, device.deviceId);
      if (!isTooOften) origin.acknowledge(refused(why));
      origin.end(refused(why));
    });
  }

  /** A device asks for its next credential. The request goes to nobody and stays nowhere. */
  #renew(sent: Sent, device: DeviceAddress): void {
    const { packet, origin } = sent;
    const { live } = origin;
    if (!live) {
      this.refuse(sent, reason('renewalOverHttp'), device);
      return;
    }
    this.#parts.credentials.take(live, device, packet.topic, packet.payload, (failure) =>
      this.#endPrivate(sent, failure),
    );
  }

  /** The service has handled a message, or has not: then it is not acknowledged, so that the device sends it again. */
  #endPrivate({ packet, origin }: Sent, failure: Error | undefined): void {
    if (failure) {
      // At QoS 0 it would not come again.
      origin.end(refused(reason('notStored')), packet.qos > 0 ? failure : undefined);
      return;
    }
    const verdict = { reason: undefined, isAccepted: true, isStored: true, points: 0, receivers: 1 };
    origin.acknowledge(verdict);
    origin.end(verdict);
  }

  /** Stores a message; it is acknowledged and handed on in its turn, in the order of its connection. */
  #accept(message: Message): void {
    const { activity, counters, ingest, persistence, publications } = this.#parts;
    const { origin, packet, route } = message;
    const { live, turns = live?.turns ?? new Turns() } = origin;
    activity.message(route.accountId);
    // A will is no message of a device that works.
    if (live && !live.hasPublished && !live.client.closed) publications.first(live);
    const isTaken = live !== undefined && ingest.takeWithoutStore(message);
    if (isTaken && turns.idle && !(packet.retain && persistence.isRetaining(packet.topic))) {
      this.#pass(message);
      return;
    }
    const from = packet.qos === 1 && live && !live.client.closed ? performance.now() : undefined;
    const passed = packet.qos > 0 && packet.retain ? persistence.retaining(packet.topic) : undefined;
    let failure: Error | undefined;
    const turn = turns.reserve(() => {
      this.#guarded(() => this.#pass(message, failure));
      passed?.();
      if (from !== undefined && !failure) counters.acknowledgement.observe(performance.now() - from);
    });
    const stored = (error?: Error) => {
      failure = error;
      this.#guarded(() => this.#complete(turns, turn, packet));
    };
    if (isTaken) stored();
    else ingest.store(message, stored);
  }

  /** A retained message that need not be stored comes after those of its topic that are still being stored. */
  #complete(turns: Turns, turn: Turn, { topic, retain, qos }: Incoming): void {
    if (retain && qos === 0) this.#parts.persistence.afterRetaining(topic, () => turns.complete(turn));
    else turns.complete(turn);
  }

  /** It is the turn of a message, which has been stored, or has not. */
  #pass(message: Message, failure?: Error): void {
    const { origin, packet } = message;
    settle(
      () => this.#acknowledge(message, failure) ?? this.#handOn(packet, origin.live?.client),
      (error) => {
        const { routing, services } = this.#parts;
        // While the broker closes there is nobody left to hear it.
        if (error && !failure && !routing.isClosed)
          services.log.error({ fault: faultOf(error) }, 'a message could not be handed on');
        origin.end(message, error);
      },
    );
  }

  /** What PUBACK promises is true. */
  #acknowledge(message: Message, failure: Error | undefined): Error | undefined {
    const { explanations, origin, packet, route } = message;
    message.explanations = undefined;
    if (explanations) for (const explain of explanations) explain();
    if (failure) return failure;
    this.#parts.authority.noteIfFormer(route, packet.payload);
    origin.acknowledge(message);
    return undefined;
  }

  /** To those who have subscribed, and into the queues of stored sessions. */
  #handOn(packet: Incoming, client: BrokerClient | undefined): Outcome {
    // DUP of the publisher does not concern subscribers [MQTT-3.3.1-3].
    packet.dup = false;
    if (client) packet.clientId = client.id;
    return outcomeOf((done) => this.#parts.routing.publish(packet, done));
  }

  #inTurn(live: LiveClient | undefined, pass: () => void): void {
    if (!live || live.turns.idle) pass();
    else live.turns.complete(live.turns.reserve(() => this.#guarded(pass)));
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#parts.services.log.error({ fault: faultOf(error) }, 'a message could not be passed on');
    }
  }
}

/** Whether a message is between the service and its sender alone. */
function isPrivate({ channel }: Route): boolean {
  return channel.service && serviceChannel(channel.name)?.isPrivate === true;
}

function refused(why: Reason): Verdict {
  return { reason: why, isAccepted: false, isStored: false, points: 0, receivers: 0 };
}
