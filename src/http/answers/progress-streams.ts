/** Server-sent events of something that goes on until it ends: one at once, then one whenever it has come further. */
import { Readable } from 'node:stream';
import type { Logger } from 'pino';
import type { Caller } from '../../core/caller.ts';
import { PlatformError } from '../../core/errors.ts';
import { endEvents } from '../../core/network/event-bodies.ts';

/** Milliseconds between two events but the last, between two heartbeats, and between two looks at the reader's rights. */
const eventInterval = 250;
const heartbeatInterval = 15_000;
const lookInterval = 1000;
/** Streams of one caller. */
const maxStreams = 20;
/** Bytes that may wait for a reader. */
const maxWaiting = 65_536;

/** The followed object. */
export interface Followed {
  /** The name of its events. */
  event: string;
  /** Its state; undefined when it is gone. */
  read(): Promise<{ data: object; ended: boolean } | undefined>;
  /** Calls back after each change, with whether it has ended where that is known, until the answer is called. */
  watch(hear: (ended?: boolean) => void): () => void;
  /** Whether the reader may still see it. */
  isPermitted(): boolean;
}

/** What streams need: a log, and to say that a reader uses its login session. */
interface Services {
  log: Pick<Logger, 'error'>;
  sessions: { noteUse(sessionId: string, accountId: string): void };
}

/** The open streams of a server. */
export class ProgressStreams {
  readonly #services: Services;
  /** With the callers that read them. */
  readonly #open = new Map<ProgressStream, string>();

  constructor(services: Services) {
    this.#services = services;
  }

  /** @throws PlatformError 429/-199 for too many of one caller. */
  open(caller: Caller, followed: Followed): Readable {
    const own = [...this.#open.values()].filter((one) => one === caller.id).length;
    if (own >= maxStreams) {
      const allowance = { limit: maxStreams, remaining: 0, reset: heartbeatInterval / 1000 };
      throw new PlatformError('tooMany', { message: 'Too many streams of one caller.', allowance });
    }
    const body = new Readable({ read() {} });
    const stream = new ProgressStream(body, followed, this.#services.log, () => this.#noteUse(caller));
    this.#open.set(stream, caller.id);
    body.once('close', () => {
      stream.close();
      this.#open.delete(stream);
    });
    return body;
  }

  #noteUse({ sessionId, accountId }: Caller): void {
    if (sessionId !== undefined) this.#services.sessions.noteUse(sessionId, accountId);
  }

  /** A server that closes waits for its answers, and these may be long. */
  endAll(): void {
    for (const stream of [...this.#open.keys()]) stream.endBody();
  }
}

class ProgressStream {
  readonly #body: Readable;
  readonly #followed: Followed;
  readonly #log: Pick<Logger, 'error'>;
  readonly #timers: NodeJS.Timeout[];
  readonly #unwatch: () => void;
  #ended = false;
  #isSending = false;
  #isStale = false;
  /** The next event is the last, and need not wait. */
  #mayEnd = false;
  #pending: NodeJS.Timeout | undefined;
  #sent = Number.NEGATIVE_INFINITY;

  /** `used` is called while the reader takes what is sent. */
  constructor(body: Readable, followed: Followed, log: Pick<Logger, 'error'>, used: () => void) {
    this.#body = body;
    this.#followed = followed;
    this.#log = log;
    // Watched before it is read, so that no change falls in between.
    this.#unwatch = followed.watch((ended) => {
      this.#mayEnd ||= ended === true;
      this.#changed();
    });
    const beat = setInterval(() => {
      if (body.readableLength === 0) used();
      body.push(': heartbeat\n\n');
    }, heartbeatInterval);
    const look = setInterval(() => this.#isPermitted() || this.endBody(), lookInterval);
    this.#timers = [beat, look];
    for (const timer of this.#timers) timer.unref();
    void this.#send();
  }

  #changed(): void {
    this.#isStale = true;
    if (this.#isSending || (this.#pending && !this.#mayEnd)) return;
    const wait = this.#mayEnd ? 0 : this.#sent + eventInterval - performance.now();
    if (wait <= 0) void this.#send();
    else this.#pending = setTimeout(() => void this.#send(), wait);
  }

  /** Never rejects. */
  async #send(): Promise<void> {
    clearTimeout(this.#pending);
    this.#pending = undefined;
    if (this.#ended || this.#isSending) return;
    this.#isSending = true;
    this.#isStale = false;
    try {
      const state = await this.#followed.read();
      if (this.#ended) return;
      if (!state || !this.#isPermitted() || this.#body.readableLength > maxWaiting) {
        this.endBody();
        return;
      }
      this.#sent = performance.now();
      this.#body.push(`event: ${this.#followed.event}\ndata: ${JSON.stringify(state.data)}\n\n`);
      if (!state.ended) return;
      this.close();
      this.#body.push(null);
    } catch (error) {
      // A reader that may not see it any more is told so by an error, too.
      if (!(error instanceof PlatformError)) this.#log.error({ err: error }, 'an event could not be sent');
      this.endBody();
    } finally {
      this.#isSending = false;
      if (this.#isStale && !this.#ended) this.#changed();
    }
  }

  /** Asked by timers, where an error would end the process: when nobody can say, no. */
  #isPermitted(): boolean {
    try {
      return this.#followed.isPermitted();
    } catch (error) {
      this.#log.error({ err: error }, 'the reader of events could not be looked at');
      return false;
    }
  }

  /** Ends the body, with nothing more to come. */
  endBody(): void {
    if (this.#ended) return;
    this.close();
    endEvents(this.#body);
  }

  close(): void {
    this.#ended = true;
    clearTimeout(this.#pending);
    this.#unwatch();
    for (const timer of this.#timers) clearInterval(timer);
  }
}
