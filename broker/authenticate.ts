import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { type Caller, principalOf } from '../src/core/caller.ts';
import { lineOf } from '../src/core/errors.ts';
import { isAccessToken } from '../src/core/formats/access-tokens.ts';
import { canonicalId } from '../src/core/ids.ts';
import type { Allowance } from '../src/core/limits/attempts.ts';
import type { BrokerBase, CredentialInForce, PresentedCertificate, SecretCheck } from '../src/ports/broker-ports.ts';
import type { Authority } from './authorize.ts';
import type { BrokerClient, LiveClient, ProvenIdentity } from './client-types.ts';
import { privateClientId } from './connections/client-ids.ts';
import { type LimitName, type RefusalReason, variableOf } from './connections/counters.ts';
import type { About, Limits } from './connections/limits.ts';
import type { Sessions } from './connections/live-clients.ts';
import type { PeerCertificates } from './connections/peer-certificates.ts';
import type { MessageChecks } from './message-checks.ts';
import type { ConnectRefusal } from './packets/codec.ts';
import type { Connect } from './packets/connect.ts';
import { Malformed } from './packets/fields.ts';
import { connectReasons, ends, rowOf } from './reasons.ts';
import type { SessionStore } from './sessions/persistence.ts';
import { hasForbiddenCharacter } from './topics.ts';

/** Bytes, in MQTT 3.1 too. */
const maxClientIdLength = 128;
const maxUsernameLength = 256;
/** Reason codes of MQTT 5. */
const quotaExceeded = 0x97;
const topicNameInvalid = 0x90;
const badAuthenticationMethod = 0x8c;
const jwtUsername = 'Auth:JWT';

/** Limits that are looked at when the credential has been proven. */
const limitsOfProven: ReadonlySet<LimitName | undefined> = new Set([
  'max_connections_per_principal',
  'max_connections_per_device',
  'max_stored_sessions_per_account',
  'max_will_bytes_per_account',
]);

/** What an account has room for. */
type SessionRoom = Pick<SessionStore, 'mayBegin' | 'hasRoomForWill'>;

interface AboutRefused {
  /** The limit that was reached, when it was one, and when it is over. */
  limit?: LimitName;
  allowance?: Allowance | undefined;
  /** The device whose certificate it was. */
  deviceId?: string | undefined;
  /** The reason code of MQTT 5, where it says more than the reason. */
  code?: number;
}

/** A refused CONNECT. */
export class ConnectRefused extends Error {
  override name = 'ConnectRefused';

  readonly reason: RefusalReason;
  readonly about: AboutRefused;

  constructor(reason: RefusalReason, message: string, about: AboutRefused = {}) {
    super(message);
    this.reason = reason;
    this.about = about;
  }

  get limit(): LimitName | undefined {
    return this.about.limit;
  }

  /** The return code of CONNACK. */
  get returnCode(): number {
    return connectReasons[this.reason].connack;
  }

  /** What CONNACK says. */
  get answer(): ConnectRefusal {
    const { reason, message, limit } = this;
    const sentence = limit === undefined ? message : `${variableOf(limit)}: ${message}`;
    const code = this.about.code ?? (limitsOfProven.has(limit) ? quotaExceeded : connectReasons[reason].mqtt5);
    return { reason, code, sentence };
  }

  /** Whether the credential was right all the same; what is not known to be so counts as a stranger's. */
  get isProven(): boolean {
    return this.reason === 'not_authorized' || limitsOfProven.has(this.limit);
  }
}

export interface AuthenticatorParts {
  services: BrokerBase;
  sessions: Sessions;
  authority: Authority;
  checks: MessageChecks;
  limits: Limits;
  peers: PeerCertificates;
  room: SessionRoom;
}

/** The connecting caller and its rights. */
export class Authenticator {
  readonly #parts: AuthenticatorParts;
  /** Begins the ids of those that have sent none; a will of another process has another. */
  readonly #nameless = randomUUID();
  #namelessCount = 0;

  constructor(parts: AuthenticatorParts) {
    this.#parts = parts;
  }

  /**
   * Looks at a CONNECT before anything is proven. @throws ConnectRefused; Malformed, which is not answered
   */
  look({ codec, clientId, username = '', will, cleanStart, hasAuthenticationMethod }: Connect): void {
    const isLevel5 = codec.level === 5;
    const hasBadWill = will !== undefined && !isPublishTopic(will.topic);
    if ([clientId, username, will?.topic ?? ''].some(hasForbiddenCharacter) || (hasBadWill && !isLevel5))
      throw new Malformed('malformed CONNECT');
    if (hasBadWill) throw new ConnectRefused('not_authorized', 'malformed will topic', { code: topicNameInvalid });
    if (hasAuthenticationMethod)
      throw new ConnectRefused('bad_credentials', 'no such authentication method', { code: badAuthenticationMethod });
    if (Buffer.byteLength(clientId) > maxClientIdLength || (clientId === '' && !cleanStart && !isLevel5))
      throw new ConnectRefused('identifier_rejected', 'client id refused');
  }

  /** The seconds after which a silent client is ended; 0 for never. */
  keepAliveOf({ keepAlive }: Connect, about: About): number {
    const { maxKeepaliveSeconds: most } = this.#parts.services.config.mqtt;
    if (most === 0 || (keepAlive > 0 && keepAlive <= most)) return keepAlive;
    this.#parts.limits.hit('max_keepalive_seconds', about);
    return most;
  }

  /** Proves the credential of a CONNECT, registers the connection and gives it its id, private to the principal. */
  async authenticate(client: BrokerClient, { username, password }: Connect): Promise<void> {
    const { live } = client;
    const mark = this.#parts.sessions.beginCheck();
    let away: string | undefined;
    try {
      const identity = await this.#proveClient(client, username, password, live);
      const { accountId } = identity.caller;
      if (this.#parts.services.gate.isAway(accountId)) away = accountId;
      else this.#admit(client, live, identity, mark);
    } finally {
      this.#parts.sessions.checked();
    }
    if (away !== undefined) await this.#sendAway(client, away);
    const { identity } = live;
    if (!identity) throw new ConnectRefused('bad_credentials', 'not proven');
    this.#demandWill(client, identity);
    const isNameless = live.clientId === '';
    const ownId = isNameless ? this.#nextNameless() : live.clientId;
    if (isNameless && client.codec.level === 5) live.clientId = ownId;
    const id = privateClientId(identity.caller.accountId, identity.principal, ownId);
    if (client.will && !this.#parts.room.hasRoomForWill(id, client.will))
      throw new ConnectRefused('unavailable', 'the wills of the account are too large', {
        limit: 'max_will_bytes_per_account',
      });
    if (!client.clean && !this.#parts.room.mayBegin(id))
      throw new ConnectRefused('unavailable', 'the account has too many stored sessions', {
        limit: 'max_stored_sessions_per_account',
      });
    client.id = id;
  }

  /** A will is looked at as the message that it will be. */
  #demandWill({ will }: BrokerClient, identity: ProvenIdentity): void {
    if (!will) return;
    const { authority, checks } = this.#parts;
    const refusal = checks.refusalOf(identity.caller, will);
    if (refusal) {
      const { kind, mqtt5 } = rowOf(refusal);
      throw new ConnectRefused('not_authorized', `will: ${lineOf(refusal)}`, {
        code: kind === 'tooLarge' ? quotaExceeded : mqtt5,
      });
    }
    const decision = authority.decidePublish(identity, will.topic);
    if (decision.verdict === 'accepted') return;
    const isNoTopic = decision.verdict === 'refused' && rowOf(decision.reason).mqtt5 === topicNameInvalid;
    const about = isNoTopic ? { code: topicNameInvalid } : {};
    throw new ConnectRefused('not_authorized', 'will topic not permitted', about);
  }

  #nextNameless(): string {
    this.#namelessCount += 1;
    return `${this.#nameless}/${this.#namelessCount}`;
  }

  #admit(client: BrokerClient, live: LiveClient, identity: ProvenIdentity, mark: number): void {
    if (client.closed || client.conn.destroyed) throw new ConnectRefused('unavailable', 'closed meanwhile');
    const limit = this.#parts.limits.exceeded(identity.caller, this.#parts.sessions.othersOf(live, identity));
    if (limit) throw new ConnectRefused('unavailable', 'too many connections of one principal', { limit });
    if (!this.#parts.sessions.admit(live, identity, mark))
      throw new ConnectRefused('unavailable', 'the principal changed meanwhile');
  }

  /** Not answered until it is decided where the account is: the client then comes back to the right server. */
  async #sendAway({ codec, conn }: BrokerClient, accountId: string): Promise<never> {
    const gone = new AbortController();
    const end = () => gone.abort();
    conn.on('close', end);
    if (conn.destroyed) end();
    await this.#parts.services.gate.whenBack(accountId, gone.signal);
    // Below level 5 without CONNACK: some clients never come back after a refusal.
    if (codec.level < 5) conn.destroy();
    const message = 'the account is on its way to another server';
    const isElsewhere = this.#parts.services.gate.isAway(accountId);
    throw new ConnectRefused('unavailable', message, isElsewhere ? { code: ends.useAnotherServer.code } : {});
  }

  /**
   * Proves a username and password without a connection, under the same limits. @throws ConnectRefused
   */
  prove(username: string, password: string, address: string | undefined): Promise<ProvenIdentity> {
    return this.#prove(username, username === jwtUsername, Buffer.from(password), address);
  }

  /** Proves the certificate of a socket without a connection, under the same limits. @throws ConnectRefused */
  async proveShown(socket: Socket, username: string, address: string): Promise<ProvenIdentity | undefined> {
    const presented = this.#parts.peers.of(socket);
    if (!presented) return undefined;
    return this.#tryCertificate(presented, username, username || presented.own.fingerprint256, address);
  }

  /** An identity with no end-user yet, say, has nothing to hear and nothing to say. */
  #demandReach(caller: Caller): void {
    if (!this.#parts.services.access.mayConnect(caller)) throw new ConnectRefused('not_authorized', 'nothing in reach');
  }

  /** With a password it is that which is proven: a whole fleet may be behind one certificate. */
  #proveClient(
    client: BrokerClient,
    username: string | undefined,
    password: Buffer | undefined,
    { clientId, address }: LiveClient,
  ): Promise<ProvenIdentity> {
    const presented = this.#parts.peers.take(client);
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
    const prove = () => this.#proveCertificate(presented, canonicalId(username), address);
    return this.#parts.services.proofs.certificates.isKnown(presented)
      ? prove()
      : this.#tryLimited(guessed, address, prove);
  }

  async #prove(
    given: string,
    byToken: boolean,
    password: Buffer | undefined,
    address: string | undefined,
  ): Promise<ProvenIdentity> {
    if (byToken) return this.#proveToken(password);
    const entityId = canonicalId(given);
    const secret = password?.toString() ?? '';
    if (isAccessToken(secret))
      return this.#tryLimited(entityId, address, () => this.#proveAccessToken(entityId, secret, address));
    const prove = () => this.#proveSecret(entityId, secret, address);
    return this.#parts.services.proofs.secrets.isProven(entityId, secret)
      ? prove()
      : this.#tryLimited(entityId, address, prove);
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
    const guessed = `${entityId} ${this.#parts.services.registry.credential(entityId)?.generation}`;
    if (!(await this.#parts.limits.mayGuess(guessed, address)))
      throw new ConnectRefused('bad_credentials', 'too many wrong secrets for one principal', {
        limit: 'failed_connects_per_principal',
        allowance: this.#parts.limits.guessesLeft(guessed, address),
      });
    let outcome: 'right' | 'wrong' = 'right';
    try {
      return await attempt();
    } catch (error) {
      if (error instanceof ConnectRefused && error.reason === 'bad_credentials') outcome = 'wrong';
      throw error;
    } finally {
      this.#parts.limits.guessed(guessed, address, outcome);
    }
  }

  async #proveToken(password: Buffer | undefined): Promise<ProvenIdentity> {
    const session = await this.#parts.services.proofs.logins.check(password?.toString() ?? '');
    if (!session) throw new ConnectRefused('bad_credentials', 'not the token of a live session');
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
      ground: undefined,
      expires,
      ownChannels: undefined,
    };
  }

  /** The token of a program is a principal of its own. Its username is the account. */
  async #proveAccessToken(username: string, text: string, address: string | undefined): Promise<ProvenIdentity> {
    const proven = this.#parts.services.proofs.logins.checkAccessToken(text, address);
    if (proven?.caller.accountId !== username)
      throw new ConnectRefused('bad_credentials', 'not a token of this account');
    const { caller, sessionId, expires } = proven;
    this.#demandReach(caller);
    return {
      caller,
      principal: principalOf(caller),
      generation: undefined,
      sessionId,
      tokenLifetime: undefined,
      certificateId: undefined,
      ground: undefined,
      expires,
      ownChannels: undefined,
    };
  }

  async #proveSecret(entityId: string, secret: string, address = ''): Promise<ProvenIdentity> {
    const proof: SecretCheck =
      entityId.length > maxUsernameLength
        ? { result: 'wrong' }
        : await this.#parts.services.proofs.secrets.check(entityId, secret, address);
    if (proof.result === 'wrong') throw new ConnectRefused('bad_credentials', 'unknown or wrong credentials');
    if (proof.result === 'refused') throw new ConnectRefused('not_authorized', 'the entity may not connect now');
    const { caller, generation } = proof;
    this.#demandReach(caller);
    return {
      caller,
      principal: entityId,
      generation,
      sessionId: undefined,
      tokenLifetime: undefined,
      certificateId: undefined,
      ground: undefined,
      expires: Number.POSITIVE_INFINITY,
      ownChannels: this.#parts.authority.ownChannelsOf(caller),
    };
  }

  async #proveCertificate(
    presented: PresentedCertificate,
    username: string,
    address: string | undefined,
  ): Promise<ProvenIdentity> {
    const proof = await this.#parts.services.proofs.certificates.checkCertificate(presented, username, address);
    if (proof.result === 'wrong')
      throw new ConnectRefused('bad_credentials', proof.reason, { deviceId: proof.deviceId });
    if (proof.result === 'refused')
      throw new ConnectRefused('not_authorized', proof.reason, { deviceId: proof.deviceId });
    const { caller, certificateId, ground, expires } = proof;
    return {
      caller,
      principal: caller.id,
      generation: undefined,
      sessionId: undefined,
      tokenLifetime: undefined,
      certificateId,
      ground,
      expires,
      ownChannels: this.#parts.authority.ownChannelsOf(caller),
    };
  }
}

/** The credential of a device, or of an entity that has a secret; undefined for a token. */
export function credentialOf({
  generation,
  certificateId,
}: Pick<ProvenIdentity, 'generation' | 'certificateId'>): CredentialInForce | undefined {
  if (generation !== undefined) return { generation };
  return certificateId === undefined ? undefined : { certificateId };
}

function isPublishTopic(topic: string): boolean {
  return topic !== '' && !topic.includes('+') && !topic.includes('#');
}
