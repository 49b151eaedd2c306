/** What the broker does with messages on service channels: log entries, reports on updates and commands, `_set/fields`. */
import { maxLogEntryLength } from '../../db/messages/store.ts';
import { newId } from '../../src/core/ids.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import type { StreamPositions } from '../http/stream-positions.ts';
import { reason, unusable } from '../reasons.ts';
import type { Settled } from './callbacks.ts';
import type { Handler, Message } from './message.ts';
import type { Rejections } from './rejections.ts';
import type { Reports } from './reports.ts';

/** How a handler passes on a message when it has done its own part. */
export interface Keeping {
  /** Writes it for stored sessions and bridges. */
  keep(message: Message, done: Settled): void;
  /** Writes it for stored sessions only. */
  keepForSessions(message: Message, done: Settled): void;
  /** Writes it in one transaction with what `store` gives to the message store. */
  storeAndKeep(message: Message, done: Settled, store: (stored: Settled) => void): void;
}

/** The services of the handlers. */
export interface HandlerParts {
  services: BrokerServices;
  rejections: Rejections;
  reports: Reports;
  marks: StreamPositions;
  keeping: Keeping;
}

export class ServiceHandlers {
  readonly #parts: HandlerParts;
  /** One for each handler of the table in src/core/topics.ts. */
  readonly #handlers: Record<Handler, (message: Message, done: Settled) => void> = {
    log: (message, done) => this.#storeLog(message, done),
    fields: (message, done) => this.#setFields(message, done),
    report: (message, done) => this.#takeReport(message, done),
  };

  constructor(parts: HandlerParts) {
    this.#parts = parts;
  }

  /** `done` is called when the message has been handled. */
  handle(handler: Handler, message: Message, done: Settled): void {
    this.#handlers[handler](message, done);
  }

  #storeLog(message: Message, done: Settled): void {
    const { services, rejections, marks, keeping } = this.#parts;
    const { packet, route, origin } = message;
    const { accountId, deviceId } = route;
    if (packet.payload.length > maxLogEntryLength) {
      rejections.explain(
        message,
        reason('notReadable', [{ message: `a log entry has at most ${maxLogEntryLength} bytes` }]),
      );
      keeping.keep(message, done);
      return;
    }
    const received = services.clock.now();
    const entry = origin.posted ?? {
      ...services.contents.readLogEntry(packet.payload, received),
      ...{ id: newId(accountId), received },
    };
    keeping.storeAndKeep(message, done, (stored) =>
      services.messages.appendLog({ ...entry, accountId, deviceId }, (error, end) => {
        if (end && !error) {
          message.isStored = true;
          marks.stored(accountId, packet.payload, end, { points: 0, logs: 1 });
        }
        stored(error);
      }),
    );
  }

  #report<R>({ route, caller, origin }: Message, handle: () => Promise<R>): Promise<R> {
    const { live, cause } = origin;
    return this.#parts.reports.take({ live, lane: { accountId: route.accountId, callerId: caller.id }, cause }, handle);
  }

  /** A device's report on an update or a command; an unusable one is delivered all the same, and explained. */
  #takeReport(message: Message, done: Settled): void {
    const { services, rejections, keeping } = this.#parts;
    const { packet, route } = message;
    this.#report(message, () => services.devices.downlink.takeReport(route, route.channel.name, packet.payload))
      .then((rejection) => {
        message.isStored = true;
        if (rejection) rejections.explain(message, unusable(rejection));
        keeping.keep(message, done);
      })
      .catch(done);
  }

  #setFields(message: Message, done: Settled): void {
    const { services, rejections, keeping } = this.#parts;
    const { packet, route, caller } = message;
    const full = services.messages.fullFor(route.accountId);
    if (full) {
      done(full);
      return;
    }
    this.#report(message, () => services.devices.setFields(caller, route.deviceId, packet.payload))
      .then((rejection) => {
        if (!rejection) {
          message.isStored = true;
          keeping.keep(message, done);
          return;
        }
        rejections.replace(message, unusable(rejection));
        message.isAccepted = false;
        keeping.keepForSessions(message, done);
      })
      .catch(done);
  }
}
