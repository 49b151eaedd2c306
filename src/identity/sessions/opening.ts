/** The begin of a login session. */
import type { FastifyReply } from 'fastify';
import type { Tx } from '../../../db/registry/index.ts';
import type { Caller } from '../../core/caller.ts';
import type { IdentityContext } from '../context.ts';
import { browserOf } from './browser.ts';
import type { OpenedSession, RenewalType } from './sessions.ts';

/** Opens a session for the browser that has asked. An owner who had too many loses the oldest of them, with their connections. See Sessions.open. */
export async function openSession(
  { sessions, revocations }: Pick<IdentityContext, 'sessions' | 'revocations'>,
  { request }: FastifyReply,
  caller: Caller,
  renewalType: RenewalType | undefined,
  work: (tx: Tx) => Promise<void>,
): Promise<OpenedSession> {
  const { replaced, ...opened } = await sessions.open(
    caller,
    browserOf(request.headers['user-agent']),
    renewalType,
    work,
  );
  for (const id of replaced) revocations.loginEnded(id);
  return opened;
}
