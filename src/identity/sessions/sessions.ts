/**
 * Login sessions: a session lasts as long as its renewal type says, a token 20 minutes. An expired token is served for as
 * long as its session is never unused for the lifetime of the token; after that the session has to be renewed.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Registry, SessionRow, Tx } from '../../../db/registry/index.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { Access } from '../../core/access.ts';
import { type Caller, isApplication } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { PlatformError } from '../../core/errors.ts';
import { newId } from '../../core/ids.ts';
import { networkOf } from '../../core/limits/networks.ts';
import { makeSecret } from '../secrets/secrets.ts';
import type { Claims, Tokens } from './tokens.ts';
import type { SessionUses } from './uses.ts';

const minute = 60_000;
const day = 24 * 60 * minute;

/** How long a session lasts by `renewalType`, in milliseconds. */
const sessionLengths = { default: 14 * day, short: 30 * minute, remembered: 7 * day, extended: 100 * day };
export type RenewalType = Exclude<keyof typeof sessionLengths, 'default'>;

/** How long a token lasts without a renewal, in milliseconds. */
const tokenLifetime = 20 * minute;

/** An answer carries a fresh token once the caller's is older than this, in milliseconds. */
const renewAfter = minute;

/** Sessions that are removed for one that begins: a limit that was lowered is reached in steps. */
const maxDropped = 100;
/** Of one owner, sessions that have been used since their last use was stored; more are taken for rested. */
const maxUnstored = 100;

/** A session that has begun, or started again: `expires` in milliseconds since 1970 is the end of the session. */
export interface OpenedSession {
  sessionId: string;
  jwt: string;
  csrfToken: string;
  expires: number;
}

/** A token that has been checked: who it stands for, now, and the session it belongs to. */
export interface Authenticated {
  caller: Caller;
  claims: Claims;
  session: SessionRow;
}

type SessionServices = {
  registry: Registry;
  tokens: Tokens;
  clock: Clock;
  access: Access;
  uses: SessionUses;
  config: Pick<Config, 'limits'>;
};

export class Sessions {
  readonly #ctx: SessionServices;
  // A caller that keeps its old token would otherwise cost one signature a request.
  readonly #renewed = boundedCache<string, { jwt: string; at: number }>(20_000);

  constructor(ctx: SessionServices) {
    this.#ctx = ctx;
  }

  /**
   * Opens a session, which ends with a station's expiry at the latest, and gives its first token; call it by openSession. `work` runs
   * first in its transaction; `replaced` are sessions that are gone because their owner had too many.
   */
  async open(
    caller: Caller,
    browser: string | null,
    renewalType?: RenewalType,
    work?: (tx: Tx) => Promise<void>,
  ): Promise<OpenedSession & { replaced: string[] }> {
    const { registry, clock, config, uses } = this.#ctx;
    const isProgram = isApplication(caller);
    const last = isProgram ? registry.application(caller.id)?.expiresAt : undefined;
    const length = clock.now() + sessionLengths[renewalType ?? 'default'];
    const expires = last ? Math.min(length, Date.parse(last)) : length;
    const csrfToken = makeSecret(24);
    const session: SessionRow = {
      id: newId(caller.accountId),
      accountId: caller.accountId,
      userId: isProgram ? null : caller.id,
      applicationId: isProgram ? caller.id : null,
      expires: new Date(expires).toISOString(),
      ended: null,
      csrfHash: digest(csrfToken).toString('base64'),
      lastUsed: timestamp(clock),
    };
    const replaced = await registry.transaction(async (tx) => {
      await work?.(tx);
      await tx
        .insertInto('sessions')
        .values({
          ...session,
          created: timestamp(clock),
          address: caller.address === undefined ? null : networkOf(caller.address),
          browser,
        })
        .execute();
      return dropOldest(tx, uses, isProgram ? 'applicationId' : 'userId', caller.id, config.limits.sessions);
    });
    return { replaced, sessionId: session.id, jwt: await this.#sign(caller, session), csrfToken, expires };
  }

  /**
   * The caller of a token; undefined if the token is not ours, its session ended or the identity is deleted, and if the token
   * has expired and its session has rested.
   */
  authenticate(jwt: string): Authenticated | undefined | Promise<Authenticated | undefined> {
    const found = this.authenticateToRenew(jwt);
    return found instanceof Promise ? found.then((one) => this.#unlessRested(one)) : this.#unlessRested(found);
  }

  /** As authenticate, also for a token whose session has rested: it may do nothing but renew the session. */
  authenticateToRenew(jwt: string): Authenticated | undefined | Promise<Authenticated | undefined> {
    const claims = this.#ctx.tokens.verify(jwt);
    return claims instanceof Promise ? claims.then((one) => this.#standsFor(one)) : this.#standsFor(claims);
  }

  #unlessRested(found: Authenticated | undefined): Authenticated | undefined {
    if (!found) return undefined;
    const { claims, session } = found;
    const isOver = claims.exp * 1000 <= this.#ctx.clock.now();
    return isOver && this.#hasRested(session, lifetimeOf(claims)) ? undefined : found;
  }

  #hasRested(session: Pick<SessionRow, 'id' | 'lastUsed'>, lifetime: number): boolean {
    return this.#ctx.clock.now() - this.#ctx.uses.lastOf(session) >= lifetime;
  }

  /** Whether a session has not been used for `lifetime` milliseconds, that of a token; one that is not open has rested. */
  hasRested(sessionId: string, lifetime: number): boolean {
    // Most sessions of connections are known in memory, and this is asked for each of them every second.
    if (!this.#hasRested({ id: sessionId, lastUsed: null }, lifetime)) return false;
    const session = this.#open(sessionId);
    return !session || this.#hasRested(session, lifetime);
  }

  /** Its caller has used a session or a token, by a request, by a packet, or by reading a stream. */
  noteUse(sessionId: string, accountId: string, address?: string): void {
    this.#ctx.uses.noteUse(sessionId, accountId, address);
  }

  /** When and from where a token was used last. */
  useOf(token: { id: string; lastUsed: string | null; lastAddress: string | null }) {
    return this.#ctx.uses.useOf(token);
  }

  #standsFor(claims: Claims | undefined): Authenticated | undefined {
    if (!claims) return undefined;
    const session = this.live(claims);
    const caller = session && this.#callerOf(session);
    return caller && { caller: { ...caller, sessionId: session.id }, claims, session };
  }

  #callerOf({ userId, applicationId }: SessionRow): Caller | undefined {
    const { access } = this.#ctx;
    if (userId !== null) return access.callerOf(userId);
    return applicationId === null ? undefined : access.callerOfApplication(applicationId);
  }

  /** The session of a token while it lasts. */
  live(claims: Claims): SessionRow | undefined {
    const session = this.#open(claims.id);
    if (!session || ownerOf(session) !== claims.userId || session.accountId !== claims.accountId) return undefined;
    return session;
  }

  /** Whether a session, or a token, has neither ended nor expired. */
  isOpen(sessionId: string): boolean {
    if (this.#open(sessionId)) return true;
    const token = this.#ctx.registry.accessToken(sessionId);
    return token !== undefined && Date.parse(token.expires) > this.#ctx.clock.now();
  }

  #open(sessionId: string): SessionRow | undefined {
    const session = this.#ctx.registry.session(sessionId);
    if (!session || session.ended !== null) return undefined;
    return Date.parse(session.expires) > this.#ctx.clock.now() ? session : undefined;
  }

  /** A fresh token when the one in hand is older than a minute; never one that outlives the session. */
  renewSession({ caller, claims, session }: Authenticated): string | undefined | Promise<string> {
    const now = this.#ctx.clock.now();
    if (now - claims.iat * 1000 < renewAfter) return undefined;
    const recent = this.#renewed.get(session.id);
    return recent && now - recent.at < renewAfter ? recent.jwt : this.#renew(caller, session, now);
  }

  async #renew(caller: Caller, session: SessionRow, now: number): Promise<string> {
    const jwt = await this.#sign(caller, session);
    this.#renewed.set(session.id, { jwt, at: now });
    return jwt;
  }

  /**
   * A fresh token and a fresh CSRF token; the former CSRF token is void.
   * @throws PlatformError 401/31 when the session has ended meanwhile.
   */
  async refresh({ caller, session }: Authenticated): Promise<OpenedSession> {
    const csrfToken = makeSecret(24);
    const { numUpdatedRows } = await this.#ctx.registry.query
      .updateTable('sessions')
      .set({ csrfHash: digest(csrfToken).toString('base64') })
      .where('id', '=', session.id)
      .where('ended', 'is', null)
      .executeTakeFirst();
    if (numUpdatedRows === 0n) throw new PlatformError('tokenInvalid');
    const expires = Date.parse(session.expires);
    return { sessionId: session.id, jwt: await this.#sign(caller, session), csrfToken, expires };
  }

  /** As endSessions, on the service's clock. */
  endAll(tx: Tx, userId: string, except?: string): Promise<string[]> {
    return endSessions(tx, this.#ctx.clock, userId, except);
  }

  /** Ends a session; from the moment of return its tokens are worth nothing. */
  async endSession(sessionId: string): Promise<void> {
    this.#renewed.delete(sessionId);
    await this.#ctx.registry.query
      .updateTable('sessions')
      .set({ ended: timestamp(this.#ctx.clock) })
      .where('id', '=', sessionId)
      .where('ended', 'is', null)
      .execute();
  }

  /** Whether this is the session's CSRF token. */
  provesCsrf(session: SessionRow, token: string): boolean {
    return timingSafeEqual(digest(token), Buffer.from(session.csrfHash, 'base64'));
  }

  #sign(caller: Caller, session: SessionRow): Promise<string> {
    const left = Date.parse(session.expires) - this.#ctx.clock.now();
    const claims = { id: session.id, userId: caller.id, accountId: caller.accountId, roles: [caller.kind] };
    const own = session.applicationId && this.#ctx.registry.application(session.applicationId)?.accessTokenLifetime;
    return this.#ctx.tokens.sign(claims, Math.min(own ? own * 1000 : tokenLifetime, left));
  }
}

/** Ends every session of an identity but `except`, in the transaction of what ends them; their ids. */
export async function endSessions(tx: Tx, clock: Clock, userId: string, except?: string): Promise<string[]> {
  let open = tx.updateTable('sessions').set({ ended: timestamp(clock) });
  if (except !== undefined) open = open.where('id', '!=', except);
  const ended = await open.where('userId', '=', userId).where('ended', 'is', null).returning('id').execute();
  return ended.map(({ id }) => id);
}

/** How long a token is valid without a renewal, in milliseconds. */
export function lifetimeOf({ iat, exp }: Claims): number {
  return (exp - iat) * 1000;
}

/** The identity or the application that a session belongs to. */
function ownerOf({ userId, applicationId }: SessionRow): string | null {
  return userId ?? applicationId;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Removes the sessions of a person or an application beyond the limit: those that have ended first, then those that have rested longest. */
async function dropOldest(
  tx: Tx,
  uses: SessionUses,
  owner: 'userId' | 'applicationId',
  id: string,
  most: number,
): Promise<string[]> {
  const own = tx.selectFrom('sessions').where(owner, '=', id);
  const { count } = await own.select((eb) => eb.fn.countAll<number>().as('count')).executeTakeFirstOrThrow();
  const over = Math.min(Number(count) - most, maxDropped);
  if (most === 0 || over <= 0) return [];
  const stored = await own
    .select(['id', 'ended', 'created', 'lastUsed'])
    .orderBy((eb) => eb('ended', 'is', null))
    .orderBy((eb) => eb.fn.coalesce('lastUsed', 'created'))
    .orderBy('id')
    .limit(over + maxUnstored)
    .execute();
  type Stored = (typeof stored)[number];
  const lastOf = ({ id, created, lastUsed }: Stored) => uses.lastOf({ id, lastUsed: lastUsed ?? created });
  const oldest = stored.sort((a, b) => Number(a.ended === null) - Number(b.ended === null) || lastOf(a) - lastOf(b));
  const dropped = oldest.slice(0, over).map((one) => one.id);
  await tx.deleteFrom('sessions').where('id', 'in', dropped).execute();
  return dropped;
}
