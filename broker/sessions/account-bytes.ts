import { accountIn } from '../connections/client-ids.ts';

/** Bytes of what clients make the service keep, by account. */
export class AccountBytes {
  readonly #bytes = new Map<string, number>();

  of(accountId: string): number {
    return this.#bytes.get(accountId) ?? 0;
  }

  /** Adds to the bytes of the account of a private client id; less than 0 takes away. */
  count(clientId: string, change: number): void {
    const accountId = accountIn(clientId);
    const bytes = this.of(accountId) + change;
    if (bytes > 0) this.#bytes.set(accountId, bytes);
    else this.#bytes.delete(accountId);
  }
}
