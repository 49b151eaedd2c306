/**
 * Whether accounts are handled here. While one is on its way to or from another server, nothing of it is: HTTP answers 503,
 * MQTT waits, and the service does nothing for it by itself. `cells/gate.ts` decides.
 */
export interface AccountGate {
  /** Whether nothing of an account may be handled here now. */
  isAway(accountId: string): boolean;
  /** Those accounts. */
  readonly away: readonly string[];

  // HTTP: before an account is known, its slot is, the three digits of an id or a token.
  isSlotAway(slot: string): boolean;
  /** A request that may change something begins; call what it returns when it has been answered. */
  beginRequest(slot: string): () => void;

  // MQTT.
  /** Resolves when an account is handled here again, or is known to be elsewhere, or when `gone` says that nobody waits. */
  whenBack(accountId: string, gone: AbortSignal): Promise<void>;
  /** When an account came here, in milliseconds since 1970: earlier places in the store were those of another server. */
  cameAt(accountId: string): number | undefined;

  // Work that belongs to no request and no message.
  /** Does it; it leaves the accounts alone that are `away`. An account that is held later waits for its end. */
  work<R>(work: (away: readonly string[]) => Promise<R>): Promise<R>;
  /** Does work for one account, unless the account is away: then it returns undefined. */
  workFor<R>(accountId: string, work: () => Promise<R>): Promise<R | undefined>;
  /** Whether accounts are on their way, or their move has been broken off: meanwhile nothing old is removed. */
  readonly isUnderWay: boolean;
  /** Whether accounts are being copied to here: rows may come before those that they refer to. */
  readonly isReceiving: boolean;
}
