/** A fleet that connects at once. */
import type { Packet } from 'mqtt-packet';
import type { Equipped } from './equip.ts';
import { type Level, type Link, openLink } from './link.ts';
import { Pacer } from './pacer.ts';
import type { Serving } from './processes.ts';

/** Connections being made at once; more would wait in the backlog of the kernel. */
const atOnce = 500;

export interface Stormed {
  links: Map<Equipped, Link>;
  seconds: number;
  /** Seconds of CPU time that the server took for it. */
  cpu: number;
}

/** Resolves when all have their CONNACK. With `clean: false` they have stored sessions; `atMost` a second. @throws Error for a refused one. */
export async function connectAll(
  { mqttPort: port, cpu = () => 0 }: Pick<Serving, 'mqttPort'> & Partial<Pick<Serving, 'cpu'>>,
  devices: readonly Equipped[],
  more: { clean: boolean; level?: Level } = { clean: false },
  atMost = Number.POSITIVE_INFINITY,
): Promise<Stormed> {
  const links = new Map<Equipped, Link>();
  const waiting = devices.values();
  const [from, cpuBefore] = [performance.now(), cpu()];
  const pace = new Pacer(atMost);
  const connectSome = async () => {
    for (const device of waiting) {
      await pace.nextTurn();
      const { id, secret } = device;
      const link = await openLink({ port }, { username: id, password: secret, clientId: id, ...more });
      if (link.returnCode !== 0) throw new Error(`refused with ${link.returnCode}`);
      links.set(device, link);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, connectSome));
  return { links, seconds: (performance.now() - from) / 1000, cpu: cpu() - cpuBefore };
}

/** Subscribes with QoS 1; resolves with SUBACK. */
export function subscribe(link: Link, topic: string): Promise<void> {
  return new Promise((resolve) => {
    link.socket.once('data', () => resolve());
    link.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] } as Packet);
  });
}
