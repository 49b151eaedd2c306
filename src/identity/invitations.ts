/**
 * People whom somebody else brings in: with a password, or with an invitation by mail, whose token sets the
 * first one. A mail server that fails undoes nothing: the answer says so, and a password reset sends another token.
 */

import type { Logger } from 'pino';
import { Type } from 'typebox';
import type { Registry, Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { type Caller, isAccountWide } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import type { Attempts } from '../core/limits/attempts.ts';
import { limitTries } from '../core/limits/tries.ts';
import type { Audit } from '../operations/audit/index.ts';
import type { EmailLimits } from '../operations/emails/limits.ts';
import type { Mail } from '../operations/emails/mail.ts';
import { headingFor, invitationEmail, sendEmail } from '../operations/emails/texts.ts';
import { checkPassword, type Ended, type Grant } from './grants.ts';
import { insertIdentity } from './identities.ts';
import { makeMailedToken } from './secrets/mailed-tokens.ts';
import type { Sessions } from './sessions/sessions.ts';

/** The property of an answer that reports an invitation. */
export const invitationSent = Type.Optional(
  Type.Boolean({
    description:
      'When the person has no password, or one that others chose and that is void now: whether the mail server took the invitation.',
  }),
);

/** An identity that has been made and has no password yet; the token stands nowhere else. */
interface Invitation {
  identity: Row<'identities'>;
  token: string;
  /** Takes back that the email was counted, when it does not go out. */
  uncount: () => void;
}

/** Effects of a new right, after the commit: `ended` connections, and perhaps an invitation to send. */
interface Granted {
  ended: Ended;
  invitation: Invitation | undefined;
}
type InvitationServices = {
  registry: Registry;
  config: Config;
  clock: Clock;
  log: Logger;
  mail: Mail;
  sessions: Sessions;
  audit: Audit;
  emailLimits: EmailLimits;
};

export class Invitations {
  readonly #ctx: InvitationServices;
  readonly #sent: Attempts;

  constructor(ctx: InvitationServices) {
    this.#ctx = ctx;
    this.#sent = limitTries('invitations', ctx);
  }

  /** Before an identity is made: @throws PlatformError 429 for an end-user who has invited too many. */
  demandRoom(caller: Caller, { passwordHash }: Pick<Row<'identities'>, 'passwordHash'>): void {
    if (passwordHash === null && !isAccountWide(caller)) this.#sent.takeTry(caller.id);
  }

  /**
   * Stores the identity that `idmUserEmail` asks for, with an invitation to be sent after the commit if it has no password.
   * @throws PlatformError 400/110 for the email of an account user, 400/106 for one that is taken, 429 after too many emails to it.
   */
  async makeIdentity(tx: Tx, caller: Caller, identity: Row<'identities'>): Promise<Granted> {
    // Who signed up with a code confirms an address before a second claim; those whom it lets in do so too.
    const maker = await tx.selectFrom('identities').select('signedUp').where('id', '=', caller.id).executeTakeFirst();
    await insertIdentity(tx, 'idmUserEmail', { ...identity, signedUp: maker?.signedUp ?? 0 });
    const isInvited = identity.passwordHash === null;
    await this.#ctx.audit.record(tx, {
      event: 'identityCreated',
      outcome: 'success',
      accountId: identity.accountId,
      actor: caller,
      target: { kind: 'identity', id: identity.id },
      details: { isInvited },
    });
    const ended = { sessionIds: [], entityIds: [] };
    return { ended, invitation: isInvited ? await this.#invite(tx, caller, identity) : undefined };
  }

  /**
   * Checks the password of an identity that gets more rights (grants.ts); an invitation when that has voided it, and for a
   * new admin who has none. @throws PlatformError 429 for an end-user who has invited too many.
   */
  async grant(
    tx: Tx,
    caller: Caller,
    identity: Row<'identities'>,
    grant: Exclude<Grant, 'provider'>,
  ): Promise<Granted> {
    const ended = await checkPassword(tx, this.#ctx, identity, grant);
    const isAdmin = grant === 'accountUser';
    // An application may hold one that it asked for while this was no admin.
    if (isAdmin) await tx.deleteFrom('mailedTokens').where('userId', '=', identity.id).execute();
    const password = tx.selectFrom('identities').select('passwordHash').where('id', '=', identity.id);
    const hasNone = (await password.executeTakeFirst())?.passwordHash === null;
    const isVoid = hasNone && identity.passwordHash !== null;
    if (!isVoid && !(isAdmin && hasNone)) return { ended, invitation: undefined };
    this.demandRoom(caller, { passwordHash: null });
    return { ended, invitation: await this.#invite(tx, caller, identity) };
  }

  async #invite(tx: Tx, caller: Caller, identity: Row<'identities'>): Promise<Invitation> {
    const { id, accountId, email } = identity;
    const uncount = isAccountWide(caller) ? () => {} : this.#ctx.emailLimits.countEmail({ accountId, to: email });
    const token = await makeMailedToken(tx, this.#ctx.clock, { accountId, userId: id, kind: 'invitation' });
    return { identity, uncount, token };
  }

  /** Whether the mail server accepted the invitation, for the answer. Empty without an invitation. */
  async send(invitation: Invitation | undefined): Promise<{ invitationSent?: boolean }> {
    if (!invitation) return {};
    const { identity, token, uncount } = invitation;
    const heading = await headingFor(this.#ctx, identity.accountId, identity.email);
    const invitationSent = await sendEmail(this.#ctx, identity.id, invitationEmail(heading, identity.id, token));
    if (!invitationSent) uncount();
    return { invitationSent };
  }
}
