/** The caller of a long answer, as it is now: it may be logged out, deleted or moved while it reads or listens. */
import type { Access } from '../core/access.ts';
import type { Caller } from '../core/caller.ts';

/** The login sessions, as far as they are asked here. */
export interface OpenSessions {
  isOpen(sessionId: string): boolean;
}

/** The caller with its rights of now; undefined after a logout, when it is gone, and when it may not do what it does. */
export function currentCaller(
  { access, sessions }: { access: Access; sessions: OpenSessions },
  { id, kind, sessionId, tokenId, uses: [right] = [] }: Caller,
): Caller | undefined {
  if (sessionId !== undefined && !sessions.isOpen(sessionId)) return undefined;
  const caller =
    tokenId === undefined ? (access.callerOf(id) ?? access.callerOfApplication(id)) : access.callerOfToken(tokenId);
  if (caller?.kind !== kind || !right) return caller;
  return access.may(caller, ...right) ? access.narrow(caller, ...right) : undefined;
}
