/** The filters of one client, and what they say of a message together. */
import type { Outgoing, Subscription } from '../message-types.ts';
import { isShared, matches } from '../topics.ts';

/** How a client is to have a message that one of its filters matches, or several. */
export interface Match {
  /** The highest of those filters. */
  qos: 0 | 1 | 2;
  /** Whether it keeps the retain flag with which it was published. */
  retainAsPublished: boolean;
  /** Subscription identifiers. */
  identifiers: number[] | undefined;
}

/** `isOwn` tells of a message that the client itself has published; undefined when it is not to have it [MQTT-3.8.3-3]. */
export function matchFilters(filters: Iterable<Subscription>, topic: string, isOwn: boolean): Match | undefined {
  let match: Match | undefined;
  for (const { topic: filter, qos, rap = false, nl = false, identifier } of filters) {
    if ((nl && isOwn) || (filter !== topic && !matches(filter, topic))) continue;
    match ??= { qos, retainAsPublished: false, identifiers: undefined };
    if (qos > match.qos) match.qos = qos;
    if (rap) match.retainAsPublished = true;
    if (identifier !== undefined) {
      match.identifiers ??= [];
      match.identifiers.push(identifier);
    }
  }
  return match;
}

/** Whether a filter asks for more than a QoS; one that is shared says nothing of the messages of others. */
export function hasOptions({ topic, rap, nl, identifier }: Subscription): boolean {
  return isShared(topic) || rap === true || nl === true || identifier !== undefined;
}

export function isSameFilter(one: Subscription, other: Subscription): boolean {
  const areFlagsSame = (one.rap ?? false) === (other.rap ?? false) && (one.nl ?? false) === (other.nl ?? false);
  return one.qos === other.qos && areFlagsSame && one.rh === other.rh && one.identifier === other.identifier;
}

/** The message as one client is to have it: each receiver changes its own, the QoS, the packet id. */
export function copyFor(packet: Outgoing, { qos: most, retainAsPublished, identifiers }: Match): Outgoing {
  const { brokerId, brokerCounter, topic, payload, properties, messageExpiry } = packet;
  const qos = Math.min(packet.qos, most) as 0 | 1 | 2;
  const retain = retainAsPublished && packet.retain;
  const copy: Outgoing = { cmd: 'publish', brokerId, brokerCounter, topic, payload, qos, retain, dup: false };
  if (properties) copy.properties = properties;
  if (messageExpiry !== undefined) copy.messageExpiry = messageExpiry;
  if (identifiers) copy.identifiers = identifiers;
  return copy;
}
