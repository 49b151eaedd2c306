/** The emails that people get, in plain text, and their way out. An email holds no name that a stranger could choose. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.ts';
import type { Config } from '../../core/config.ts';
import type { Mail } from './mail.ts';

export type Email = Parameters<Mail['send']>[0];

/** To whom and in whose name; without `publicUrl` a token is there to be pasted. */
interface Heading {
  to: string;
  accountName: string;
  publicUrl: string | undefined;
}

/** The email with the token of an asked-for password reset. */
export function resetEmail(heading: Heading, userId: string, token: string): Email {
  const name = oneLine(heading.accountName);
  return email(heading, `Set a new password for ${name}`, [
    `Somebody, probably you, has asked for a new password for your login at ${name}.`,
    way(heading, 'set-password', { userId, token, emailAddress: heading.to }),
    'It works once, within an hour. If it was not you, do nothing: your password stays as it is.',
  ]);
}

/** The email with the token that sets the first password. */
export function invitationEmail(heading: Heading, userId: string, token: string): Email {
  const name = oneLine(heading.accountName);
  return email(heading, `Your login at ${name}`, [
    `A login has been made for you at ${name}. Choose a password to use it.`,
    way(heading, 'set-password', { userId, token, emailAddress: heading.to }),
    'It works once, within seven days; after that, ask for a new password. If you expected nothing, do nothing.',
  ]);
}

/** The email to a new address, with the token that confirms it. */
export function confirmationEmail(heading: Heading, token: string): Email {
  const name = oneLine(heading.accountName);
  return email(heading, `Confirm your email address for ${name}`, [
    `Somebody, probably you, wants to log in at ${name} with this email address from now on.`,
    way(heading, 'confirm-email', { token }),
    'It works once, within 24 hours. If it was not you, do nothing.',
  ]);
}

/** The email to somebody who has signed up with the code of a device, with the token that confirms the address. */
export function signUpEmail(heading: Heading, token: string): Email {
  const name = oneLine(heading.accountName);
  return email(heading, `Confirm your email address for ${name}`, [
    `Somebody, probably you, has claimed a device of ${name} and signed up with this email address.`,
    way(heading, 'confirm-email', { token }),
    'It works once, within 24 hours. If it was not you, do nothing.',
  ]);
}

/** The email to the former address of somebody whose address has changed. */
export function addressChangedEmail(heading: Heading): Email {
  const name = oneLine(heading.accountName);
  return email(heading, `Your email address for ${name} has changed`, [
    `Your login at ${name} has another email address now; this one no longer works there.`,
    'If you did not want this, tell the people who run it at once.',
  ]);
}

/** How the reader uses a token. After the #, because what is there reaches no server and no log on the way. */
function way({ publicUrl }: Heading, page: string, parameters: Record<string, string>): string {
  if (publicUrl !== undefined) return `Open this link:\n${publicUrl}/${page}#${new URLSearchParams(parameters)}`;
  const lines = Object.entries(parameters).map(([name, value]) => `${name}: ${value}`);
  return `Open the page /${page} of the service, and paste this there:\n${lines.join('\n')}`;
}

function email({ to }: Heading, subject: string, paragraphs: string[]): Email {
  return { to, subject, text: `${paragraphs.join('\n\n')}\n` };
}

/** A name on one line, so that it adds neither headers nor paragraphs. */
function oneLine(name: string): string {
  const words = name.replace(/[\p{C}\s]+/gu, ' ').trim();
  return [...words].slice(0, 100).join('');
}

/** The beginning of every email of an account. */
export async function headingFor(
  { registry, config }: { registry: Registry; config: Config },
  accountId: string,
  to: string,
): Promise<Heading> {
  const accounts = registry.query.selectFrom('accounts').select('name').where('id', '=', accountId);
  return { to, accountName: (await accounts.executeTakeFirstOrThrow()).name, publicUrl: config.publicUrl };
}

/** Hands an email over; false when it is not taken. The log says why, and neither the address nor what is in it. */
export async function sendEmail(
  { mail, log }: { mail: Mail; log: Logger },
  userId: string,
  email: Email,
): Promise<boolean> {
  try {
    await mail.send(email);
    return true;
  } catch (error) {
    const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
    log.error({ userId, code, responseCode }, 'an email could not be sent');
    return false;
  }
}
