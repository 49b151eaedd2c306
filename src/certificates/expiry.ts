/** Warns of certificates and CAs that expire soon, and of revocation lists that have: once a day in the log, at any time in /metrics. */
import type { Logger } from 'pino';
import type { Registry } from '../../db/registry/index.ts';
import type { Clock } from '../core/clock.ts';

const day = 24 * 60 * 60_000;
/** Days that count as soon. */
export const warnedDays = 30;
/** Milliseconds from the start to the first warning. */
const firstWarning = 60_000;

type ExpiryServices = { registry: Registry; clock: Clock; log: Logger };

/** How many certificates and CAs of all accounts expire from now on in `warnedDays`, and the first date of each. */
export function expiringSoon({
  registry,
  clock,
}: {
  registry: Registry;
  clock: Clock;
}): ReturnType<Registry['expiring']> {
  const now = clock.now();
  return registry.expiring(new Date(now).toISOString(), new Date(now + warnedDays * day).toISOString());
}

/** Warns in the log, if there is anything to warn of. */
export function warnOfExpiry(ctx: ExpiryServices): void {
  const lists = ctx.registry.countExpiredLists(new Date(ctx.clock.now()).toISOString());
  if (lists > 0) ctx.log.warn({ authorities: lists }, 'revocation lists of CAs have expired');
  const { certificates, authorities } = expiringSoon(ctx);
  if (certificates.count + authorities.count === 0) return;
  ctx.log.warn({ certificates, authorities }, `certificates or CAs expire within ${warnedDays} days`);
}

/** Warns a minute after the start and once a day until `stop`. */
export function startExpiryWarnings(ctx: ExpiryServices): { stop(): void } {
  const warn = () => {
    try {
      warnOfExpiry(ctx);
    } catch (error) {
      ctx.log.error({ err: error }, 'expiring certificates could not be counted');
    }
  };
  const first = setTimeout(warn, firstWarning);
  const timer = setInterval(warn, day);
  first.unref();
  timer.unref();
  return {
    stop: () => {
      clearTimeout(first);
      clearInterval(timer);
    },
  };
}
