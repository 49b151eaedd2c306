/** The mail server of a test: keeps what it is given, or refuses it. */
import type { Mail } from '../../src/operations/emails/mail.ts';
import type { Email } from '../../src/operations/emails/texts.ts';
import { until } from './until.ts';

export class Mailbox implements Mail {
  readonly emails: Email[] = [];
  /** What the mail server says instead of taking emails. */
  refusal: Error | undefined;

  async send(email: Email): Promise<void> {
    if (this.refusal) throw this.refusal;
    this.emails.push(email);
  }

  /** As `tokenTo`, once there is an email to the address. */
  async nextTokenTo(address: string): Promise<string> {
    await until(
      () => this.emails.map(({ to }) => to),
      (all) => all.includes(address),
    );
    return this.tokenTo(address);
  }

  /** Emails to an address, the oldest first. */
  to(address: string): Email[] {
    return this.emails.filter(({ to }) => to === address);
  }

  /** The token in the last email to an address. */
  tokenTo(address: string): string {
    const { text } = this.to(address).at(-1) ?? { text: 'no email' };
    const [, token] = /^token: (\S+)$/m.exec(text) ?? [];
    if (!token) throw new Error(`no token for ${address}: ${text}`);
    return token;
  }
}
