/**
 * The one way to answer an array that a caller can make long: made and sent a piece at a time, so that it takes neither the
 * event loop nor much memory. A reader that does not read stops the making. A short answer is sent whole, with its length.
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { type FairQueue, type Lane, laneOf } from '../../limits/fair-queue.ts';

/** Characters that are collected before an answer becomes a stream, and in each piece of it. */
const shortAnswer = 64 * 1024;
const piece = 32 * 1024;

/** JSON that is sent as it is, such as stored text: reading and writing 64 KiB of it again would take milliseconds. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** An answer that may become long. Long ones share the places of their account. */
export class Answer {
  readonly #places: FairQueue;
  readonly #lane: Lane;
  #place: Promise<void> | undefined;
  #leave: (() => void) | undefined;
  #hasEnded = false;

  constructor(places: FairQueue, lane: Lane) {
    this.#places = places;
    this.#lane = lane;
  }

  /**
   * Resolves when the answer has its place among the long ones. Call it before rows are read, as soon as it is known to be
   * long; otherwise it is called when the answer becomes a stream.
   * @throws PlatformError 429 when too many long answers wait.
   */
  takePlace(): Promise<void> {
    this.#place ??= this.#places.enter(this.#lane, 1).then((leave) => {
      if (this.#hasEnded) leave();
      else this.#leave = leave;
    });
    return this.#place;
  }

  end(): void {
    this.#hasEnded = true;
    this.#leave?.();
    this.#leave = undefined;
  }
}

/** Items of an answer, made as they are taken. */
export type Items<W = unknown> = (answer: Answer) => AsyncIterable<W | JsonText>;

declare const sent: unique symbol;

/** The schema of an answer that only `sendList` or `sendItems` makes: a handler that returns the array itself does not compile. */
export function streamed(schema: TSchema) {
  return Type.Unsafe<{ readonly [sent]: never }>(schema);
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
export function sendItems(reply: FastifyReply, before: string, items: Items, after: string): Promise<FastifyReply> {
  reply.type('application/json; charset=utf-8');
  return sendText(reply, (answer) => textOf(before, items(answer), after));
}

/** As sendList, for an answer that is no JSON, or lines of it. The route has set its type. */
export async function sendText(
  reply: FastifyReply,
  make: (answer: Answer) => AsyncGenerator<string>,
): Promise<FastifyReply> {
  // Nobody reads it, so nothing is made.
  if (reply.request.method === 'HEAD') return reply.send(Readable.from([]));
  const answer = new Answer(reply.server.longAnswers, laneOf(reply.request.caller));
  const pieces = make(answer);
  let begin = '';
  try {
    while (begin.length < shortAnswer) {
      const { value, done } = await pieces.next();
      if (done) {
        answer.end();
        return reply.send(begin);
      }
      begin += value;
    }
    await answer.takePlace();
  } catch (error) {
    answer.end();
    await pieces.return(undefined);
    throw error;
  }
  const body = Readable.from(following(begin, pieces), { objectMode: false, highWaterMark: 1 });
  // A stream that is closed before it is read never comes to the end of its generator.
  body.once('close', () => {
    answer.end();
    void pieces.return(undefined).catch(() => {});
  });
  return reply.send(body);
}

async function* following(begin: string, pieces: AsyncGenerator<string>): AsyncGenerator<string> {
  yield begin;
  yield* pieces;
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
