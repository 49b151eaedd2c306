/**
 * The one way to answer an array that a caller can make long: made and sent a piece at a time, so that it takes neither the
 * event loop nor much memory. A reader that does not read stops the making. A short answer is sent whole, with its length.
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { laneOf } from '../../core/limits/lanes.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';
import type { Scheduler } from '../../core/scheduler/scheduler.ts';

/** Characters that are collected before an answer becomes a stream, and in each piece of it. */
const shortAnswer = 64 * 1024;
const piece = 32 * 1024;

/** Milliseconds in which a reader takes nothing; after them a long answer ends when others of its account wait. */
const patience = 10_000;

/** JSON that is sent as it is, such as stored text: reading and writing 64 KiB of it again would take milliseconds. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A place in `queue` that an answer has until it ends. */
export interface HeldPlace {
  queue: Scheduler;
  leave(): void;
}

/** An answer that may become long. Long ones share the places of their account. */
export class Answer {
  readonly #places: Scheduler;
  readonly #lane: Lane;
  readonly #held: HeldPlace | undefined;
  #place: Promise<void> | undefined;
  #leave: (() => void) | undefined;
  #hasEnded = false;

  constructor(places: Scheduler, lane: Lane, held?: HeldPlace) {
    this.#places = places;
    this.#lane = lane;
    this.#held = held;
  }

  /** Whether others of the account wait for what this answer has. */
  get othersWait(): boolean {
    const { accountId } = this.#lane;
    return this.#places.waitingOf(accountId) + (this.#held?.queue.waitingOf(accountId) ?? 0) > 0;
  }

  /**
   * Resolves when the answer has its place among the long ones. Call it before rows are read, as soon as it is known to be long.
   * @throws PlatformError 429 when too many long answers wait.
   */
  takePlace(): Promise<void> {
    this.#place ??= this.#places.enter(this.#lane, 1).then((leave) => {
      if (this.#hasEnded) leave();
      else this.#leave = leave;
    });
    return this.#place;
  }

  endAnswer(): void {
    this.#hasEnded = true;
    this.#leave?.();
    this.#leave = undefined;
    this.#held?.leave();
  }
}

/** Items of an answer, made as they are taken. */
export type Items<W = unknown> = (answer: Answer) => AsyncIterable<W | JsonText>;

declare const sent: unique symbol;
const streamedSchemas = new WeakSet<object>();

/** The schema of an answer that only `sendList` or `sendItems` makes: a handler that returns the array itself does not compile. */
export function streamed(schema: TSchema) {
  const marked = Type.Unsafe<{ readonly [sent]: never }>(schema);
  streamedSchemas.add(marked);
  return marked;
}

/** Whether `streamed` made this schema. */
export function isStreamed(schema: object): boolean {
  return streamedSchemas.has(schema);
}

/** A page as the wire shows it. */
export interface StreamedPage {
  results: Items | undefined;
  meta: object | undefined;
}

/**
 * Answers `{<plural>:{results,meta}}`. What fails before the first piece answers with an error as usual; later the
 * connection is cut, since what has been sent cannot be taken back.
 */
export function sendList(reply: FastifyReply, plural: string, { results, meta }: StreamedPage): Promise<FastifyReply> {
  const end = `${meta ? `"meta":${JSON.stringify(meta)}` : ''}}}`;
  const begin = `{${JSON.stringify(plural)}:{`;
  if (!results) return sendItems(reply, begin + end, () => nothing(), '');
  return sendItems(reply, `${begin}"results":[`, results, `]${meta ? ',' : ''}${end}`);
}

/** As sendList, for an answer of another shape: JSON before the items, the items of an array, and JSON after them. */
export function sendItems(
  reply: FastifyReply,
  before: string,
  items: Items,
  after: string,
  type = 'application/json; charset=utf-8',
): Promise<FastifyReply> {
  reply.type(type);
  return sendText(reply, (answer) => textOf(before, items(answer), after));
}

/**
 * As sendList, for an answer that is no JSON, or lines of it. The route has set its type. The answer gives `held` back when it
 * ends, also when nothing of it is sent.
 */
export async function sendText(
  reply: FastifyReply,
  make: (answer: Answer) => AsyncGenerator<string>,
  held?: HeldPlace,
): Promise<FastifyReply> {
  const answer = new Answer(reply.server.longAnswers, laneOf(reply.request.caller), held);
  // Nobody reads it, so nothing is made.
  if (reply.request.method === 'HEAD') {
    answer.endAnswer();
    return reply.send(Readable.from([]));
  }
  const pieces = make(answer);
  let begin = '';
  try {
    while (begin.length < shortAnswer) {
      const { value, done } = await pieces.next();
      if (done) {
        answer.endAnswer();
        return reply.send(begin);
      }
      begin += value;
    }
    await answer.takePlace();
  } catch (error) {
    answer.endAnswer();
    await pieces.return(undefined);
    throw error;
  }
  return reply.send(bodyOf(answer, begin, pieces));
}

/** The rest of a long answer, which its reader asks for. One that does not read makes room for others of its account. */
function bodyOf(answer: Answer, begin: string, pieces: AsyncGenerator<string>): Readable {
  let untakenSince = performance.now();
  async function* following(): AsyncGenerator<string> {
    yield begin;
    untakenSince = Number.POSITIVE_INFINITY;
    for await (const text of pieces) {
      untakenSince = performance.now();
      yield text;
      untakenSince = Number.POSITIVE_INFINITY;
    }
  }
  const body = Readable.from(following(), { objectMode: false, highWaterMark: 1 });
  const look = setInterval(() => {
    if (answer.othersWait && performance.now() - untakenSince >= patience) body.destroy();
  }, patience / 10).unref();
  // A stream that is closed before it is read never comes to the end of its generator.
  body.once('close', () => {
    clearInterval(look);
    answer.endAnswer();
    void pieces.return(undefined).catch(() => {});
  });
  return body;
}

/** The output of JSON.stringify, in pieces. */
async function* textOf(before: string, items: AsyncIterable<unknown>, after: string): AsyncGenerator<string> {
  let text = before;
  let isFirst = true;
  for await (const one of items) {
    const json = one instanceof JsonText ? one.text : JSON.stringify(one);
    text += isFirst ? json : `,${json}`;
    isFirst = false;
    if (text.length < piece) continue;
    yield text;
    text = '';
  }
  yield text + after;
}

async function* nothing(): AsyncGenerator<never> {}
