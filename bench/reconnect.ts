/** A fleet with stored sessions comes back after a restart: how long it takes, and what others feel of it. */
import type { Packet } from 'mqtt-packet';
import { startAsking } from './asker.js';
import { type Equipped, equip } from './equip.js';
import { at, described, verdict } from './figures.js';
import { type Link, openLink } from './link.js';
import { adminToken, type Serving, serve, serveBareAedes } from './processes.js';

/** Connections being made at once; more would wait in the backlog of the kernel. */
const atOnce = 500;
const secondsFigure = 10;
const restFigure = 500;
const memoryFigure = 550;
/** Milliseconds after the last CONNACK, for presence to be written and garbage to be collected. */
const rest = 5000;

export async function measureReconnect(directory: string, count: number): Promise<void> {
  const devices = await equip(directory, count);
  const first = await serve(directory);
  console.log(`${count} devices with a stored session and one subscription each; idle: ${first.rss()} MB`);
  const { links } = await connectAll(first, devices);
  await Promise.all([...links].map(([device, link]) => subscribe(link, device.topic('chat'))));
  await first.stop();
  await Promise.all([...links.values()].map(({ closed }) => closed));

  const from = performance.now();
  const second = await serve(directory);
  console.log(`restarted in ${Math.round(performance.now() - from)} ms; idle with its sessions: ${second.rss()} MB`);
  const token = await adminToken(second, devices[0]?.accountId ?? '');
  const asking = startAsking(`${second.url}/devices/${devices[0]?.id}`, token);
  const back = await connectAll(second, devices);
  const times = await asking.stop();
  const present = [...back.links.values()].filter(({ sessionPresent }) => sessionPresent).length;
  await new Promise((resolve) => setTimeout(resolve, rest));
  const memory = second.rss();
  for (const { socket } of back.links.values()) socket.destroy();
  await second.stop();

  const bare = await serveBareAedes();
  const peer = await connectAll(bare, devices);
  for (const { socket } of peer.links.values()) socket.destroy();
  await bare.stop();

  const rate = ({ seconds, cpu }: { seconds: number; cpu: number }) =>
    `${seconds.toFixed(1)} s, ${Math.round(count / seconds)} CONNECTs/s, ${cpu.toFixed(1)} s of CPU time`;
  console.log(`\n  Slipway     ${rate(back)}, ${present} found their session`);
  console.log(`  bare Aedes  ${rate(peer)}; ratio ${(peer.seconds / back.seconds).toFixed(2)}`);
  console.log(`  GET a device meanwhile, with a token  ${described(times)}\n`);
  verdict('all have CONNACK', back.seconds, 's', secondsFigure);
  verdict('REST p99 meanwhile', at(times, 0.99), 'ms', restFigure);
  verdict(`memory with ${count} connected`, memory, 'MB', memoryFigure);
}

async function connectAll(
  { mqttPort: port, cpu }: Serving,
  devices: Equipped[],
): Promise<{ links: Map<Equipped, Link>; seconds: number; cpu: number }> {
  const links = new Map<Equipped, Link>();
  const waiting = devices.values();
  const [from, cpuBefore] = [performance.now(), cpu()];
  const connectSome = async () => {
    for (const device of waiting) {
      const { id, secret } = device;
      const link = await openLink({ port }, { username: id, password: secret, clientId: id, clean: false });
      if (link.returnCode !== 0) throw new Error(`refused with ${link.returnCode}`);
      links.set(device, link);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, connectSome));
  return { links, seconds: (performance.now() - from) / 1000, cpu: cpu() - cpuBefore };
}

function subscribe(link: Link, topic: string): Promise<void> {
  return new Promise((resolve) => {
    link.socket.once('data', () => resolve());
    link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] } as Packet);
  });
}
