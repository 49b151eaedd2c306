/** What the points of a message take of the store, and the steps in which a long message goes there. */
import type { Point } from '../../db/messages/store.ts';
import type { Lane } from '../../src/core/scheduler/lanes.ts';
import { Scheduler, unbounded } from '../../src/core/scheduler/scheduler.ts';
import type { BrokerServices, PointsRead } from '../../src/ports/broker-ports.ts';
import type { Route } from '../authorize.ts';
import { type Message, type MessagePoints, seriesOf } from './message.ts';

/** A category beyond the first takes as long as so many points: it is looked up, and has a mark in its series. */
const pointsOfCategory = 5;
/** Cost of its categories from which a message is long. */
const longMessage = 2000;
/** Points of a step: some milliseconds where each has a category of its own. */
const pointsOfStep = 250;

/**
 * Long messages have their categories and marks written first, a few in each transaction, in turns of accounts; what others
 * send is written between these. The points themselves follow in one transaction, so that nobody sees a part of a message.
 */
export class LongMessages {
  readonly #services: Pick<BrokerServices, 'contents' | 'messages'>;
  readonly #steps = new Scheduler({
    atOnce: 1,
    quantum: pointsOfStep,
    // Connections have limits of their own.
    maxWaiting: unbounded,
  });

  constructor(services: Pick<BrokerServices, 'contents' | 'messages'>) {
    this.#services = services;
  }

  /** What is kept of a message's points, as soon as they can be stored in one go. Rejects when the store takes none. */
  ready(lane: Lane, route: Route, read: PointsRead): Message['read'] | Promise<MessagePoints> {
    if ('reason' in read) return read;
    const { kept, reason: why } = this.#services.contents.splitPoints(
      route.accountId,
      route.channel.retentionDays,
      read.points,
    );
    const costOfCategories = pointsOfCategory * moreCategoriesOf(kept);
    const points = { kept, why, count: read.points.length };
    if (costOfCategories >= longMessage) return this.#prepare(lane, route, points);
    return { ...points, cost: kept.length + costOfCategories, isPrepared: false };
  }

  async #prepare(lane: Lane, route: Route, points: Pick<MessagePoints, 'kept' | 'why' | 'count'>) {
    const { kept } = points;
    const inOrder = kept.toSorted((one, other) => one.time - other.time);
    for (let at = 0; at < inOrder.length; at += pointsOfStep) {
      const some = inOrder.slice(at, at + pointsOfStep);
      await this.#steps.run(lane, some.length, () => this.#services.messages.prepare(seriesOf(route), some));
    }
    return { ...points, cost: kept.length, isPrepared: true };
  }
}

/** How many categories points have beyond one. */
function moreCategoriesOf(points: readonly Point[]): number {
  return points.length <= 1 ? 0 : new Set(points.map(({ category }) => category)).size - 1;
}
