/** The steps of a walk, and random walks. */
import { type Random, seeded } from '../broker/pipeline.ts';
import type { Level, Qos } from './history.ts';

export interface Will {
  channel: number;
  qos: Qos;
  retain: boolean;
}

/** What follows a step: the next one in the same turn (one write), in the next turn, or after the answer to a PINGREQ. */
export type Gap = 'none' | 'turn' | 'ping';

export type Step = { client: number; gap: Gap } & (
  | { kind: 'connect'; fresh: boolean; keep: boolean; will?: Will; window?: number; holds: boolean; waits: boolean }
  | { kind: 'publish'; channel: number; qos: Qos; retain: boolean; count: number; size: number; isEmpty?: true }
  | { kind: 'subscribe'; filter: number; qos: Qos; handling: 0 | 1 | 2 }
  | { kind: 'unsubscribe'; filter: number }
  // The client stops acknowledging, or reading; `go` ends both.
  | { kind: 'hold' }
  | { kind: 'pause' }
  | { kind: 'go' }
  // From here on the network loses what comes, or what goes, until the connection is cut.
  | { kind: 'deaf' }
  | { kind: 'mute' }
  | { kind: 'cut' }
  | { kind: 'leave' }
  | { kind: 'settle' }
);

export interface Walk {
  seed: number;
  levels: Level[];
  /** Clients that repeat a PUBLISH without DUP, as some libraries do. */
  forgetsDup: boolean[];
  steps: Step[];
}

/** Channels of the device of a walk; the last is for shared subscriptions alone, and its messages are never retained. */
export const channels = ['a', 'b', 'c', 'd', 'shared'] as const;
export const sharedChannel = channels.length - 1;
/** What filters are subscribed to: the topics they match, by channel, and how they are written. */
export const filters: Array<{ channels: number[]; write: (topic: (channel: string) => string) => string }> = [
  ...[0, 1, 2, 3].map((n) => ({
    channels: [n],
    write: (topic: (one: string) => string) => topic(channels[n] as string),
  })),
  { channels: [0], write: (topic) => topic('a').replace(/\/[^/]*\/d\//, '/+/d/') },
  { channels: [0, 1, 2, 3], write: (topic) => topic('+') },
];
const everything = filters.length - 1;
export const sharedFilter = filters.length;

/** The walk of a seed. What its steps are mostly about differs from walk to walk. */
export function walkOf(seed: number): Walk {
  const random = seeded(seed);
  const clients = 2 + random(3);
  const levels = Array.from({ length: clients }, () => ([3, 4, 4, 5, 5] as const)[random(5)] as Level);
  const forgetsDup = levels.map(() => random(4) === 0);
  const isShared = random(4) === 0;
  const dice = new Dice(random, clients, isShared);
  const steps: Step[] = [];
  for (let client = 0; client < clients; client += 1) steps.push(dice.connect(client));
  for (let client = 0; client < clients; client += 1) if (random(3) > 0) steps.push(dice.subscribe(client));
  if (random(48) === 0) steps.push(...dice.backlog());
  const length = steps.length + 3 + random(24);
  while (steps.length < length) steps.push(...dice.next());
  return { seed, levels, forgetsDup, steps };
}

class Dice {
  readonly #random: Random;
  readonly #clients: number;
  readonly #isShared: boolean;
  readonly #channels: number;
  readonly #qoss: Qos[];
  readonly #weights: Array<[kind: Step['kind'] | 'return', weight: number]>;
  /** Of twelve messages so many are retained. */
  readonly #retained: number;
  /** Messages of 60 KB, and hundreds of them at once. */
  readonly #isLarge: boolean;
  readonly #isLong: boolean;

  constructor(random: Random, clients: number, isShared: boolean) {
    this.#random = random;
    this.#clients = clients;
    this.#isShared = isShared;
    this.#channels = 1 + random(4);
    this.#qoss = ([[0, 1, 2], [1], [2], [1, 2], [0, 1]] as Qos[][])[random(5)] as Qos[];
    this.#isLong = random(12) === 0;
    this.#isLarge = random(24) === 0;
    this.#retained = ([0, 3, 6, 12] as const)[this.#isLong ? 1 + random(2) : random(4)] as number;
    const often = () => random(4);
    this.#weights = [
      ['publish', 6 + 3 * often()],
      ['subscribe', 1 + often()],
      ['unsubscribe', often() >> 1],
      ['hold', this.#isLong ? 4 : often()],
      ['pause', often() >> 1],
      ['go', 1 + often()],
      ['deaf', often()],
      ['mute', often()],
      ['return', 2 + 2 * often()],
      ['cut', often()],
      ['leave', often() >> 1],
      ['settle', often()],
    ];
  }

  #of<T>(choices: readonly T[]): T {
    return choices[this.#random(choices.length)] as T;
  }

  #gap(): Gap {
    return this.#of(['none', 'none', 'turn', 'ping'] as const);
  }

  connect(client: number): Step {
    const random = this.#random;
    const fresh = random(4) === 0;
    const will: Will | undefined =
      random(3) === 0
        ? { channel: random(this.#channels), qos: random(3) as Qos, retain: random(12) < this.#retained }
        : undefined;
    return {
      client,
      gap: this.#gap(),
      kind: 'connect',
      fresh,
      keep: random(5) > 0,
      holds: random(this.#isLong ? 2 : 4) === 0,
      waits: random(2) === 0,
      ...(will && { will }),
      ...(random(3) === 0 && { window: 1 + random(4) }),
    };
  }

  subscribe(client: number): Step {
    const random = this.#random;
    const isShared = this.#isShared && random(2) === 0;
    // Whatever is shared is not matched by a wildcard as well: who heard which copy would be a guess.
    const filter = isShared ? sharedFilter : random(this.#isShared ? filters.length - 1 : filters.length);
    const qos = (isShared ? 1 + random(2) : this.#of([0, 1, 1, 2, 2])) as Qos;
    return { client, gap: this.#gap(), kind: 'subscribe', filter, qos, handling: this.#of([0, 0, 0, 1, 2] as const) };
  }

  #publish(client: number): Step {
    const random = this.#random;
    const channel = this.#isShared && random(2) === 0 ? sharedChannel : random(this.#channels);
    const isRetained = channel !== sharedChannel && random(12) < this.#retained;
    const count = random(3) > 0 ? 1 : this.#isLong ? 1 + random(800) : 1 + random(6);
    const isEmpty = isRetained && count === 1 && random(6) === 0;
    const size = this.#isLarge && random(2) === 0 ? 60_000 : 0;
    return {
      client,
      gap: this.#gap(),
      kind: 'publish',
      channel,
      qos: this.#of(this.#qoss),
      retain: isRetained,
      count: size > 0 ? Math.min(count, 20) : count,
      size,
      ...(isEmpty && { isEmpty }),
    };
  }

  /** A client that acknowledges nothing of thousands of messages, and comes back to ask for retained ones. */
  backlog(): Step[] {
    const random = this.#random;
    const [client, other] = [0, 1];
    const qos = (1 + random(2)) as Qos;
    const publish = (channel: number, retain: boolean, count: number): Step => ({
      ...{ client: other, gap: 'ping', kind: 'publish', channel, qos, retain, count, size: 0 },
    });
    const settle: Step = { client, gap: 'ping', kind: 'settle' };
    // To all that is retained: each copy needs a packet id that none of the backlog has.
    const all: Step = { client, gap: 'none', kind: 'subscribe', filter: everything, qos, handling: 0 };
    const ask = (): Step => (this.#isShared ? { ...this.subscribe(client), gap: 'none' } : all);
    return [
      { client, gap: 'ping', kind: 'connect', fresh: false, keep: true, holds: true, waits: true },
      { client, gap: 'ping', kind: 'subscribe', filter: 0, qos, handling: 0 },
      ...[1, 2, 3].map((channel) => publish(channel, true, 1)),
      ...Array.from({ length: 1 + random(3) }, () => [publish(0, false, 800), settle, settle]).flat(),
      { client, gap: this.#gap(), kind: 'cut' },
      { client, gap: 'none', kind: 'connect', fresh: false, keep: true, holds: random(2) === 0, waits: false },
      ...Array.from({ length: 10 + random(20) }, ask),
    ];
  }

  /** A client that connects again while it is connected, and says that it is there where its will says that it is not. */
  #rebirth(client: number): Step[] {
    const random = this.#random;
    const will = { channel: random(this.#channels), qos: random(3) as Qos, retain: true };
    const connect = (gap: Gap, waits: boolean) => ({ ...this.connect(client), will, gap, waits }) as Step;
    const birth = { client, gap: this.#gap(), kind: 'publish', ...will, qos: random(2), count: 1, size: 0 } as Step;
    return [connect('ping', true), connect('none', false), birth];
  }

  /** The next steps: one, or the return of a client with what it says right behind CONNECT. */
  next(): Step[] {
    const random = this.#random;
    const client = random(this.#clients);
    const kind = this.#weighted();
    if (kind === 'return' && random(8) === 0) return this.#rebirth(client);
    if (kind === 'return') {
      const steps: Step[] = random(2) === 0 ? [{ client, gap: this.#gap(), kind: 'cut' }] : [];
      const connect = this.connect(client);
      if (random(2) === 0) Object.assign(connect, { gap: 'none', waits: false });
      steps.push(connect);
      // A birth message where the will was.
      if (connect.kind === 'connect' && connect.will && random(2) === 0)
        steps.push({ ...this.#publish(client), ...connect.will, qos: random(2) as Qos, count: 1, gap: 'none' } as Step);
      for (let more = random(this.#isLong ? 10 : 4); more > 0; more -= 1)
        steps.push(
          random(this.#isLong ? 4 : 2) > 0 ? { ...this.subscribe(client), gap: 'none' } : this.#publish(client),
        );
      return steps;
    }
    if (kind === 'publish') return [this.#publish(client)];
    if (kind === 'subscribe') return [this.subscribe(client)];
    if (kind === 'unsubscribe')
      return [{ client, gap: this.#gap(), kind, filter: random(this.#isShared ? filters.length + 1 : filters.length) }];
    return [{ client, gap: this.#gap(), kind } as Step];
  }

  #weighted(): Step['kind'] | 'return' {
    let left = this.#random(this.#weights.reduce((sum, [, weight]) => sum + weight, 0));
    for (const [kind, weight] of this.#weights) {
      if (left < weight) return kind;
      left -= weight;
    }
    return 'publish';
  }
}

/** A walk as people read it, one step a line. */
export function show({ seed, levels, forgetsDup, steps }: Walk): string {
  const who = levels.map((level, n) => `${n}: level ${level}${forgetsDup[n] ? ', repeats without DUP' : ''}`);
  const lines = steps.map(
    ({ client, kind, gap, ...more }) => `  ${client} ${kind} ${JSON.stringify(more)} then ${gap}`,
  );
  return [`seed ${seed}; clients ${who.join('; ')}`, ...lines].join('\n');
}
