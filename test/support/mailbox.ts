/** The mail server of a test: keeps what it is given, or refuses it. */
import type { Mail } from '../../src/emails/mail.js';
import type { Letter } from '../../src/emails/texts.js';

export class Mailbox implements Mail {
  readonly letters: Letter[] = [];
  readonly #waiting: (() => void)[] = [];
  /** What the mail server says instead of taking letters. */
  refusal: Error | undefined;

  async send(letter: Letter): Promise<void> {
    if (this.refusal) throw this.refusal;
    this.letters.push(letter);
    for (const arrived of this.#waiting.splice(0)) arrived();
  }

  /** As `tokenTo`, once there is an email to the address. */
  async nextTokenTo(address: string): Promise<string> {
    while (this.to(address).length === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return this.tokenTo(address);
  }

  /** Letters to an address, the oldest first. */
  to(address: string): Letter[] {
    return this.letters.filter(({ to }) => to === address);
  }

  /** The token in the last letter to an address. */
  tokenTo(address: string): string {
    const { text } = this.to(address).at(-1) ?? { text: 'no letter' };
    const [, token] = /^token: (\S+)$/m.exec(text) ?? [];
    if (!token) throw new Error(`no token for ${address}: ${text}`);
    return token;
  }
}
