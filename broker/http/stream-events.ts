/** Server-sent events as bytes, and their ids, by which a reader is known again (docs/messages.md, "Listening"). */
import { isUtf8 } from 'node:buffer';
import type { StoreEnd } from '../../db/messages/threads/protocol.ts';
import type { HiddenNumbers } from '../../src/core/formats/hidden-numbers.ts';
import { showProperties } from '../../src/core/formats/message-properties.ts';
import { type Carried, storedProperties } from '../message-types.ts';
import type { Missed } from './missed.ts';

/** An event on its way to readers: the same bytes for all of them, its id in the first line. */
export interface Event {
  topic: string;
  mark: Readonly<StoreEnd>;
  id: Buffer;
  rest: Buffer;
  bytes: number;
  payload: Buffer;
}

/** A live message; `now` in milliseconds. */
export function eventOf(
  numbers: HiddenNumbers,
  topic: string,
  payload: Buffer,
  carried: Carried,
  mark: Readonly<StoreEnd>,
  now: number,
): Event {
  const said = isUtf8(payload) ? { payload: payload.toString() } : { payloadBase64: payload.toString('base64') };
  const properties = showProperties(storedProperties(carried), now);
  const data = JSON.stringify({ topic, ...said, time: new Date(now).toISOString(), ...(properties && { properties }) });
  const id = Buffer.from(`id: ${formatId(numbers, mark, now)}\n`);
  const rest = Buffer.from(`event: message\ndata: ${data}\n\n`);
  return { topic, mark, id, rest, bytes: id.length + rest.length, payload };
}

/** A message that is sent again to who has been away since then (milliseconds). */
export function missedEvent(numbers: HiddenNumbers, { topic, payload, time, place }: Missed, since: number): string {
  const data = JSON.stringify({ topic, payload, time: new Date(time).toISOString(), replayed: true });
  return `id: ${formatId(numbers, place, since)}\nevent: message\ndata: ${data}\n\n`;
}

/** A place in the store, which holds the messages of all accounts, and the time at which it was the last one. */
export function formatId(numbers: HiddenNumbers, { points, logs }: Readonly<StoreEnd>, time: number): string {
  return `${numbers.hide(points, logs)}.${time}`;
}

/** The position of an event in the store. Only its time is known if an earlier version made its id. */
export interface EventPosition {
  place: StoreEnd | undefined;
  time: number;
}

/** Undefined for a text that is not the id of an event. */
export function parseId(numbers: HiddenNumbers, text: string): EventPosition | undefined {
  const [, earlier] = /^\d{1,15}-\d{1,15}-(\d{1,15})$/.exec(text) ?? [];
  if (earlier !== undefined) return { place: undefined, time: Number(earlier) };
  const [, place = '', time] = /^([\w-]{32})\.(\d{1,15})$/.exec(text) ?? [];
  const [points, logs] = numbers.read(place) ?? [];
  if (points === undefined || logs === undefined) return undefined;
  return { place: { points, logs }, time: Number(time) };
}
