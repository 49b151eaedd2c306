/**
 * The answers of lists: made and sent a piece at a time, so that a long one takes neither the event loop nor much memory.
 * A reader that does not read stops the making. A short answer is sent whole, with its length.
 */
import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';

/** Characters that are collected before an answer becomes a stream, and in each piece of it. */
const shortAnswer = 64 * 1024;
const piece = 32 * 1024;

/** A page as the wire shows it; `results` are made as they are sent. */
export interface StreamedPage {
  results: AsyncIterable<unknown> | undefined;
  meta: object | undefined;
}

/**
 * Answers `{<plural>:{results,meta}}`. What fails before the first piece answers with an error as usual; later the
 * connection is cut, since what has been sent cannot be taken back.
 */
export function sendList(reply: FastifyReply, plural: string, page: StreamedPage): Promise<FastifyReply> {
  return sendPieces(reply, textOf(plural, page));
}

/** As sendList, for an answer of another shape: JSON before the items, the items of an array, and JSON after them. */
export function sendItems(
  reply: FastifyReply,
  before: string,
  items: AsyncIterable<unknown>,
  after: string,
): Promise<FastifyReply> {
  return sendPieces(reply, itemsOf(before, items, after));
}

async function sendPieces(reply: FastifyReply, pieces: AsyncGenerator<string>): Promise<FastifyReply> {
  reply.type('application/json; charset=utf-8');
  let begin = '';
  for (;;) {
    const { value, done } = await pieces.next();
    if (done) return reply.send(begin);
    begin += value;
    if (begin.length >= shortAnswer) break;
  }
  return reply.send(Readable.from(following(begin, pieces), { objectMode: false, highWaterMark: 1 }));
}

async function* following(begin: string, pieces: AsyncGenerator<string>): AsyncGenerator<string> {
  yield begin;
  yield* pieces;
}

/** The output of JSON.stringify, in pieces. */
async function* textOf(plural: string, { results, meta }: StreamedPage): AsyncGenerator<string> {
  const end = `${meta ? `"meta":${JSON.stringify(meta)}` : ''}}}`;
  const text = `{${JSON.stringify(plural)}:{`;
  if (!results) {
    yield text + end;
    return;
  }
  yield* itemsOf(`${text}"results":[`, results, `]${meta ? ',' : ''}${end}`);
}

async function* itemsOf(before: string, items: AsyncIterable<unknown>, after: string): AsyncGenerator<string> {
  let text = before;
  let isFirst = true;
  for await (const one of items) {
    text += isFirst ? JSON.stringify(one) : `,${JSON.stringify(one)}`;
    isFirst = false;
    if (text.length < piece) continue;
    yield text;
    text = '';
  }
  yield text + after;
}
