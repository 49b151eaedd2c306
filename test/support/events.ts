/** A reader of server-sent events, as a browser's EventSource reads them. */
import type { Test } from 'tap';
import type { Service } from './service.ts';
import { soon } from './until.ts';

/** A message, or of a gap since when messages are missing. */
export interface EventData {
  topic: string;
  payload: string;
  time: string;
  replayed?: true;
  since: string;
}

export interface ServerEvent {
  id: string;
  event: string;
  data: EventData;
}

export interface Events {
  readonly headers: Headers;
  /** Every line that has arrived. */
  readonly lines: string[];
  /** The `Last-Event-ID` to send after a reconnect. */
  readonly lastId: string;
  /** The next event; rejects when the stream has ended before. */
  next(): Promise<ServerEvent>;
  /** Events until one of which `isLast` is true. */
  until(isLast: (event: ServerEvent) => boolean): Promise<ServerEvent[]>;
  /** The payloads of the next `count` messages. */
  payloads(count: number): Promise<string[]>;
  /** Resolves when a line of this kind has arrived. */
  line(matches: RegExp): Promise<void>;
  readonly closed: Promise<void>;
  close(): void;
}

interface Options {
  token?: string;
  after?: string;
}

/** Opens a stream; it ends with the test. @throws Error with the answer when there is none. */
export async function openStream(
  t: Test,
  service: Service,
  topics: string,
  { token = service.admin, after }: Options = {},
): Promise<Events> {
  const aborter = new AbortController();
  t.teardown(() => aborter.abort());
  service.secrets.add(token);
  const url = `${service.server.url}/api/v1/stream?topics=${encodeURIComponent(topics)}`;
  const headers = {
    authorization: `Bearer ${token}`,
    accept: 'text/event-stream',
    ...(after !== undefined && { 'last-event-id': after }),
  };
  const response = await fetch(url, { headers, signal: aborter.signal });
  if (response.status !== 200 || !response.body) throw new Error(`${response.status} ${await response.text()}`);
  return read(response, () => aborter.abort());
}

function read(response: Response, close: () => void): Events {
  const lines: string[] = [];
  const arrived: ServerEvent[] = [];
  const waiting: Array<{ resolve(event: ServerEvent): void; reject(error: Error): void }> = [];
  const watching = new Set<() => void>();
  let [rest, id, event, data, ended] = ['', '', 'message', '', false];
  const take = (line: string) => {
    lines.push(line);
    const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (name === 'id') id = value;
    if (name === 'event') event = value;
    if (name === 'data') data += value;
    if (line === '' && data !== '') {
      const whole = { id, event, data: JSON.parse(data) };
      const next = waiting.shift();
      if (next) next.resolve(whole);
      else arrived.push(whole);
    }
    if (line === '') [event, data] = ['message', ''];
    for (const look of watching) look();
  };
  const pump = async () => {
    const decoder = new TextDecoder();
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      const texts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = texts.pop() ?? '';
      for (const line of texts) take(line);
    }
  };
  const closed = pump()
    .catch(() => {})
    .then(() => {
      ended = true;
      for (const { reject } of waiting.splice(0)) reject(new Error('the stream ended'));
    });
  const next = (): Promise<ServerEvent> => {
    const first = arrived.shift();
    if (first) return Promise.resolve(first);
    if (ended) return Promise.reject(new Error('the stream ended'));
    const came = new Promise<ServerEvent>((resolve, reject) => waiting.push({ resolve, reject }));
    return soon('an event of a stream', came, () => lines.slice(-10));
  };
  const until = async (isLast: (one: ServerEvent) => boolean) => {
    const events = [await next()];
    while (!isLast(events.at(-1) as ServerEvent)) events.push(await next());
    return events;
  };
  return {
    headers: response.headers,
    lines,
    get lastId() {
      return id;
    },
    next,
    until,
    payloads: async (count) => {
      const texts: string[] = [];
      while (texts.length < count) texts.push((await next()).data.payload);
      return texts;
    },
    line: (matches) =>
      soon(
        `the line ${matches} of a stream`,
        new Promise((resolve) => {
          const look = () => {
            if (!lines.some((line) => matches.test(line))) return;
            watching.delete(look);
            resolve();
          };
          watching.add(look);
          look();
        }),
        () => lines.slice(-10),
      ),
    closed,
    close,
  };
}
