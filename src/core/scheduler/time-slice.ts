/** How much of each turn of the event loop a kind of work may use. What is beyond it waits for the next turns. */
export interface SliceOptions {
  /** Milliseconds. */
  time: number;
  /** Cost that may always be spent in a turn: the clock is looked at only beyond it. */
  least: number;
  /** Cost between two looks at the clock. */
  perLook: number;
  /** Whether what a piece does in promises belongs to its time: the next one begins after it. */
  oneByOne?: boolean;
  /** Calls back in the next turn of the event loop. */
  later?(work: () => void): void;
  /** Milliseconds. */
  now?(): number;
}

/** The budget of the event loop: together they are what the service does in one turn before it looks at its sockets again. */
export const slices = {
  /** A delivery costs 1. A light load never reads the clock. */
  packets: { time: 5, least: 128, perLook: 32 },
  /** Each costs 1. Some begin even when the process itself gets little of the machine. */
  requests: { time: 4, least: 4, perLook: 1, oneByOne: true },
  /** Transactions of the registry. */
  writes: { time: 3, least: 0, perLook: 0 },
  /** Lists, exports and bulk work; all that give way share one place. */
  longWork: { time: 3, least: 0, perLook: 0 },
} satisfies Record<string, SliceOptions>;

export class TimeSlice {
  readonly #options: Required<SliceOptions>;
  readonly #turnBegins: () => void;
  #isOver = false;
  #isUsedUp = false;
  #spent = 0;
  #nextLook: number;
  #endOfPart = Number.POSITIVE_INFINITY;
  /** When work began in this turn, if the clock counts. */
  #since: number | undefined;
  #isScheduled = false;

  /** `turnBegins` is called when the event loop has gone round. */
  constructor(options: SliceOptions, turnBegins = () => {}) {
    this.#options = { oneByOne: false, later: setImmediate, now: () => performance.now(), ...options };
    this.#nextLook = options.least;
    this.#turnBegins = turnBegins;
  }

  /** Whether what comes now has to wait. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether nothing more may begin in this turn, not even what has waited. */
  get isUsedUp(): boolean {
    return this.#isUsedUp;
  }

  get isOneByOne(): boolean {
    return this.#options.oneByOne;
  }

  get spent(): number {
    return this.#spent;
  }

  /** Milliseconds since work began in this turn. */
  get elapsed(): number {
    return this.#options.now() - (this.#since ?? this.#options.now());
  }

  /** Counts what has been done. */
  spend(cost: number): void {
    this.#spent += cost;
    if (this.#spent >= this.#nextLook) this.#lookAtClock();
  }

  /** The clock counts from now on, until the event loop has gone round. */
  startClock(): void {
    if (this.#since !== undefined) return;
    const { least, perLook, now } = this.#options;
    this.#since = now();
    this.#nextLook = Math.max(least, this.#spent + perLook);
    this.schedule();
  }

  /** Something waits for the next turn. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#options.later(() => this.#endSlice());
  }

  /** One that has waited may spend up to `cost` in this turn. */
  beginPart(cost: number): void {
    this.startClock();
    this.#isOver = false;
    this.#endOfPart = this.#spent + cost;
  }

  endPart(): void {
    this.#endOfPart = Number.POSITIVE_INFINITY;
    this.#isOver = this.#isUsedUp;
  }

  /** Takes the limit away: the process ends. */
  open(): void {
    this.#options.time = Number.POSITIVE_INFINITY;
    this.#isOver = false;
    this.#isUsedUp = false;
  }

  #lookAtClock(): void {
    if (this.#since === undefined) {
      this.startClock();
      return;
    }
    this.#nextLook = this.#spent + this.#options.perLook;
    this.#isUsedUp ||= this.elapsed >= this.#options.time;
    this.#isOver ||= this.#isUsedUp || this.#spent >= this.#endOfPart;
  }

  #endSlice(): void {
    this.#isScheduled = false;
    this.#since = undefined;
    this.#spent = 0;
    this.#nextLook = this.#options.least;
    this.#isUsedUp = false;
    this.#isOver = false;
    this.#turnBegins();
  }
}
