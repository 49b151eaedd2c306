import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import type { ConnectPacket } from 'aedes';
import type { Caller } from '../src/access.ts';
import type { BrokerServices, PresentedCertificate, SecretCheck } from '../src/broker-ports.ts';
import type { Allowance } from '../src/limits/attempts.ts';
import type { BrokerClient, LiveClient, ProvenIdentity } from './aedes-types.ts';
import type { Authority } from './authorize.ts';
import { privateClientId } from './connections/client-ids.ts';
import type { LimitName, RefusalReason } from './connections/counters.ts';
import type { Limits } from './connections/limits.ts';
import { newLiveClient, type Sessions } from './connections/live-clients.ts';
import type { PeerCertificates } from './connections/peer-certificates.ts';
import { hasForbiddenCharacter } from './topics.ts';

/** Bytes, in MQTT 3.1 too. */
const maxClientIdLength = 128;
const maxUsernameLength = 256;
const jwtUsername = 'Auth:JWT';

/** CONNACK return codes [MQTT-3.2.2.3]. */
export const connack = {
  unacceptableLevel: 1,
  identifierRejected: 2,
  unavailable: 3,
  badCredentials: 4,
  notAuthorized: 5,
} as const;
type ReturnCode = (typeof connack)[keyof typeof connack];
const reasons: Record<ReturnCode, RefusalReason> = {
  1: 'level',
  2: 'identifier_rejected',
  3: 'unavailable',
  4: 'bad_credentials',
  5: 'not_authorized',
};

/** Limits that are looked at when the credential has been proven. */
const limitsOfProven: ReadonlySet<LimitName | undefined> = new Set([
  'max_connections_per_principal',
  'max_connections_per_device',
  'max_stored_sessions_per_account',
]);

/** A refused CONNECT; Aedes answers with `returnCode` and closes. */
export class ConnectRefused extends Error {
  override name = 'ConnectRefused';

  readonly returnCode: ReturnCode;
  readonly about: {
    /** The limit that was reached, when it was one, and when it is over. */
    limit?: LimitName;
    allowance?: Allowance | undefined;
    /** The device whose certificate it was. */
    deviceId?: string | undefined;
  };

  constructor(
    returnCode: ReturnCode,
    message: string,
    about: {
      /** The limit that was reached, when it was one, and when it is over. */
      limit?: LimitName;
      allowance?: Allowance | undefined;
      /** The device whose certificate it was. */
      deviceId?: string | undefined;
    } = {},
  ) {
    super(message);
    this.returnCode = returnCode;
    this.about = about;
  }

  get limit(): LimitName | undefined {
    return this.about.limit;
  }

  get reason(): RefusalReason {
    return reasons[this.returnCode];
  }

  /** Whether the credential was right all the same; what is not known to be so counts as a stranger's. */
  get isProven(): boolean {
    return this.returnCode === connack.notAuthorized || limitsOfProven.has(this.limit);
  }
}

/** The connecting caller and its rights. */
export class Authenticator {
  readonly #services: BrokerServices;
  readonly #sessions: Sessions;
  readonly #authority: Authority;
  readonly #limits: Limits;
  readonly #peers: PeerCertificates;
  readonly #mayBegin: (clientId: string) => boolean;
  /** Begins the ids of those that have sent none; a will of another process has another. */
  readonly #nameless = randomUUID();
  #unproven = 0;

  constructor(
    services: BrokerServices,
    sessions: Sessions,
    authority: Authority,
    limits: Limits,
    peers: PeerCertificates,
    mayBegin: (clientId: string) => boolean,
  ) {
    this.#services = services;
    this.#sessions = sessions;
    this.#authority = authority;
    this.#limits = limits;
    this.#peers = peers;
    this.#mayBegin = mayBegin;
  }

  /**
   * Looks at a CONNECT before anything is proven. A refusal always carries an error: Aedes leaves the socket of a
   * refusal without one open for ever.
   */
  preConnect(client: BrokerClient, packet: ConnectPacket, done: (error: Error | null, success: boolean) => void): void {
    const { clientId, username, will, clean } = packet;
    const texts = [clientId, username ?? '', will?.topic ?? ''];
    if (texts.some(hasForbiddenCharacter) || (will && !isPublishTopic(will.topic))) {
      done(new Error('malformed CONNECT'), false);
      return;
    }
    if (Buffer.byteLength(clientId) > maxClientIdLength || (clientId === '' && !clean)) {
      // Aedes sends no CONNACK for a refusal here, and destroys the socket when the callback gets an error.
      const refusal = new ConnectRefused(connack.identifierRejected, 'client id refused');
      void this.#limits.refused(refusal, this.#limits.about(client.conn));
      client.conn.write(Buffer.from([0x20, 2, 0, refusal.returnCode]), () => done(refusal, false));
      return;
    }
    const { maxKeepaliveSeconds } = this.#services.config.mqtt;
    if (maxKeepaliveSeconds > 0 && (!packet.keepalive || packet.keepalive > maxKeepaliveSeconds)) {
      packet.keepalive = maxKeepaliveSeconds;
      this.#limits.hit('max_keepalive_seconds', this.#limits.about(client.conn));
    }
    client.live = newLiveClient(client, clientId, this.#limits.about(client.conn));
    // Until the principal is known no id of a session may be here: Aedes cleans up by it when a connection closes.
    this.#unproven += 1;
    packet.clientId = `${this.#nameless}/${this.#unproven}`;
    done(null, true);
  }

  /** Proves the credential of a CONNECT, registers the connection and makes its client id private to the principal. */
  async authenticate(client: BrokerClient, username: string | undefined, password: Buffer | undefined): Promise<void> {
    const live = client.live;
    if (!live) throw new ConnectRefused(connack.unavailable, 'no CONNECT seen');
    const mark = this.#sessions.beginCheck();
    let away: string | undefined;
    try {
      const identity = await this.#proveClient(client, username, password, live);
      const { accountId } = identity.caller;
      if (this.#services.gate.isAway(accountId)) away = accountId;
      else this.#admit(client, live, identity, mark);
    } finally {
      this.#sessions.checked();
    }
    if (away !== undefined) await this.#sendAway(client, away);
    const { identity } = live;
    if (!identity) throw new ConnectRefused(connack.badCredentials, 'not proven');
    if (client._will && this.#authority.decidePublish(identity, client._will.topic).verdict !== 'accepted')
      throw new ConnectRefused(connack.notAuthorized, 'will topic not permitted');
    const id = privateClientId(identity.caller.accountId, identity.principal, live.clientId || client.id);
    if (!client.clean && !this.#mayBegin(id))
      throw new ConnectRefused(connack.unavailable, 'the account has too many stored sessions', {
        limit: 'max_stored_sessions_per_account',
      });
    client.id = id;
  }

  #admit(client: BrokerClient, live: LiveClient, identity: ProvenIdentity, mark: number): void {
    if (client.closed || client.conn.destroyed) throw new ConnectRefused(connack.unavailable, 'closed meanwhile');
    const limit = this.#limits.exceeded(identity.caller, this.#sessions.othersOf(live, identity));
    if (limit) throw new ConnectRefused(connack.unavailable, 'too many connections of one principal', { limit });
    if (!this.#sessions.admit(live, identity, mark))
      throw new ConnectRefused(connack.unavailable, 'the principal changed meanwhile');
  }

  /** Not answered until it is decided where the account is: the client then comes back to the right server. */
  async #sendAway({ conn }: BrokerClient, accountId: string): Promise<never> {
    const gone = new AbortController();
    const end = () => gone.abort();
    conn.on('close', end);
    if (conn.destroyed) end();
    await this.#services.gate.whenBack(accountId, gone.signal);
    // Without CONNACK: some clients never come back after a refusal.
    conn.destroy();
    throw new ConnectRefused(connack.unavailable, 'the account is on its way to another server');
  }

  /**
   * Proves a username and password without a connection, under the same limits. @throws ConnectRefused
   */
  prove(username: string, password: string, address: string | undefined): Promise<ProvenIdentity> {
    return this.#prove(username, username === jwtUsername, Buffer.from(password), address);
  }

  /** Proves the certificate of a socket without a connection, under the same limits. @throws ConnectRefused */
  async proveShown(socket: Socket, username: string, address: string): Promise<ProvenIdentity | undefined> {
    const presented = this.#peers.of(socket);
    if (!presented) return undefined;
    return this.#tryCertificate(presented, username, username || presented.own.fingerprint256, address);
  }

  /** Whether the credential of a connection is still in force. */
  isCurrent({ principal, generation, expires }: ProvenIdentity): boolean {
    if (generation !== undefined) return this.#services.isInForce(principal, generation);
    return expires > this.#services.clock.now();
  }

  /** Whether a connection was made with the newest secret of its principal, or without one. */
  isNewest({ principal, generation }: ProvenIdentity): boolean {
    return generation === undefined || this.#services.generationOf(principal) === generation;
  }

  /** An identity with no end-user yet, say, has nothing to hear. */
  #demandReach(caller: Caller): void {
    if (!this.#services.access.may(caller, 'subscribe', 'device'))
      throw new ConnectRefused(connack.notAuthorized, 'nothing in reach');
  }

  /** With a password it is that which is proven: a whole fleet may be behind one certificate. */
  #proveClient(
    client: BrokerClient,
    username: string | undefined,
    password: Buffer | undefined,
    { clientId, address }: LiveClient,
  ): Promise<ProvenIdentity> {
    const presented = this.#peers.take(client);
    const name = username || clientId;
    if (!presented || password?.length || username === jwtUsername)
      return this.#prove(name, username === jwtUsername, password, address);
    return this.#tryCertificate(presented, username ?? '', name, address);
  }

  /** `guessed` is what wrong certificates are counted under, besides the address. */
  #tryCertificate(
    presented: PresentedCertificate,
    username: string,
    guessed: string,
    address: string | undefined,
  ): Promise<ProvenIdentity> {
    const prove = () => this.#proveCertificate(presented, username, address);
    return this.#services.certificates.isKnown(presented) ? prove() : this.#tryLimited(guessed, address, prove);
  }

  async #prove(
    entityId: string,
    byToken: boolean,
    password: Buffer | undefined,
    address: string | undefined,
  ): Promise<ProvenIdentity> {
    if (byToken) return this.#proveToken(password);
    const secret = password?.toString() ?? '';
    const prove = () => this.#proveSecret(entityId, secret, address);
    return this.#services.isProvenSecret(entityId, secret) ? prove() : this.#tryLimited(entityId, address, prove);
  }

  /**
   * Past the limit nothing is hashed or verified any more; what has been proven before has passed already. A new secret
   * starts again.
   */
  async #tryLimited(
    entityId: string,
    address: string | undefined,
    attempt: () => Promise<ProvenIdentity>,
  ): Promise<ProvenIdentity> {
    const guessed = `${entityId} ${this.#services.generationOf(entityId)}`;
    if (!(await this.#limits.mayGuess(guessed, address)))
      throw new ConnectRefused(connack.badCredentials, 'too many wrong secrets for one principal', {
        limit: 'failed_connects_per_principal',
        allowance: this.#limits.guessesLeft(guessed, address),
      });
    let outcome: 'right' | 'wrong' = 'right';
    try {
      return await attempt();
    } catch (error) {
      if (error instanceof ConnectRefused && error.returnCode === connack.badCredentials) outcome = 'wrong';
      throw error;
    } finally {
      this.#limits.guessed(guessed, address, outcome);
    }
  }

  async #proveToken(password: Buffer | undefined): Promise<ProvenIdentity> {
    const session = await this.#services.verifyToken(password?.toString() ?? '');
    if (!session) throw new ConnectRefused(connack.badCredentials, 'not the token of a live session');
    const { caller, sessionId, expires, tokenLifetime } = session;
    this.#demandReach(caller);
    const principal = caller.id;
    return {
      caller,
      principal,
      generation: undefined,
      sessionId,
      tokenLifetime,
      certificateId: undefined,
      expires,
      ownChannels: undefined,
    };
  }

  async #proveSecret(entityId: string, secret: string, address = ''): Promise<ProvenIdentity> {
    const proof: SecretCheck =
      entityId.length > maxUsernameLength
        ? { result: 'wrong' }
        : await this.#services.verifySecret(entityId, secret, address);
    if (proof.result === 'wrong') throw new ConnectRefused(connack.badCredentials, 'unknown or wrong credentials');
    if (proof.result === 'refused') throw new ConnectRefused(connack.notAuthorized, 'the entity may not connect now');
    const { caller, generation } = proof;
    this.#demandReach(caller);
    return {
      caller,
      principal: entityId,
      generation,
      sessionId: undefined,
      tokenLifetime: undefined,
      certificateId: undefined,
      expires: Number.POSITIVE_INFINITY,
      ownChannels: this.#authority.ownChannelsOf(caller),
    };
  }

  async #proveCertificate(
    presented: PresentedCertificate,
    username: string,
    address: string | undefined,
  ): Promise<ProvenIdentity> {
    const proof = await this.#services.certificates.check(presented, username, address);
    if (proof.result === 'wrong')
      throw new ConnectRefused(connack.badCredentials, proof.reason, { deviceId: proof.deviceId });
    if (proof.result === 'refused')
      throw new ConnectRefused(connack.notAuthorized, proof.reason, { deviceId: proof.deviceId });
    const { caller, certificateId, expires } = proof;
    return {
      caller,
      principal: caller.id,
      generation: undefined,
      sessionId: undefined,
      tokenLifetime: undefined,
      certificateId,
      expires,
      ownChannels: this.#authority.ownChannelsOf(caller),
    };
  }
}

function isPublishTopic(topic: string): boolean {
  return topic !== '' && !topic.includes('+') && !topic.includes('#');
}
