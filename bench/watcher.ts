/**
 * A thread that lives as an honest customer: it reads, writes, connects, publishes and listens at a steady pace, whatever
 * becomes of what it asked before. Each use of the service says how long it took.
 */
import { Agent, request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { Packet } from 'mqtt-packet';
import { type Link, openLink, publishBytes } from './link.ts';

export interface Watched {
  httpPort: number;
  mqttPort: number;
  accountId: string;
  token: string;
  devices: ReadonlyArray<{ id: string; secret: string; root: string }>;
  /** With it, the admin logs in every second. */
  login?: { emailAddress: string; password: string } | undefined;
}

/** The use that takes a hash, and so about 40 ms alone. */
export const loginUse = 'login of an owner';

/** Milliseconds that each use took, by its name. What was refused or is not answered counts as `lost`. */
export type Seen = Record<string, number[]>;

/** Milliseconds. Longer than any row may last. */
export const lost = 60_000;
/** Milliseconds between two uses of one kind. */
const beat = 20;

export interface Watcher {
  /** What was seen since the last call. */
  take(): Promise<Seen>;
  stop(): Promise<unknown>;
}

export function startWatching(watched: Watched): Watcher {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: watched });
  return {
    take: () =>
      new Promise((resolve, reject) => {
        worker.once('error', reject);
        worker.once('message', resolve);
        worker.postMessage('take');
      }),
    stop: () => worker.terminate(),
  };
}

/** Uses under way and their times. */
class Times {
  #seen: Seen = {};
  readonly #open = new Map<object, { kind: string; from: number }>();

  /** Begins a use; the answer ends it. */
  begin(kind: string): (isWell?: boolean) => void {
    const use = { kind, from: performance.now() };
    this.#open.set(use, use);
    return (isWell = true) => {
      if (this.#open.delete(use)) this.#note(kind, isWell ? performance.now() - use.from : lost);
    };
  }

  /** What is still under way counts with the time that it has taken already. */
  take(): Seen {
    const now = performance.now();
    for (const { kind, from } of this.#open.values()) if (now - from > beat * 10) this.#note(kind, now - from);
    const seen = this.#seen;
    this.#seen = {};
    return seen;
  }

  #note(kind: string, time: number): void {
    this.#seen[kind] ??= [];
    this.#seen[kind].push(time);
  }
}

async function watch({ httpPort, mqttPort, accountId, token, devices, login }: Watched): Promise<void> {
  const times = new Times();
  const agent = new Agent({ keepAlive: true });
  const ask = (kind: string, method: string, path: string, body?: object) => {
    const ended = times.begin(kind);
    const headers = { authorization: `Bearer ${token}`, ...(body && { 'content-type': 'application/json' }) };
    const asking = request({ agent, host: '127.0.0.1', port: httpPort, method, path: `/api/v1${path}`, headers });
    asking.on('response', (answer) => {
      answer.resume();
      answer.once('close', () => ended(answer.complete && answer.statusCode === 200));
    });
    asking.once('error', () => ended(false));
    asking.end(body && JSON.stringify(body));
  };
  const talk = await startTalk(mqttPort, devices, times);
  const [connecting] = devices;
  const connect = () => {
    if (!connecting) return;
    const ended = times.begin('CONNECT');
    const login = { username: connecting.id, password: connecting.secret, clientId: `visit ${n}` };
    openLink({ port: mqttPort }, login).then(
      ({ socket, returnCode }) => {
        ended(returnCode === 0);
        socket.destroy();
      },
      () => ended(false),
    );
  };
  let n = 0;
  // They take turns, so that no two begin in the same moment.
  const uses = [
    () => ask('GET a device', 'GET', `/devices/${devices[n % devices.length]?.id}`),
    () => talk.publish(n),
    () => ask('GET a page', 'GET', `/devices?accountId=${accountId}&pageSize=10`),
    () => talk.store(n),
    () => n % 5 === 0 && ask('POST a device', 'POST', '/devices', { accountId, serialNumber: `HONEST-${n}` }),
    () => n % 5 === 2 && connect(),
    () => login && n % 50 === 25 && ask(loginUse, 'POST', '/auth/login-user', { ...login, accountId }),
  ];
  const from = performance.now();
  let done = 0;
  // Catches up when the timer was late, so that nothing is left out while the machine is busy.
  setInterval(() => {
    for (; done < ((performance.now() - from) / beat) * uses.length; done += 1) {
      n = Math.floor(done / uses.length);
      uses[done % uses.length]?.();
    }
  }, 2);
  parentPort?.on('message', () => parentPort?.postMessage(times.take()));
}

/** One device each for a publisher and its subscriber, and some that have messages stored. */
async function startTalk(port: number, devices: Watched['devices'], times: Times) {
  const underWay = new Map<string, (isWell?: boolean) => void>();
  const open = (place: number, role: string, hear: (packet: Packet, link: Link) => void = () => {}) => {
    const { id, secret } = devices[place] as Watched['devices'][number];
    return openLink({ port }, { username: id, password: secret, clientId: role }, hear);
  };
  const end = (key: string) => {
    underWay.get(key)?.();
    underWay.delete(key);
  };
  const pairs: Array<{ topic: string; link: Link }> = [];
  const storing: Array<{ topic: string; link: Link }> = [];
  const half = Math.floor(devices.length / 2);
  for (const [place, { root }] of devices.entries())
    if (place < half) {
      const topic = `${root}/chat`;
      const subscriber = await open(place, 'subscriber', (packet, link) => {
        if (packet.cmd !== 'publish') return;
        end(packet.payload.toString());
        link.send({ cmd: 'puback', messageId: packet.messageId ?? 0 });
      });
      subscriber.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] } as Packet);
      pairs.push({ topic, link: await open(place, 'publisher') });
    } else
      storing.push({
        topic: `${root}/temperature`,
        link: await open(place, 'storing', ({ cmd, messageId }) => cmd === 'puback' && end(`${place} ${messageId}`)),
      });
  const messageIdOf = (n: number) => (n % 65_535) + 1;
  return {
    publish: (n: number) => {
      const pair = pairs[n % pairs.length];
      underWay.set(`talk ${n}`, times.begin('publish → receive'));
      pair?.link.send(publishBytes(pair.topic, `talk ${n}`, { qos: 1, messageId: messageIdOf(n) }));
    },
    store: (n: number) => {
      const place = n % storing.length;
      const messageId = messageIdOf(n);
      underWay.set(`${half + place} ${messageId}`, times.begin('publish → stored'));
      storing[place]?.link.send(publishBytes(storing[place].topic, `,x,${n},`, { qos: 1, messageId }));
    },
  };
}

if (!isMainThread) await watch(workerData);
