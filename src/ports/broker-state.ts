/** What the broker says of itself. */
import type { RunningActivity } from './activity.ts';

/** What the broker says of itself. */
export interface BrokerState {
  /** Where it listens, once it does; the port that was chosen when the configuration said 0. */
  readonly addresses: { mqtt: number; mqtts: number | undefined };
  /** The account's amounts here, as its limits count them. */
  kept(accountId: string): BrokerKept;
  /** What the account has done in the running five minutes, which are not in the registry. */
  runningActivity(accountId: string): RunningActivity;
  /** Resolves when what has been noted of a device's refusals can be read. */
  refusalsStored(deviceId: string): Promise<void>;
  /** A CA is registered: TLS sessions are not resumed any more, for they lack the CAs between it and a device. */
  forgetTlsSessions(): void;
}

/** The amounts that the broker keeps for an account: numbers, and the bytes of retained messages. */
export interface BrokerKept {
  storedSessions: number;
  /** Of the filters of stored sessions. */
  filterBytes: number;
  /** Of wills, also of connected clients. */
  willBytes: number;
  /** In the queues of stored sessions: a message counts for each of its places. */
  queueBytes: number;
  retained: number;
  retainedBytes: number;
  unreleased: number;
}
