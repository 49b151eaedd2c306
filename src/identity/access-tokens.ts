/** Proves the tokens that people and back-ends have made for their programs. */
import type { AccessTokenRow, Registry } from '../../db/registry/index.ts';
import type { Access } from '../core/access.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import { hashAccessToken, isWellFormedToken } from '../core/formats/access-tokens.ts';

/** A token that is in force, and the caller that it is now. */
export interface ProvenToken {
  caller: Caller;
  token: AccessTokenRow;
}

/** Undefined for a token that is not ours, has ended, or whose owner may do nothing any more. */
export function proveAccessToken(
  { registry, access, clock }: { registry: Registry; access: Access; clock: Clock },
  text: string,
): ProvenToken | undefined {
  if (!isWellFormedToken(text)) return undefined;
  const token = registry.accessTokenBy(hashAccessToken(text));
  if (!token || Date.parse(token.expires) <= clock.now()) return undefined;
  const caller = access.callerOfToken(token.id);
  return caller && { caller, token };
}
