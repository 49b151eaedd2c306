/** A thread with clients of one account, or of none, that harm others as far as limits let them, until the thread is ended. */
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import type { Attack, Means } from './attack-tools.ts';
import { bridgeAttacks } from './attacks-bridges.ts';
import { downlinkAttacks } from './attacks-downlink.ts';
import { httpAttacks } from './attacks-http.ts';
import { mqttAttacks } from './attacks-mqtt.ts';
import { storedAttacks } from './attacks-stored.ts';
import { workAttacks } from './attacks-work.ts';

export const attacks: Readonly<Record<string, Attack>> = {
  ...httpAttacks,
  ...mqttAttacks,
  ...downlinkAttacks,
  ...workAttacks,
  ...bridgeAttacks,
  ...storedAttacks,
};

/** Begins an attack. @returns when it is under way; `stop` ends its thread and with it its connections. */
export async function attack(name: string, means: Means): Promise<{ stop(): Promise<unknown> }> {
  const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { name, means } });
  await new Promise<void>((resolve, reject) => {
    worker.once('message', () => resolve());
    worker.once('error', reject);
  });
  worker.on('error', (error) => console.error(name, error));
  return { stop: () => worker.terminate() };
}

if (!isMainThread && parentPort && 'name' in workerData) {
  const { name, means } = workerData as { name: string; means: Means };
  await attacks[name]?.run(means, () => parentPort?.postMessage('begun'));
}
