/** How many emails others may have us send: anyone who asks chooses the address, and the mail server is ours. */

import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { emailKey } from '../../core/formats/email-key.ts';
import type { Attempts } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';

/** An email to come. */
interface AskedEmail {
  accountId: string;
  to: string;
  /** The application that asks for a reset, or the account whose people confirm addresses. */
  by?: string;
}

export class EmailLimits {
  readonly #toOne: Attempts;
  readonly #asked: Attempts;

  constructor(services: { clock: Clock; config: Config }) {
    this.#toOne = limitTries('emailsToAddress', services);
    this.#asked = limitTries('emailsOfRequester', services);
  }

  /**
   * Counts an email before it goes out; the answer takes that back, for one that does not.
   * @throws PlatformError 429 when it would be too many, and counts nothing then.
   */
  countEmail({ accountId, to, by }: AskedEmail): () => void {
    // Of each account by itself: one must not use up what another may send to the same person.
    const address = `${accountId}\0${emailKey(to)}`;
    this.#toOne.takeTry(address);
    const giveBack = () => this.#toOne.giveBack(address);
    if (by === undefined) return giveBack;
    try {
      this.#asked.takeTry(by);
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
