import { accountIn } from '../connections/client-ids.ts';

/** Packet ids of QoS 2 messages received and not released yet: sets by connection or session, counted by account. */
export class Unreleased {
  readonly #perAccount = new Map<string, number>();

  of(accountId: string): number {
    return this.#perAccount.get(accountId) ?? 0;
  }

  add(ids: Set<number>, clientId: string, packetId: number): void {
    if (ids.has(packetId)) return;
    ids.add(packetId);
    this.#count(clientId, 1);
  }

  delete(ids: Set<number>, clientId: string, packetId: number): void {
    if (ids.delete(packetId)) this.#count(clientId, -1);
  }

  /** All of a connection or session that has ended. */
  clear(ids: Set<number>, clientId: string): void {
    this.#count(clientId, -ids.size);
    ids.clear();
  }

  #count(clientId: string, change: number): void {
    const accountId = accountIn(clientId);
    const count = this.of(accountId) + change;
    if (count > 0) this.#perAccount.set(accountId, count);
    else this.#perAccount.delete(accountId);
  }
}
