import type { StoredWill } from '../db/messages/sessions/changes.ts';
import { storedClientProperties } from '../src/core/formats/message-properties.ts';
import type { BrokerClient } from './client-types.ts';
import { grantedQos, keptQos } from './connections/live-clients.ts';
import { faultOf } from './connections/safe-error.ts';
import type { HookParts } from './hook-parts.ts';
import { forOneClient, type Incoming, isForNow, isOrdered, type Outgoing, type Will } from './message-types.ts';
import { NamedTurns, Turns } from './packets/turns.ts';
import { waitsSince } from './sessions/wills.ts';

/** Wills when they fire, and messages on their way to each receiver. */
export class PublishHooks {
  readonly #parts: HookParts;
  /** Orders of clients whose connection has ended, by client id. */
  readonly #left = new NamedTurns();

  constructor(parts: HookParts) {
    this.#parts = parts;
  }

  /** The will of a connection that has ended. */
  publishWill(client: BrokerClient, will: Will): void {
    const { authority, persistence, publishing, services } = this.#parts;
    const { live } = client;
    if (!live.identity) return;
    // One whose account is on its way is kept, and sent where the account is then.
    if (services.gate.isAway(live.identity.caller.accountId)) {
      persistence.keepWill(client, will);
      return;
    }
    publishing.publish(live.identity, toPacket(will), {
      live,
      acknowledge: () => {},
      isRefusedTooOften: () => authority.refusedTooOften(live),
      end: () => persistence.deleteWill(client),
    });
  }

  /** The order of a client goes on after its connection, as long as anything of it is on its way. */
  keepOrder(clientId: string, turns: Turns): void {
    this.#left.keep(clientId, turns);
  }

  /** The order in which what comes of this client has its place; undefined when nothing of it is on its way. */
  orderOf(clientId: string): Turns | undefined {
    return this.#left.of(clientId);
  }

  /** Publishes a will that has waited, under the rights that its owner has now; none that was left for a former owner of its device. */
  publishLeftWill(left: StoredWill): void {
    const { authority, publishing, services } = this.#parts;
    const identity = authority.identityOf(left);
    if (!identity || authority.hasMovedSince(left.topic, waitsSince(left) ?? Number.POSITIVE_INFINITY)) return;
    const { topic, qos, retain, payload, properties, messageExpiry } = left;
    const clientProperties = storedClientProperties(properties, messageExpiry);
    const will = {
      topic,
      qos: qos as 0 | 1 | 2,
      retain: retain === 1,
      payload: Buffer.from(payload),
      clientProperties,
    };
    const turns = this.orderOf(left.clientId) ?? new Turns();
    publishing.publish(identity, toPacket(will), {
      ...{ live: undefined, turns },
      acknowledge: () => {},
      isRefusedTooOften: () => false,
      end: (_, failure) => {
        if (failure) services.log.error({ fault: faultOf(failure), topic }, 'a will could not be stored');
      },
    });
    this.keepOrder(left.clientId, turns);
  }

  /** The hard gate: every message to every client passes here, live, retained or queued. */
  forward(client: BrokerClient, packet: Outgoing): Outgoing | undefined {
    const { authority, groups, persistence } = this.#parts;
    const place = client.clean ? undefined : persistence.queues.placeOf(client, packet);
    if (place) {
      place.qos ??= keptQos(client.live, packet);
      packet.qos = place.qos;
      if (persistence.queues.isBehind(client, packet)) return undefined;
    } else if (packet.brokerId !== forOneClient) packet.qos = grantedQos(client.live, packet);
    // A live copy that had to wait, while the queue had the message already: the client may even have acknowledged it.
    const isUnsent = place && place.packetId === undefined;
    if (packet.qos > 0 && isOrdered(packet)) {
      if (!isUnsent && packet.brokerCounter <= client.live.lastKept) return undefined;
      // Its filters asked for less when it came, so it is not in the queue, and would overtake what is.
      if (!place && !isForNow(packet) && persistence.queues.hasFallenBehind(client)) packet.qos = 0;
    }
    const allowed = authority.forward(client.live, packet);
    if (!allowed) groups.passOnRefused(packet, client.live);
    if (!allowed && !client.clean) persistence.queues.forget(client, packet);
    return allowed;
  }
}

function toPacket({ topic, qos, retain, payload, clientProperties }: Will): Incoming {
  return { cmd: 'publish', dup: false, topic, qos, retain, payload, ...(clientProperties && { clientProperties }) };
}
