/** A message on its way to the store, and what its channel says about it. */
import type { Caller } from '../../src/access.ts';
import type { Cause, Lane, PointsRead, Rejection } from '../../src/broker-ports.ts';
import { handledChannels, serviceChannel } from '../../src/topics.ts';
import type { BrokerClient, Incoming } from '../aedes-types.ts';
import type { Route } from '../authorize.ts';
import type { ChannelKind } from '../connections/counters.ts';

/** A message, where it goes and who sent it; `client` is undefined when the connection was to another process. */
export interface Message {
  packet: Incoming;
  route: Route;
  caller: Caller | undefined;
  client: BrokerClient | undefined;
  /** Where it is told what became of the message, besides `_rejected`. */
  outcome?: Outcome;
  /** On whose behalf it is stored, when that is no connection. */
  cause?: Cause | undefined;
  /** Explanations that leave when it is its turn; undefined when there is none to wait for. */
  explanations?: Array<() => void> | undefined;
  /** Whether its payload, or a part of it, was not taken. */
  isRejected?: boolean;
  /** The points of its payload, where it is for a channel that stores them. */
  read?: PointsRead;
  /** The room that it takes in the store. */
  held?: number;
  /** Gives back its place among the large messages that are read before they are stored. */
  leaveReading?: () => void;
}

/** The outcome of an accepted message; `points` are those that were stored. */
export interface Outcome {
  rejection: Rejection | undefined;
  points: number;
}

/** Accounts take turns, then connections; what comes without one is by its caller. */
export function laneOf({ route, client, caller }: Message): Lane {
  return { accountId: route.accountId, callerId: client?.id ?? caller?.id ?? '' };
}

/** Whether the store takes messages of this channel: points, or what the handler of a service channel makes of them. */
export function isStoredChannel(route: Route): boolean {
  const { channel } = route;
  if (channel.service) return handlerOf(route) !== undefined;
  return channel.persistenceType === 'timeSeries' && channel.payload !== 'none';
}

/** What the broker does with a message on a service channel, see the table in src/topics.ts. */
export type Handler = NonNullable<ReturnType<typeof serviceChannel>>['handler'] & string;

/** The kind under which `/metrics` counts a message. */
export function kindOf({ channel }: Route): ChannelKind {
  if (channel.service) return handledChannels.find((name) => name === channel.name) ?? 'simple';
  return channel.persistenceType === 'timeSeries' ? 'timeSeries' : 'simple';
}

/** The handler of a message on a service channel, from the table in src/topics.ts; undefined on other channels. */
export function handlerOf({ channel }: Route): Handler | undefined {
  return channel.service ? serviceChannel(channel.name)?.handler : undefined;
}
