/**
 * Messages as they come. A browser has one stream for all its tabs, since it takes few connections to a host: the tab that has
 * the lock reads what all want, and hands it to the others. Who is not looked at wants nothing. Without locks, over plain
 * HTTP, each tab that is looked at has a stream of its own.
 */
import { isWatched, lapse, me } from '../../app/session.ts';
import { type Message, openStream } from './events.ts';

export type { Message, MessageProperties } from './events.ts';

interface Listener {
  topics: readonly string[];
  onMessage: (message: Message) => void;
  onState: ((open: boolean) => void) | undefined;
  isOpen: boolean;
}

/** What tabs tell each other; the one that reads tells what it hears, and where another one would go on. */
type Word =
  | { kind: 'ask' }
  | { kind: 'want'; tab: string; topics: readonly string[] }
  | { kind: 'open'; topics: readonly string[] }
  | { kind: 'message'; message: Message; id: string }
  | { kind: 'beat'; id: string };

/** Milliseconds: what a page takes down and puts up together is one change. */
const settleTime = 20;
const tab = Math.random().toString(36);
const listeners = new Set<Listener>();
/** Tabs of one person share a stream. */
let room: ReturnType<typeof openRoom> | undefined;

export function listen(
  topics: readonly string[],
  onMessage: (message: Message) => void,
  onState?: (open: boolean) => void,
) {
  const person = me.value?.id ?? tab;
  if (room?.person !== person) {
    room?.close();
    room = openRoom(person);
  }
  const listener: Listener = { topics, onMessage, onState, isOpen: false };
  listeners.add(listener);
  room.change();
  return {
    close: () => {
      listeners.delete(listener);
      room?.change();
    },
  };
}

const wanted = () => (isWatched() ? [...new Set([...listeners].flatMap(({ topics }) => topics))] : []);

function openRoom(person: string) {
  const name = `slipway-live ${person}`;
  const { locks } = navigator as { locks?: LockManager };
  const channel = new BroadcastChannel(name);
  const say = (word: Word) => locks && channel.postMessage(word);
  let mine: readonly string[] = [];
  const others = new Map<string, readonly string[]>();
  let heard: readonly string[] = [];
  const last = { id: '' };
  let reader: ReturnType<typeof read> | undefined;
  /** Ends the wait for the lock, or gives it back. */
  let leave: (() => void) | undefined;

  function hear(topics: readonly string[]): void {
    heard = topics;
    for (const listener of listeners) {
      const isOpen = listener.topics.every((topic) => heard.includes(topic));
      if (isOpen !== listener.isOpen) listener.onState?.(isOpen);
      listener.isOpen = isOpen;
    }
  }
  function deliver(message: Message): void {
    for (const { topics, onMessage } of listeners) if (topics.includes(message.topic)) onMessage(message);
  }
  const hearing = {
    onOpen: (topics: readonly string[]) => {
      hear(topics);
      say({ kind: 'open', topics });
    },
    onMessage: (message: Message) => {
      deliver(message);
      say({ kind: 'message', message, id: last.id });
    },
    onBeat: () => say({ kind: 'beat', id: last.id }),
  };

  /** This tab reads for all. */
  function read() {
    let end = () => {};
    let reading = '';
    const change = () => {
      const topics = [...new Set([...mine, ...[...others.values()].flat()])].sort();
      if (topics.join() === reading) return;
      reading = topics.join();
      end();
      // Where it goes on, nothing is missed: who hears already, hears on.
      hearing.onOpen(heard.filter((topic) => topics.includes(topic)));
      end = openStream(topics, last, hearing);
    };
    return { change, end: () => end() };
  }

  function join(): void {
    if (leave) return;
    if (!locks) {
      reader = read();
      leave = () => {};
      return;
    }
    const waiting = new AbortController();
    leave = () => waiting.abort();
    const holding = (lead: () => void) =>
      new Promise<void>((release) => {
        if (waiting.signal.aborted) return release();
        leave = release;
        lead();
      });
    locks
      .request(name, { signal: waiting.signal }, () =>
        holding(() => {
          reader = read();
          plan();
        }),
      )
      .catch(() => {});
  }
  function part(): void {
    reader?.end();
    reader = undefined;
    leave?.();
    leave = undefined;
    last.id = '';
    hear([]);
  }
  function update(): void {
    const before = mine.join();
    mine = wanted();
    if (mine.length > 0) join();
    else part();
    if (mine.join() !== before) say({ kind: 'want', tab, topics: mine });
    reader?.change();
    hear(heard);
  }
  let planned: ReturnType<typeof setTimeout> | undefined;
  function plan(): void {
    planned ??= setTimeout(() => {
      planned = undefined;
      update();
    }, settleTime);
  }

  function want(of: string, topics: readonly string[]): void {
    if (topics.length > 0) others.set(of, topics);
    else others.delete(of);
    if (!reader) return;
    say({ kind: 'open', topics: heard });
    plan();
  }

  channel.addEventListener('message', ({ data }: MessageEvent<Word>) => {
    if (data.kind === 'want') want(data.tab, data.topics);
    if (mine.length === 0) return;
    if (data.kind === 'ask') say({ kind: 'want', tab, topics: mine });
    if (data.kind === 'open') hear(data.topics);
    if (data.kind === 'message') deliver(data.message);
    if ('id' in data) last.id = data.id;
  });
  say({ kind: 'ask' });
  const ended = new AbortController();
  document.addEventListener('visibilitychange', update, ended);
  const forget = lapse.subscribe(() => plan());
  return {
    person,
    change: plan,
    close: () => {
      clearTimeout(planned);
      ended.abort();
      forget();
      part();
      channel.close();
    },
  };
}
