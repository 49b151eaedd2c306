/**
 * People whom somebody else brings in (decisions 3): with a password, or with an invitation by mail, whose token sets the
 * first one. A mail server that fails undoes nothing: the answer says so, and a password reset sends another token.
 */

import { Type } from 'typebox';
import type { Tx } from '../../db/registry/index.js';
import type { Row } from '../../db/registry/records.js';
import { type Caller, isAccountWide } from '../access.js';
import { Attempts } from '../attempts.js';
import type { Context } from '../context.js';
import { headingFor, invitationLetter, sendLetter } from '../emails/texts.js';
import { insertIdentity } from './identities.js';
import { makeMailedToken } from './secrets/mailed-tokens.js';

const hour = 60 * 60_000;
/** Invitations that an end-user may send in an hour: the addresses are of its choice, the mail server is ours. */
const mostByEndUser = 100;

/** The property of an answer that tells of an invitation. */
export const invitationSent = Type.Optional(
  Type.Boolean({
    description: 'When somebody was made without a password: whether the mail server took the invitation.',
  }),
);

/** An identity that has been made and has no password yet; the token stands nowhere else. */
interface Invitation {
  identity: Row<'identities'>;
  token: string;
  /** Takes back that the letter was counted, when it does not go out. */
  uncount: () => void;
}

export class Invitations {
  readonly #ctx: Context;
  readonly #sent: Attempts;

  constructor(ctx: Context) {
    this.#ctx = ctx;
    this.#sent = new Attempts(ctx.clock, mostByEndUser, hour);
  }

  /** Before an identity is made: @throws PlatformError 429 for an end-user who has invited too many. */
  demandRoom(caller: Caller, { passwordHash }: Row<'identities'>): void {
    if (passwordHash === null && !isAccountWide(caller)) this.#sent.take(caller.id);
  }

  /**
   * Stores the identity that `idmUserEmail` asks for; an invitation when it has no password, to be sent after the commit.
   * @throws PlatformError 400/110 for the e-mail of an account user, 400/106 for one that is taken, 429 for an end-user
   * after too many letters to that address.
   */
  async makeIdentity(tx: Tx, caller: Caller, identity: Row<'identities'>): Promise<Invitation | undefined> {
    await insertIdentity(tx, 'idmUserEmail', identity);
    const isInvited = identity.passwordHash === null;
    await this.#ctx.audit.record(tx, {
      event: 'identityCreated',
      outcome: 'success',
      accountId: identity.accountId,
      actor: caller,
      target: { kind: 'identity', id: identity.id },
      details: { isInvited },
    });
    if (!isInvited) return undefined;
    const { id, accountId, email } = identity;
    const uncount = isAccountWide(caller) ? () => {} : this.#ctx.letterLimits.count({ accountId, to: email });
    const token = await makeMailedToken(tx, this.#ctx.clock, { accountId, userId: id, kind: 'invitation' });
    return { identity, uncount, token };
  }

  /** What the answer says of an invitation: whether the mail server has taken it. Nothing where there is none. */
  async send(invitation: Invitation | undefined): Promise<{ invitationSent?: boolean }> {
    if (!invitation) return {};
    const { identity, token, uncount } = invitation;
    const heading = await headingFor(this.#ctx, identity.accountId, identity.email);
    const invitationSent = await sendLetter(this.#ctx, identity.id, invitationLetter(heading, identity.id, token));
    if (!invitationSent) uncount();
    return { invitationSent };
  }
}
