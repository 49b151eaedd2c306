import type { StoredWill } from '../../db/messages/sessions/changes.ts';
import type { BrokerClient, Incoming, LiveClient, Outgoing } from '../aedes-types.ts';
import type { DeviceAddress } from '../authorize.ts';
import { refusePublish } from '../connections/counters.ts';
import { OverLimit } from '../connections/limits.ts';
import { expect } from '../connections/live-clients.ts';
import { faultOf } from '../connections/safe-error.ts';
import { reasonOf } from '../refusals.ts';
import { silence } from '../service-channels.ts';
import type { HookParts } from './parts.ts';
import { malformedTopic, payloadTooLarge, tooManyRefusals } from './refusal-notes.ts';

type Done = (error?: Error | null) => void;

/** A message on its way in, and on its way to each receiver. */
export class PublishHooks {
  readonly #parts: HookParts;

  constructor(parts: HookParts) {
    this.#parts = parts;
  }

  /** Decides a PUBLISH, or a will when it fires; `client` is null for a will that a dead process has left. */
  publish(client: BrokerClient | null, packet: Incoming, done: Done): void {
    const { authority, counters, ingest, notes, services } = this.#parts;
    const live = client?.live;
    if (!live?.identity) {
      silence(packet);
      done();
      return;
    }
    const { maxPayloadBytes } = services.config.mqtt;
    if (maxPayloadBytes > 0 && packet.payload.length > maxPayloadBytes) {
      notes.note(live, 'publish', packet.topic, payloadTooLarge);
      refusePublish(counters, 'too_large');
      const error = new OverLimit('max_payload_bytes');
      notes.setNoted(error);
      done(error);
      return;
    }
    const decision = authority.decidePublish(live.identity, packet.topic);
    if (decision.verdict === 'accepted') {
      // A will is no message of a device that works.
      if (!live.hasPublished && !live.client.closed) this.#parts.publications.first(live);
      ingest.accept(live, packet, decision.route, done);
      return;
    }
    if (decision.verdict === 'control') {
      this.#takeControl(live, decision.device, packet, done);
      return;
    }
    if (decision.verdict === 'malformed' || authority.refusedTooOften(live)) {
      const isMalformed = decision.verdict === 'malformed';
      notes.note(live, 'publish', packet.topic, isMalformed ? malformedTopic : tooManyRefusals);
      refusePublish(counters, isMalformed ? 'malformed' : 'too_often');
      done(isMalformed ? new Error('malformed topic') : new OverLimit('refusals_per_minute'));
      return;
    }
    if (decision.device) notes.note(live, 'publish', packet.topic, decision.rejection, decision.device);
    refusePublish(counters, decision.reason);
    const { connectionId } = live;
    // Once a minute for each client: a program in a loop would fill the log.
    const level = live.refusals.count === 1 ? 'info' : 'debug';
    const reason = reasonOf(decision.rejection);
    services.log[level]({ connectionId, clientId: live.client.id, topic: packet.topic, reason }, 'PUBLISH refused');
    // Aedes goes on with the same packet, so the refused one has to become something harmless.
    if (decision.device) this.#parts.channels.rewrite(decision.device, packet, decision.rejection);
    else silence(packet);
    ingest.inTurn(live, done);
  }

  #takeControl(live: LiveClient, device: DeviceAddress, packet: Incoming, done: Done): void {
    const { authority, control, counters, notes } = this.#parts;
    const { topic } = packet;
    control.take(live, device, packet, (rejection) => {
      if (!rejection) {
        done();
        return;
      }
      refusePublish(counters, 'not_readable');
      const isTooOften = authority.refusedTooOften(live);
      notes.note(live, 'publish', topic, isTooOften ? tooManyRefusals : rejection);
      done(isTooOften ? new OverLimit('refusals_per_minute') : undefined);
    });
  }

  /** Publishes what a crashed process has left to say, under the rights that its owner has now. */
  publishLeftWill(left: StoredWill): void {
    const { authority, ingest, aedes, services } = this.#parts;
    const identity = authority.identityOf(left);
    const decision = identity && authority.decidePublish(identity, left.topic);
    if (!identity || decision?.verdict !== 'accepted') return;
    const { topic, qos, retain, payload } = left;
    const about = { topic, qos: qos as 0 | 1 | 2, retain: retain === 1, payload: Buffer.from(payload) };
    const will: Incoming = { cmd: 'publish', dup: false, ...about };
    ingest.acceptLeft(identity.caller, will, decision.route, (error) => {
      if (error) services.log.error({ fault: faultOf(error), topic }, 'a will could not be stored');
      else aedes.publish(will, () => {});
    });
  }

  /** The hard gate: every message to every client passes here, live, retained or queued. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined {
    const { authority, persistence } = this.#parts;
    if (!client.clean && persistence.isBehind(client, packet)) return undefined;
    const { live } = client;
    const allowed = live && authority.forward(live, packet);
    if (allowed) this.#parts.counters.sent += 1;
    else if (!client.clean) persistence.forget(client, packet);
    // From a session's queue, with its packet id.
    if (live && allowed?.messageId !== undefined)
      expect(live, allowed.messageId, allowed.qos === 1 ? 'puback' : 'pubrec');
    return allowed;
  }
}
