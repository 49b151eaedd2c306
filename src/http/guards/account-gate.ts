/** Requests of accounts that are on their way to another server are answered with 503, and those under way are counted. */
import type { FastifyRequest } from 'fastify';
import type { AccountGate } from '../../core/account-gate.ts';
import { PlatformError } from '../../core/errors.ts';
import { slotOf } from '../../core/ids.ts';
import type { App } from '../app.ts';

/** Seconds after which it is worth trying again. */
const retryAfter = 1;
const reading: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/** Call it before the routes are mounted. */
export function askAccountGate(app: App, { gate, prefix }: { gate: AccountGate; prefix: string }): void {
  const begun = new WeakMap<FastifyRequest, () => void>();
  app.addHook('preHandler', (request, _, next) => {
    const { changes, whilePaused } = request.routeOptions.config;
    const slot = whilePaused ? undefined : slotOfRequest(request, prefix);
    if (slot === undefined) return next();
    if (gate.isSlotAway(slot)) return next(onItsWay());
    if (changes || !reading.has(request.method)) begun.set(request, gate.beginRequest(slot));
    next();
  });
  // Also when the caller has gone away in the middle.
  app.addHook('onResponse', (request, _, next) => {
    begun.get(request)?.();
    next();
  });
}

function onItsWay(): PlatformError {
  return new PlatformError('stopping', {
    message: 'The account is on its way to another server. Try again.',
    allowance: { limit: 0, remaining: 0, reset: retryAfter },
  });
}

/** The digits of the account that a request is about: its caller's, or what it names before anybody is known. */
function slotOfRequest({ caller, body, query, headers }: FastifyRequest, prefix: string): string | undefined {
  if (caller) return slotOf(caller.accountId);
  const given = { ...(query as object), ...(typeof body === 'object' && !Buffer.isBuffer(body) ? body : {}) } as Record<
    string,
    unknown
  >;
  if (typeof given.accountId === 'string') return slotOf(given.accountId);
  for (const token of [headers[`${prefix}-mfa-token`], given.passwordResetToken, given.token, given.state])
    if (typeof token === 'string') return token.slice(0, 3);
  return undefined;
}
