/** How many emails others may have us send: anyone who asks chooses the address, and the mail server is ours. */

import type { Clock } from '../clock.ts';
import { emailKey } from '../formats/email-key.ts';
import { Attempts } from '../limits/attempts.ts';

const hour = 60 * 60_000;
/** Emails of one account to one address in an hour, for whatever reason and no matter who causes them. */
const maxPerAddress = 10;
/** Emails in an hour that one application, or all people of one account together, ask for. */
const maxPerRequester = 300;

/** An email to come. */
interface Asked {
  accountId: string;
  to: string;
  /** The application that asks for a reset, or the account whose people confirm addresses. */
  by?: string;
}

export class EmailLimits {
  readonly #toOne: Attempts;
  readonly #asked: Attempts;

  constructor(clock: Clock) {
    this.#toOne = new Attempts(clock, maxPerAddress, hour);
    this.#asked = new Attempts(clock, maxPerRequester, hour);
  }

  /**
   * Counts an email before it goes out; the answer takes that back, for one that does not.
   * @throws PlatformError 429 when it would be too many, and counts nothing then.
   */
  count({ accountId, to, by }: Asked): () => void {
    // Of each account by itself: one must not use up what another may send to the same person.
    const address = `${accountId}\0${emailKey(to)}`;
    this.#toOne.take(address);
    const giveBack = () => this.#toOne.giveBack(address);
    if (by === undefined) return giveBack;
    try {
      this.#asked.take(by);
    } catch (error) {
      giveBack();
      throw error;
    }
    return () => {
      giveBack();
      this.#asked.giveBack(by);
    };
  }
}
