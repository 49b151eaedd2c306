/** A message on its way: who sends it, what has become of it, and what its channel says about it. */
import type { LogInput, Point, SeriesKey } from '../../db/messages/store.ts';
import type { Caller } from '../../src/core/caller.ts';
import type { Cause } from '../../src/core/log.ts';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { handledChannels, serviceChannel } from '../../src/core/topics.ts';
import type { Route } from '../authorize.ts';
import type { LiveClient } from '../client-types.ts';
import type { ChannelKind } from '../connections/counters.ts';
import type { Incoming } from '../message-types.ts';
import type { Turns } from '../packets/turns.ts';
import type { Reason } from '../reasons.ts';

/** What has become of a message. */
export interface Verdict {
  /** Why it was refused, or why it, or a part of it, was not stored or not retained. */
  readonly reason: Reason | undefined;
  /** Whether it goes to its subscribers. */
  readonly isAccepted: boolean;
  /** Whether any of it is on disk: in a series, for a stored session, for a bridge. */
  readonly isStored: boolean;
  /** Points that were stored. */
  readonly points: number;
  /** Subscriptions and stored sessions that match it; each delivery is decided by itself. */
  readonly receivers: number;
}

/** A log entry that came over HTTP, with the id that it gets. */
export type PostedLog = LogInput & { id: string; received: number };

/** What differs from one way of publishing to another: a PUBLISH, a will, HTTP, a posted log entry. */
export interface Origin {
  /** The connection whose order the message keeps; undefined where there is none. */
  readonly live: LiveClient | undefined;
  /** The order that it keeps where there is no connection. */
  readonly turns?: Turns;
  /** On whose behalf it is stored, when that is no connection. */
  readonly cause?: Cause | undefined;
  /** The log entry that its payload was read as. */
  readonly posted?: PostedLog;
  /** Counts a refusal; whether there have been too many. */
  isRefusedTooOften(): boolean;
  /** In the order of the connection, before it goes to its subscribers: what PUBACK promises is true. */
  acknowledge(verdict: Verdict): void;
  /** It has been handed on, or refused; `failure` when it could not be stored or handed on. */
  end(verdict: Verdict, failure?: Error | null): void;
}

/** What a payload was read as. */
export interface MessagePoints {
  /** Those that are kept, and why the others are not. */
  readonly kept: Point[];
  readonly why: string | undefined;
  /** All that it held. */
  readonly count: number;
  /** What storing them takes, in points. */
  readonly cost: number;
  /** Whether their categories have been written before. */
  readonly isPrepared: boolean;
}

/** A message as it came. */
export interface Sent {
  readonly packet: Incoming;
  readonly caller: Caller;
  readonly origin: Origin;
}

/**
 * An accepted message on its way to the store and to its subscribers, with what `Ingest` notes of it on this way. It counts its open writes,
 * and the last one goes on with it: promises would cost 5 % of the CPU time of a stored message.
 */
export class Message implements Sent, Verdict {
  /** What its subscribers get: the message, or the explanation that has taken its place. */
  packet: Incoming;
  readonly caller: Caller;
  readonly origin: Origin;
  readonly route: Route;
  readonly #subscribers: Subscribers;
  reason: Reason | undefined;
  isAccepted = true;
  isStored = false;
  points = 0;
  /** Stored sessions for which it is written. */
  sessions = 0;
  /** Explanations that leave when it is its turn; undefined when there is none to wait for. */
  explanations: Array<() => void> | undefined;
  /** Why it cannot be retained, if it cannot: its account has no room. */
  full: Error | undefined;
  /** The points of its payload, where it is for a channel that stores them. */
  read: MessagePoints | { reason: string } | undefined;
  /** What storing it costs, in points and what takes about as long. */
  cost = 0;
  /** The room that it takes in the store. */
  held = 0;
  /** Its writes that are not on disk yet, and one for the stage that gives them out. */
  writes = 1;
  /** The first error of a write. */
  failure: Error | undefined;
  /** What `proceed` calls. */
  next: ((failure?: Error) => void) | undefined;
  /** Gives back its place among the large messages that are read before they are stored. */
  leaveReading: (() => void) | undefined;

  constructor(packet: Incoming, caller: Caller, origin: Origin, route: Route, subscribers: Subscribers) {
    this.packet = packet;
    this.caller = caller;
    this.origin = origin;
    this.route = route;
    this.#subscribers = subscribers;
    if (origin.live) this.explanations = [];
  }

  /** Whether its turn waits for the disk. QoS 0 promises nothing, unless it changes the registry, or its sender waits for an answer. */
  get isPromised(): boolean {
    return this.packet.qos > 0 || !this.origin.live || changesRegistry(this.route);
  }

  /** Goes on: it is stored, or `failure` says why it is not, or nothing waits for that. Further calls do nothing. */
  proceed(failure?: Error): void {
    const { next } = this;
    this.next = undefined;
    next?.(failure);
  }

  get receivers(): number {
    return this.sessions + this.#subscribers.countReceivers(this.packet.topic, this.origin.live?.client.id);
  }
}

interface Subscribers {
  countReceivers(topic: string, publisher: string | undefined): number;
}

/** Accounts take turns, then connections; what comes without one is by its caller. */
export function laneOf({ route, origin, caller }: Message): Lane {
  return { accountId: route.accountId, callerId: origin.live?.client.id ?? caller.id };
}

/** The series to which the points of a message belong. */
export function seriesOf({ accountId, deviceId, channel, possession }: Route): SeriesKey {
  return { accountId, deviceId, channelTemplateId: channel.id, possession };
}

/** Whether the store takes messages of this channel: points, or what the handler of a service channel makes of them. */
export function isStoredChannel(route: Route): boolean {
  const { channel } = route;
  if (channel.service) return handlerOf(route) !== undefined;
  return channel.persistenceType === 'timeSeries' && channel.payload !== 'none';
}

/** What the broker does with a message on a service channel, see the table in src/core/topics.ts. */
export type Handler = NonNullable<ReturnType<typeof serviceChannel>>['handler'] & string;

/** The kind under which `/metrics` counts a message. */
export function kindOf({ channel }: Route): ChannelKind {
  if (channel.service) return handledChannels.find((name) => name === channel.name) ?? 'simple';
  return channel.persistenceType === 'timeSeries' ? 'timeSeries' : 'simple';
}

/** The handler of a message on a service channel, from the table in src/core/topics.ts; undefined on other channels. */
export function handlerOf({ channel }: Route): Handler | undefined {
  return channel.service ? serviceChannel(channel.name)?.handler : undefined;
}

/** Whether a message changes the registry: such messages are handled in turn, whatever their QoS. */
export function changesRegistry(route: Route): boolean {
  const handler = handlerOf(route);
  return handler === 'fields' || handler === 'report';
}
