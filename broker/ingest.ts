import type { BrokerServices, Rejection } from '../src/context.js';
import type { BrokerCore, Incoming } from './aedes-types.js';
import type { Route } from './authorize.js';
import { faultOf } from './fault.js';
import type { ServiceChannels } from './service-channels.js';
import type { LiveClient } from './sessions.js';

type Done = (error?: Error) => void;

/** Bytes; a page of a thousand entries is answered at once. */
const longestLogEntry = 16_384;
const notReadable: Omit<Rejection, 'details'> = { code: 106, message: 'The payload was delivered but not stored.' };
const notStored: Rejection = { code: -199, message: 'The message could not be stored.', details: [] };

/**
 * What must be on disk before a message is acknowledged (decisions 5). Aedes acknowledges QoS 1 as soon as
 * `authorizePublish` calls back, before it stores or routes anything, so the durable write happens in there.
 */
export class Ingest {
  readonly #services: BrokerServices;
  readonly #aedes: BrokerCore;
  readonly #channels: ServiceChannels;
  #pending = 0;
  #whenIdle: (() => void) | undefined;

  constructor(services: BrokerServices, aedes: BrokerCore, channels: ServiceChannels) {
    this.#services = services;
    this.#aedes = aedes;
    this.#channels = channels;
  }

  /** Stores what the route wants stored; calls back in the client's order, for QoS 1 once it is on disk. */
  accept(live: LiveClient, packet: Incoming, route: Route, done: Done): void {
    // A QoS 2 message is stored once per packet id, when Aedes has seen that it is no duplicate; a will has no id.
    if ((packet.qos === 2 && packet.messageId !== undefined) || !isStored(route)) {
      this.inTurn(live, done);
      return;
    }
    if (packet.qos === 0 && !isRequest(route)) {
      this.#store(live, packet, route, () => {});
      this.inTurn(live, done);
      return;
    }
    const { turns, client } = live;
    const wasOpen = !client.closed;
    let failure: Error | undefined;
    const turn = turns.take(() => this.#pass(live, packet, wasOpen, failure, done));
    this.#store(live, packet, route, (error) => {
      failure = error;
      turns.finish(turn);
    });
  }

  /** Calls back once every earlier message of the client has passed. */
  inTurn({ turns }: LiveClient, done: Done): void {
    if (turns.idle) done();
    else turns.finish(turns.take(() => this.#guarded(done)));
  }

  /** For a new QoS 2 message, before PUBREC; rejects when it could not be stored. */
  acceptOnce(live: LiveClient, packet: Incoming, route: Route): Promise<void> | undefined {
    if (!isStored(route)) return undefined;
    return new Promise((resolve, reject) => {
      this.#store(live, packet, route, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Resolves when nothing that was handed to the store is waiting for it. */
  idle(): Promise<void> {
    if (this.#pending === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  /** `settled` is called once, whatever throws: an acknowledgement and the end of the process wait for it. */
  #store(live: LiveClient, packet: Incoming, route: Route, settled: Done): void {
    this.#pending += 1;
    const done = once((error) => {
      this.#guarded(() => (error ? this.#failed(packet, route, error, settled) : settled()));
      this.#pending -= 1;
      if (this.#pending === 0) this.#whenIdle?.();
    });
    const { channel } = route;
    try {
      if (!channel.service) this.#storePoints(packet, route, channel.id, done);
      else if (channel.name === '_log') this.#storeLog(packet, route, done);
      else this.#setFields(live, packet, route, done);
    } catch (error) {
      done(error as Error);
    }
  }

  #storePoints(packet: Incoming, route: Route, channelTemplateId: string, done: Done): void {
    const { accountId, deviceId } = route;
    // An empty retained message clears the retained one and says nothing else.
    if (packet.retain && packet.payload.length === 0) {
      done();
      return;
    }
    const read = this.#services.readPoints(packet.payload, this.#services.clock.now());
    if ('reason' in read) {
      this.#channels.reject(route, packet, { ...notReadable, details: [{ message: read.reason }] });
      done();
      return;
    }
    this.#services.messages.append({ accountId, deviceId, channelTemplateId }, read.points, done);
  }

  #storeLog(packet: Incoming, route: Route, done: Done): void {
    const { accountId, deviceId } = route;
    if (packet.payload.length > longestLogEntry) {
      const details = [{ message: `a log entry has at most ${longestLogEntry} bytes` }];
      this.#channels.reject(route, packet, { ...notReadable, details });
      done();
      return;
    }
    const received = this.#services.clock.now();
    const entry = this.#services.readLogEntry(packet.payload, received);
    this.#services.messages.appendLog({ ...entry, accountId, deviceId, received }, done);
  }

  #setFields(live: LiveClient, packet: Incoming, route: Route, done: Done): void {
    const caller = live.identity?.caller;
    if (!caller) {
      done(new Error('no caller'));
      return;
    }
    const applied = this.#services.setFields(caller, route.deviceId, packet.payload).then((rejection) => {
      if (rejection) this.#channels.rewrite(route, packet, rejection);
    });
    applied.then(() => done(), done);
  }

  /** The store did not take it: no acknowledgement, so that the client sends it again; the reason on `_rejected`. */
  #failed(packet: Incoming, route: Route, error: Error, settled: Done): void {
    this.#services.log.error({ err: error, topic: packet.topic }, 'a message could not be stored');
    const refused = once(() => settled(new Error('not stored')));
    try {
      this.#channels.reject(route, packet, notStored, refused);
    } catch (fault) {
      refused();
      throw fault;
    }
  }

  #pass(live: LiveClient, packet: Incoming, wasOpen: boolean, failure: Error | undefined, done: Done): void {
    // Stored, but the connection closed before the acknowledgement: Aedes would not route it any more.
    const isOrphan = !failure && wasOpen && packet.qos === 1 && live.client.closed;
    this.#guarded(() => {
      if (isOrphan) this.#aedes.publish(packet, () => done(new Error('connection closed')));
      else done(failure);
    });
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#services.log.error({ fault: faultOf(error) }, 'a message could not be passed on');
    }
  }
}

function once(done: Done): Done {
  let called = false;
  return (error) => {
    if (called) return;
    called = true;
    done(error);
  };
}

function isStored({ channel }: Route): boolean {
  if (!channel.service) return channel.persistenceType === 'timeSeries';
  return channel.name === '_log' || isRequest({ channel });
}

function isRequest({ channel }: Pick<Route, 'channel'>): boolean {
  return channel.service && channel.name === '_set/fields';
}
