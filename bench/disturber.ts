/** A thread with clients that harm others, or try to; each kind goes on until the thread is told to stop. */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { Packet } from 'mqtt-packet';
import { openLink, publishBytes } from './link.js';

/** A device of the disturber, and where the broker is. */
interface Means {
  port: number;
  id: string;
  secret: string;
  topic: string;
  stored: string;
}

const halfOpen = 1000;
const announcing = 200;
const announced = 10 * 1024 * 1024;
const wrongPerSecond = 100;

const kinds = {
  'a subscriber that never reads, on a busy channel': neverRead,
  'a flood of QoS 0': (means: Means) => flood(means, 0),
  'a flood of QoS 1, stored': (means: Means) => flood(means, 1),
  [`${halfOpen} half-open sockets`]: (means: Means) => keep(halfOpen, () => holdOpen(means)),
  [`${announcing} sockets announcing 10 MB`]: (means: Means) => keep(announcing, (n) => announce(means, n)),
  [`${wrongPerSecond} wrong CONNECTs a second`]: guess,
};
export const disturbances = Object.keys(kinds);

/** Begins a disturbance; `stop` ends its thread and with it its connections. */
export function disturb(kind: string, means: Means): { stop(): Promise<unknown> } {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { kind, means } });
  worker.on('error', (error) => console.error(kind, error));
  return { stop: () => worker.terminate() };
}

async function neverRead(means: Means): Promise<void> {
  const { topic } = means;
  const deaf = await openLink(means, login(means, 'deaf'));
  deaf.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] } as Packet);
  deaf.socket.pause();
  const busy = await openLink(means, login(means, 'busy'));
  for (;;) {
    for (let n = 0; n < 20; n += 1)
      busy.send(publishBytes(topic, Buffer.alloc(1000), { qos: n % 2, messageId: n + 1 }));
    await sleep(10);
  }
}

async function flood(means: Means, qos: 0 | 1): Promise<void> {
  const { topic, stored } = means;
  const { socket } = await openLink(means, login(means, 'flood'));
  const bytes = Buffer.concat(
    Array.from({ length: 1000 }, (_, n) => publishBytes(qos ? stored : topic, ',x,1,', { qos, messageId: n + 1 })),
  );
  for (;;) if (!socket.write(bytes)) await new Promise((resolve) => socket.once('drain', resolve));
}

/** So many at once: one that ends is followed by another. */
async function keep(count: number, hold: (n: number) => Promise<void>): Promise<void> {
  const follow = async (n: number) => {
    for (;;) {
      await hold(n);
      await sleep(100);
    }
  };
  await Promise.all(Array.from({ length: count }, (_, n) => follow(n)));
}

function holdOpen({ port }: Means): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** Every other one is a CONNECT of that length, the rest are PUBLISH packets of a device that has connected. */
async function announce(means: Means, n: number): Promise<void> {
  const head = (type: number) => Buffer.from([type, ...lengthOf(announced), 0, 4]);
  const socket =
    n % 2 ? connect(means.port, '127.0.0.1') : (await openLink(means, login(means, `announce ${n % 16}`))).socket;
  socket.on('error', () => {});
  socket.write(head(n % 2 ? 0x10 : 0x32));
  socket.write(Buffer.alloc(65_536));
  await new Promise<void>((resolve) => {
    if (socket.destroyed) resolve();
    socket.once('close', () => resolve());
  });
}

async function guess(means: Means): Promise<void> {
  for (let n = 0; ; n += 1) {
    openLink(means, { ...login(means, 'guess'), password: `wrong ${n}` })
      .then(({ socket }) => socket.destroy())
      .catch(() => {});
    await sleep(1000 / wrongPerSecond);
  }
}

function login({ id, secret }: Means, clientId: string) {
  return { username: id, password: secret, clientId };
}

/** The remaining length of a packet as its fixed header has it. */
function lengthOf(length: number): number[] {
  return length < 128 ? [length] : [(length & 127) | 128, ...lengthOf(length >> 7)];
}

if (!isMainThread && parentPort) await kinds[workerData.kind as keyof typeof kinds]?.(workerData.means);
