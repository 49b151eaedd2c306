/** Server-sent events of some topics, read as the person that the page shows; it connects again by itself. */
import { send } from '../../app/acting.ts';
import { sessionEnded } from '../../app/api.ts';

export interface Message {
  topic: string;
  payload: string;
  time: string;
  properties?: MessageProperties;
}

/** What an MQTT 5 client sent along, and what its sender over HTTP did. */
export interface MessageProperties {
  contentType?: string;
  responseTopic?: string;
  /** Base64. */
  correlationData?: string;
  userProperties?: readonly (readonly [name: string, value: string])[];
  /** Seconds that are left. */
  messageExpiry?: number;
}

/** Milliseconds until the stream is asked for again: after it has ended, and after it was refused. */
const soon = 3000;
const later = 30_000;

export interface Hearing {
  /** The topics of a stream that has opened; none once it has ended. */
  onOpen: (topics: readonly string[]) => void;
  onMessage: (message: Message) => void;
  /** There is nothing new; the id of the last event has moved on. */
  onBeat: () => void;
}

/** `last` holds the id of the last event, from which the next stream goes on. Returns how to end it. */
export function openStream(topics: readonly string[], last: { id: string }, hearing: Hearing): () => void {
  const controller = new AbortController();
  const { signal } = controller;
  let wanted = topics;
  const once = async (): Promise<number> => {
    const headers = new Headers(last.id === '' ? [] : [['last-event-id', last.id]]);
    const url = `/api/v1/stream?topics=${encodeURIComponent(wanted.join(','))}`;
    const response = await send(new Request(url, { headers, signal }));
    if (response.ok && response.body) {
      hearing.onOpen(wanted);
      await readEvents(response.body, last, hearing);
      return soon;
    }
    if (response.status === 401) sessionEnded.value += 1;
    if (response.status >= 500) return soon;
    const fewer = last.id === '' ? await acceptable(response, wanted) : wanted;
    const isSame = fewer.length === wanted.length && last.id === '';
    last.id = '';
    wanted = fewer;
    return isSame || wanted.length === 0 ? later : 0;
  };
  const run = async () => {
    while (!signal.aborted) {
      const pause = await once().catch(() => soon);
      if (signal.aborted) return;
      hearing.onOpen([]);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  };
  run();
  return () => controller.abort();
}

/** The topics without the one that is out of reach; half of them where they are too many. */
async function acceptable(response: Response, topics: readonly string[]): Promise<readonly string[]> {
  const { error } = await response.json().catch(() => ({}));
  const [, place] = /^number (\d+) /.exec(error?.details?.[0]?.message ?? '') ?? [];
  if (place !== undefined) return topics.filter((_, at) => at !== Number(place) - 1);
  return [400, 414, 431].includes(response.status) ? topics.slice(0, topics.length >> 1) : topics;
}

async function readEvents(body: ReadableStream<Uint8Array>, last: { id: string }, { onMessage, onBeat }: Hearing) {
  let rest = '';
  let event = { name: '', data: '' };
  for await (const text of chunksOf(body)) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const [name, value] = [line.split(':', 1)[0], line.slice(line.indexOf(':') + 1).trimStart()];
      if (name === 'id') last.id = value;
      if (name === 'event') event.name = value;
      if (name === 'data') event.data = value;
      if (line !== '') continue;
      if (event.name === 'message') onMessage(messageOf(event.data));
      else onBeat();
      event = { name: '', data: '' };
    }
  }
}

async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function messageOf(data: string): Message {
  const { topic, payload, payloadBase64, time, properties } = JSON.parse(data);
  return { topic, payload: payload ?? payloadBase64 ?? '', time, properties };
}
