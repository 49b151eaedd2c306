/** Which connected devices have said nothing for longer than they use to. */

/** Seconds: messages that are closer to each other are one report, and who is quiet for less is not silent. */
const oneReport = 10;
const leastSilence = 15 * 60;
const intervalsOfSilence = 3;
/** The weight of the last interval in the usual one. */
const weight = 1 / 8;

/** What is known of a connected device; times are seconds since 1970. */
export class Signs {
  readonly accountId: string;
  /** Live connections. */
  connections = 0;
  /** When it connected, or its last report. */
  last = 0;
  /** Seconds between its reports, about; -1 until it has sent one, 0 until a second one. */
  interval = -1;
  isSilent = false;

  constructor(accountId: string) {
    this.accountId = accountId;
  }

  /** A new connection is not silent. */
  connect(now: number): void {
    this.connections += 1;
    this.last = now;
    this.isSilent = false;
  }

  /** It has sent a message. */
  message(now: number): void {
    const interval = now - this.last;
    if (this.interval >= 0 && interval < oneReport) return;
    if (this.interval === 0) this.interval = interval;
    else if (this.interval > 0) this.interval += Math.round((interval - this.interval) * weight);
    else this.interval = 0;
    this.last = now;
  }

  /** The interval of former connections, where this one has none yet. */
  recall(interval: number | null): void {
    if (this.interval <= 0 && interval !== null) this.interval = interval;
  }

  /** Whether it has begun or ceased to be silent. A device that only listens never is. */
  hasTurned(now: number): boolean {
    const limit = Math.max(leastSilence, intervalsOfSilence * this.interval);
    const isSilent = this.interval >= 0 && now - this.last > limit;
    if (isSilent === this.isSilent) return false;
    this.isSilent = isSilent;
    return true;
  }
}
