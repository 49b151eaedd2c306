/** What the broker does with messages on service channels: log entries, reports on updates and commands, `_set/fields`. */
import { maxLogEntryLength } from '../../db/messages/store.ts';
import type { Stored, StoreEnd } from '../../db/messages/threads/protocol.ts';
import { newId } from '../../src/core/ids.ts';
import type { BrokerServices } from '../../src/ports/broker-ports.ts';
import { reason, unusable } from '../reasons.ts';
import type { Handler, Message } from './message.ts';
import type { Outcome } from './outcomes.ts';
import type { Rejections } from './rejections.ts';
import type { Reports } from './reports.ts';

/** How a handler passes on a message when it has done its own part. */
export interface Keeping {
  /** Writes it for stored sessions and bridges. */
  keep(message: Message): Outcome;
  /** Writes it for stored sessions only. */
  keepForSessions(message: Message): Outcome;
  /** Writes it in one transaction with what `append` gives to the message store; `added` says how much that is. */
  keepWith(message: Message, added: Readonly<StoreEnd>, append: (done: Stored) => void): Outcome;
}

/** The services of the handlers. */
export interface HandlerParts {
  services: BrokerServices;
  rejections: Rejections;
  reports: Reports;
  keeping: Keeping;
}

export class ServiceHandlers {
  readonly #parts: HandlerParts;
  /** One for each handler of the table in src/core/topics.ts. */
  readonly #handlers: Record<Handler, (message: Message) => Outcome> = {
    log: (message) => this.#storeLog(message),
    fields: (message) => this.#setFields(message),
    report: (message) => this.#takeReport(message),
  };

  constructor(parts: HandlerParts) {
    this.#parts = parts;
  }

  /** What handling the message comes to; may throw or reject. */
  handle(handler: Handler, message: Message): Outcome {
    return this.#handlers[handler](message);
  }

  #storeLog(message: Message): Outcome {
    const { services, rejections, keeping } = this.#parts;
    const { packet, route, origin } = message;
    const { accountId, deviceId } = route;
    if (packet.payload.length > maxLogEntryLength) {
      rejections.explain(
        message,
        reason('notReadable', [{ message: `a log entry has at most ${maxLogEntryLength} bytes` }]),
      );
      return keeping.keep(message);
    }
    const received = services.clock.now();
    const entry = origin.posted ?? {
      ...services.contents.readLogEntry(packet.payload, received),
      ...{ id: newId(accountId), received },
    };
    return keeping.keepWith(message, { points: 0, logs: 1 }, (done) =>
      services.messages.appendLog({ ...entry, accountId, deviceId }, done),
    );
  }

  #report<R>({ route, caller, origin }: Message, handle: () => Promise<R>): Promise<R> {
    const { live, cause } = origin;
    return this.#parts.reports.take({ live, lane: { accountId: route.accountId, callerId: caller.id }, cause }, handle);
  }

  /** A device's report on an update or a command; an unusable one is delivered all the same, and explained. */
  async #takeReport(message: Message): Promise<Error | undefined> {
    const { services, rejections, keeping } = this.#parts;
    const { packet, route } = message;
    const rejection = await this.#report(message, () =>
      services.devices.downlink.takeReport(route, route.channel.name, packet.payload),
    );
    message.isStored = true;
    if (rejection) rejections.explain(message, unusable(rejection));
    return keeping.keep(message);
  }

  async #setFields(message: Message): Promise<Error | undefined> {
    const { services, rejections, keeping } = this.#parts;
    const { packet, route, caller } = message;
    const full = services.messages.fullFor(route.accountId);
    if (full) return full;
    const rejection = await this.#report(message, () =>
      services.devices.setFields(caller, route.deviceId, packet.payload),
    );
    if (!rejection) {
      message.isStored = true;
      return keeping.keep(message);
    }
    rejections.replace(message, unusable(rejection));
    message.isAccepted = false;
    return keeping.keepForSessions(message);
  }
}
