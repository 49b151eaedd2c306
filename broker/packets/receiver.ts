import type { BrokerClient, BrokerCore, Incoming, LiveClient } from '../aedes-types.ts';
import { OverLimit } from '../connections/limits.ts';
import { expect } from '../connections/live-clients.ts';
import { faultOf } from '../connections/safe-error.ts';
import type { PublishHooks } from '../hooks/publish.ts';
import type { Reports } from '../ingest/reports.ts';
import type { SessionStore } from '../sessions/persistence.ts';
import { type Answer, Malformed, type Packet } from './read.ts';
import { answerBytes, pingResponse, subackBytes, whenWritable, write } from './write.ts';

type Done = (error?: Error | null) => void;

export interface ReceiverParts {
  aedes: BrokerCore;
  hooks: Pick<PublishHooks, 'publish'>;
  persistence: SessionStore;
  /** Levels that a topic may have. */
  maxTopicLevels: number;
  log: { error(details: object, message: string): void };
  /** Whether an account is on its way to another server. */
  isAway(accountId: string): boolean;
  reports: Pick<Reports, 'isFull'>;
  /** The client of a login session has sent a packet. */
  sessionUsed(sessionId: string, accountId: string): void;
}

/** QoS 2 messages that may wait for their PUBREL on one connection. */
const maxUnreleased = 1000;

/**
 * What the broker does with each packet after CONNECT. Answers leave in the order of the packets, and messages are handed on
 * in that order too, whatever they wait for. Aedes keeps subscriptions, sessions and wills, and finds the subscribers.
 */
export class PacketReceiver {
  readonly #parts: ReceiverParts;

  constructor(parts: ReceiverParts) {
    this.#parts = parts;
  }

  isBeingStored(client: BrokerClient, messageId: number): boolean {
    return this.#parts.persistence.received.isBeingStored(client, messageId);
  }

  isHeld({ live }: BrokerClient): boolean {
    return live?.identity !== undefined && this.#parts.isAway(live.identity.caller.accountId);
  }

  isFull({ live }: BrokerClient): boolean {
    return live !== undefined && this.#parts.reports.isFull(live);
  }

  receive(client: BrokerClient, packet: Packet, done: Done, answered: () => void): void {
    const { live } = client;
    if (!live) {
      done(new Error('no CONNECT seen'));
      return;
    }
    try {
      const { sessionId, caller } = live.identity ?? {};
      if (sessionId !== undefined && caller) this.#parts.sessionUsed(sessionId, caller.accountId);
      this.#receive(live, packet, done, answered);
    } catch (error) {
      this.#parts.log.error({ fault: faultOf(error), connectionId: live.connectionId }, 'a packet was not handled');
      done(error as Error);
    }
  }

  #receive(live: LiveClient, packet: Packet, done: Done, answered: () => void): void {
    const { client } = live;
    switch (packet.cmd) {
      case 'publish':
        this.#publish(live, packet, done);
        break;
      case 'puback':
      case 'pubcomp':
        this.#delivered(live, packet, done);
        break;
      case 'pubrec':
        this.#received(live, packet, done);
        break;
      case 'pubrel':
        this.#released(live, packet, done);
        break;
      case 'subscribe':
        this.#subscribe(live, packet, done, answered);
        break;
      case 'unsubscribe':
        client.unsubscribe(packet as never, (error?: Error) => done(error));
        break;
      case 'pingreq':
        this.#answerInTurn(live, pingResponse, done);
        break;
      case 'disconnect':
        done();
    }
  }

  // PUBLISH

  #publish(live: LiveClient, packet: Incoming, done: Done): void {
    const { hooks, persistence, maxTopicLevels } = this.#parts;
    const { client } = live;
    if (levelsOf(packet.topic) > maxTopicLevels) {
      done(new OverLimit('max_topic_levels'));
      return;
    }
    if (packet.qos < 2) {
      hooks.publish(client, packet, (error) => this.#accepted(live, packet, error, done));
      return;
    }
    const id = packet.messageId as number;
    persistence.received.find(client, packet).then(
      () => this.#answerInTurn(live, answerBytes('pubrec', id), done),
      () => {
        live.unreleased ??= new Set();
        const { unreleased } = live;
        if (!unreleased.has(id)) {
          if (persistence.received.isFull(client)) {
            done(new OverLimit('max_unreleased_per_account'));
            return;
          }
          if (unreleased.size >= maxUnreleased) {
            done(new Error('too many QoS 2 messages wait for their PUBREL'));
            return;
          }
        }
        unreleased.add(id);
        hooks.publish(client, packet, (error) => {
          if (error) unreleased.delete(id);
          else persistence.received.add(client, packet);
          this.#accepted(live, packet, error, done);
        });
      },
    );
  }

  /** In the client's order: the acknowledgement, then the message to its subscribers. */
  #accepted({ client }: LiveClient, packet: Incoming, error: Error | null | undefined, done: Done): void {
    if (error) {
      done(error);
      return;
    }
    const id = packet.messageId as number;
    if (packet.qos > 0) write(client.conn, answerBytes(packet.qos === 1 ? 'puback' : 'pubrec', id));
    // DUP of the publisher does not concern subscribers [MQTT-3.3.1-3].
    packet.dup = false;
    this.#parts.aedes.publish(packet, client, (fault?: Error) => {
      if (fault) done(fault);
      else whenWritable(client, done);
    });
  }

  /** PUBREL: the packet id may name a new message after PUBCOMP. */
  #released(live: LiveClient, { messageId }: Answer, done: Done): void {
    const { client, turns } = live;
    let failure: Error | undefined;
    const turn = turns.take(() => {
      if (failure) done(failure);
      else this.#answer(client, answerBytes('pubcomp', messageId), done);
    });
    this.#parts.persistence
      .incomingDelPacket(client, { messageId })
      .then(() => {
        live.unreleased?.delete(messageId);
      })
      .catch((error) => {
        failure = error;
      })
      .finally(() => turns.finish(turn));
  }

  // Acknowledgements of deliveries

  /** PUBACK or PUBCOMP. */
  #delivered({ client, sent }: LiveClient, { cmd, messageId }: Answer, done: Done): void {
    const awaited = sent?.get(messageId);
    if (awaited !== undefined && awaited !== cmd) {
      done(new Malformed(`${cmd.toUpperCase()} instead of ${awaited.toUpperCase()}`));
      return;
    }
    sent?.delete(messageId);
    this.#parts.persistence.outgoingClearMessageId(client, { messageId }).then(() => done(), done);
  }

  /** PUBREC: PUBREL follows when a stored session knows of it on disk. */
  #received(live: LiveClient, { messageId }: Answer, done: Done): void {
    const { client, turns } = live;
    const awaited = live.sent?.get(messageId);
    if (awaited === 'puback') {
      done(new Malformed('PUBREC instead of PUBACK'));
      return;
    }
    let failure: Error | undefined;
    const turn = turns.take(() => {
      if (failure) done(failure);
      else this.#answer(client, answerBytes('pubrel', messageId), done);
    });
    if (awaited !== undefined) expect(live, messageId, 'pubcomp');
    if (client.clean) {
      turns.finish(turn);
      return;
    }
    this.#parts.persistence
      .outgoingUpdate(client, { cmd: 'pubrel', messageId })
      .catch((error) => {
        failure = error;
      })
      .finally(() => turns.finish(turn));
  }

  // SUBSCRIBE

  /** Done when what is retained has been sent too: what comes later finds the same as if it came an hour later. */
  #subscribe(live: LiveClient, packet: Extract<Packet, { cmd: 'subscribe' }>, done: Done, answered: () => void): void {
    const { client, leaving } = live;
    const { messageId, subscriptions } = packet;
    // Messages that match already leave after the SUBACK. A connection that closes before holds up no publisher.
    const turn = leaving.take(() => {});
    const release = () => leaving.finish(turn);
    client.conn.once('close', release);
    live.refusedFilters = undefined;
    live.whenSubscribed = () => {
      live.whenSubscribed = undefined;
      done();
    };
    // Without a packet id Aedes sends no SUBACK. Its own has one code for filters that are the same.
    client.subscribe({ cmd: 'subscribe', subscriptions } as never, (error?: Error) => {
      client.conn.off('close', release);
      if (error) {
        live.whenSubscribed = undefined;
        release();
        done(error);
        return;
      }
      const codes = subscriptions.map(({ topic, qos }) => (live.refusedFilters?.has(topic) ? 128 : qos));
      write(client.conn, subackBytes(messageId, codes));
      release();
      answered();
    });
  }

  #answerInTurn({ client, turns }: LiveClient, bytes: Buffer, done: Done): void {
    if (turns.idle) this.#answer(client, bytes, done);
    else turns.finish(turns.take(() => this.#answer(client, bytes, done)));
  }

  #answer(client: BrokerClient, bytes: Buffer, done: Done): void {
    write(client.conn, bytes);
    whenWritable(client, done);
  }
}

function levelsOf(topic: string): number {
  let levels = 1;
  for (let at = topic.indexOf('/'); at !== -1; at = topic.indexOf('/', at + 1)) levels += 1;
  return levels;
}
