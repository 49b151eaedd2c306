/** The caller of a long answer, as it is now: it may be logged out, deleted or moved while it reads or listens. */
import type { Access, Caller } from '../access.ts';

/** The login sessions, as far as they are asked here. */
export interface OpenSessions {
  isOpen(sessionId: string): boolean;
}

/** The caller with its rights of now; undefined after a logout, and when it is gone. */
export function currentCaller(
  { access, sessions }: { access: Access; sessions: OpenSessions },
  { id, sessionId }: Caller,
): Caller | undefined {
  if (sessionId !== undefined && !sessions.isOpen(sessionId)) return undefined;
  return access.callerOf(id) ?? access.callerOfApplication(id);
}
