/**
 * Connections that enroll (username `enroll/<groupId>[/<serialNumber>]`): they ask on `<root>/enroll`, get their answer on
 * `<root>/enroll/accepted` or `…/rejected`, and end. They have no session and no will, and take no client id of others.
 */

import type { Config } from '../src/core/config.ts';
import { PlatformError } from '../src/core/errors.ts';
import type { Properties } from '../src/core/formats/message-properties.ts';
import { canonicalId } from '../src/core/ids.ts';
import type { EnrolledMessage, EnrollmentProof, EnrollmentService } from '../src/ports/broker-ports.ts';
import { type Authenticator, ConnectRefused } from './authenticate.ts';
import type { BrokerClient, PacketDone } from './client-types.ts';
import type { Client } from './connections/client.ts';
import type { Limits } from './connections/limits.ts';
import type { PeerCertificates } from './connections/peer-certificates.ts';
import type { Connecting } from './connections/sockets.ts';
import type { Incoming } from './message-types.ts';
import type { Packet } from './packets/codec.ts';
import type { Connect } from './packets/connect.ts';
import { faults, Malformed } from './packets/fields.ts';
import { write, writePayload } from './packets/write.ts';
import { type End, ends, type Reason, reason } from './reasons.ts';

const prefix = 'enroll/';
/** Milliseconds from CONNACK to the end, whatever happens. */
const patience = 60_000;
/** The packet id of the one message that is sent. */
const answerId = 1;
const notAuthorized = 0x87;
const normal = 0x00;
const nothing = Buffer.alloc(0);

interface EnrollParts {
  config: Pick<Config, 'topicRoot'>;
  enrollment: EnrollmentService;
  authenticator: Pick<Authenticator, 'keepAliveOf'>;
  limits: Pick<Limits, 'about'>;
  peers: Pick<PeerCertificates, 'take'>;
}

/** A connection with its CONNACK, until it has its answer. */
interface Enrolling {
  proof: EnrollmentProof;
  /** Filters in force, with the QoS that is granted. */
  filters: Map<string, 0 | 1>;
  hasAsked: boolean;
  /** Messages of QoS 2 that wait for their PUBREL. */
  unreleased: Set<number>;
  /** Called when the answer has arrived, or nobody waits for it any more. */
  sent: () => void;
}

/** Whether a CONNECT is one of a device that enrolls. */
export function isEnrolling({ username = '' }: Pick<Connect, 'username'>): boolean {
  return username.startsWith(prefix);
}

export class EnrollHooks {
  readonly #parts: EnrollParts;
  readonly #enrolling = new WeakMap<BrokerClient, Enrolling>();
  readonly #topic: string;

  constructor(parts: EnrollParts) {
    this.#parts = parts;
    this.#topic = `${parts.config.topicRoot}/enroll`;
  }

  /** Proves what the CONNECT shows, and lets it in. @throws ConnectRefused */
  async enter(client: Client, { connect, accept }: Connecting): Promise<void> {
    const { authenticator, enrollment, limits, peers } = this.#parts;
    client.will = undefined;
    const proof = { ...readUsername(connect.username ?? ''), ...this.#shownBy(client, connect, peers) };
    await enrollment.proveAccount(proof).catch((error) => {
      throw refusalOf(error);
    });
    if (client.closed || client.conn.destroyed) throw new ConnectRefused('unavailable', 'closed meanwhile');
    const keepAlive = authenticator.keepAliveOf(connect, limits.about(client.conn));
    client.expectPackets(keepAlive);
    const enrolling: Enrolling = { proof, filters: new Map(), hasAsked: false, unreleased: new Set(), sent: () => {} };
    this.#enrolling.set(client, enrolling);
    const timer = setTimeout(() => end(client, ends.enrolled), patience);
    client.conn.once('close', () => {
      clearTimeout(timer);
      enrolling.sent();
    });
    accept(false, propertiesFor(connect, keepAlive));
  }

  #shownBy(client: BrokerClient, { password }: Connect, peers: EnrollParts['peers']) {
    const { address = '' } = client.live;
    return { secret: password?.toString() ?? '', presented: peers.take(client), address };
  }

  /** Whether a client is one of these. Its packets are for `receive`. */
  has(client: BrokerClient): boolean {
    return this.#enrolling.has(client);
  }

  receive(client: BrokerClient, packet: Packet, done: PacketDone): void {
    const enrolling = this.#enrolling.get(client);
    if (!enrolling) {
      done(new Error('not proven'));
      return;
    }
    const { conn, codec } = client;
    switch (packet.cmd) {
      case 'publish':
        this.#publish(client, enrolling, packet, done);
        return;
      case 'puback':
        if (packet.messageId === answerId) endAfter(client, enrolling, nothing);
        break;
      case 'pubrel':
        enrolling.unreleased.delete(packet.messageId);
        write(conn, codec.answer('pubcomp', packet.messageId));
        break;
      case 'subscribe': {
        const granted = packet.subscriptions.map(({ topic, qos }) => this.#subscribe(enrolling, topic, qos));
        write(conn, codec.suback(packet.messageId, granted));
        break;
      }
      case 'unsubscribe':
        for (const filter of packet.unsubscriptions) enrolling.filters.delete(filter);
        write(
          conn,
          codec.unsuback(
            packet.messageId,
            packet.unsubscriptions.map(() => undefined),
          ),
        );
        break;
      case 'pingreq':
        write(conn, codec.pingresp());
        break;
      default:
    }
    client.whenWritable(done);
  }

  #subscribe({ filters }: Enrolling, filter: string, qos: 0 | 1 | 2): 0 | 1 | Reason {
    const known = [`${this.#topic}/+`, `${this.#topic}/accepted`, `${this.#topic}/rejected`];
    if (!known.includes(filter)) return reason('notPermitted');
    const granted = qos === 0 ? 0 : 1;
    filters.set(filter, granted);
    return granted;
  }

  /** The request: its PUBACK, or PUBREC, follows when what it has made is on disk, and the answer follows that. */
  #publish(client: BrokerClient, enrolling: Enrolling, packet: Incoming, done: PacketDone): void {
    const hears = enrolling.filters.size > 0;
    if (packet.topic !== this.#topic || !hears) {
      // Below level 5 no acknowledgement can say so.
      if (client.codec.level < 5 || packet.qos === 0) {
        done(
          new Malformed(hears ? 'not the topic of requests' : 'no subscription to the answer', {
            code: faults.protocol,
          }),
        );
        return;
      }
      acknowledge(client, packet, notAuthorized);
      client.whenWritable(done);
      return;
    }
    const isAgain = enrolling.hasAsked;
    enrolling.hasAsked = true;
    if (packet.qos === 2) enrolling.unreleased.add(packet.messageId as number);
    if (isAgain) {
      acknowledge(client, packet, 0);
      client.whenWritable(done);
      return;
    }
    const payload = Buffer.from(packet.payload);
    this.#parts.enrollment
      .exchangeMessage(enrolling.proof, payload)
      .then((answer) => {
        acknowledge(client, packet, 0);
        this.#answer(client, enrolling, answer);
        client.whenWritable(done);
      })
      .catch((error) => done(error));
  }

  #answer(client: BrokerClient, enrolling: Enrolling, { isAccepted, payload, sent }: EnrolledMessage): void {
    const { conn, codec } = client;
    enrolling.sent = sent;
    if (conn.destroyed) sent();
    const topic = `${this.#topic}/${isAccepted ? 'accepted' : 'rejected'}`;
    const qos = [enrolling.filters.get(topic), enrolling.filters.get(`${this.#topic}/+`)].includes(1) ? 1 : 0;
    const hears = enrolling.filters.has(topic) || enrolling.filters.has(`${this.#topic}/+`);
    const header = { topic, retain: false, dup: false };
    const bytes =
      hears && !client.closed ? codec.publish(header, payload, qos, qos === 1 ? answerId : undefined) : undefined;
    if (!bytes) {
      endAfter(client, enrolling, nothing);
      return;
    }
    write(conn, bytes);
    writePayload(conn, payload);
    if (qos === 0) endAfter(client, enrolling, nothing);
  }
}

/** The group and the serial number that a username names; the id of a group ends at the first slash. */
function readUsername(username: string): Pick<EnrollmentProof, 'groupId' | 'serialNumber'> {
  const name = username.slice(prefix.length);
  const slash = name.indexOf('/');
  if (slash === -1) return { groupId: canonicalId(name) };
  return { groupId: canonicalId(name.slice(0, slash)), serialNumber: name.slice(slash + 1) };
}

function refusalOf(error: unknown): Error {
  if (!(error instanceof PlatformError)) return error as Error;
  const { kind, allowance } = error;
  if (kind === 'badCredentials') return new ConnectRefused('bad_credentials', 'unknown or wrong credentials');
  if (kind !== 'tooMany') return new ConnectRefused('unavailable', error.message);
  const about = { limit: 'failed_connects_per_principal', allowance } as const;
  return new ConnectRefused('bad_credentials', 'too many wrong proofs of one enrollment group', about);
}

function propertiesFor({ codec, clientId, keepAlive, sessionExpiry }: Connect, granted: number): Properties {
  if (codec.level < 5) return {};
  return {
    receiveMaximum: 1,
    ...(clientId === '' && { assignedClientId: 'enrolling' }),
    ...(sessionExpiry > 0 && { sessionExpiry: 0 }),
    ...(granted !== keepAlive && { serverKeepAlive: granted }),
  };
}

function acknowledge({ conn, codec }: BrokerClient, { qos, messageId = 0 }: Incoming, code: number): void {
  if (qos > 0) write(conn, codec.answer(qos === 1 ? 'puback' : 'pubrec', messageId, code));
}

/** The answer has arrived, or what is left is on its way: the connection ends behind it. */
function endAfter(client: BrokerClient, enrolling: Enrolling, bytes: Buffer): void {
  // Only what has left has been sent.
  client.conn.once('finish', () => enrolling.sent());
  client.leaveWith(Buffer.concat([bytes, client.codec.disconnect(normal) ?? nothing]));
}

function end(client: BrokerClient, { code, sentence }: End): void {
  client.leaveWith(client.codec.disconnect(code, sentence) ?? nothing);
}
