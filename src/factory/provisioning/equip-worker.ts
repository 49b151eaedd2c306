/** The thread that makes secrets and codes and hashes them: the event loop of the service does not. */
import { parentPort, workerData } from 'node:worker_threads';
import { Sealing } from '../../identity/secrets/sealing.js';
import { makeSecret, Secrets } from '../../identity/secrets/secrets.js';
import { hashOfCode, makeCode } from '../../registry/credentials/association-codes.js';
import type { Answered, Asked, Equipment, Wanted } from './equipping.js';

const { keys } = workerData as { keys: string };
const sealing = Sealing.open(keys);
const secrets = new Secrets();

let underWay = Promise.resolve();

parentPort?.on('message', (asked: Asked) => {
  // It ends when nothing is left to do.
  if ('close' in asked) void underWay.then(() => parentPort?.close());
  else underWay = Promise.all([underWay, answer(asked)]).then(() => {});
});

async function answer({ id, accountId, count }: Wanted): Promise<void> {
  try {
    const equip = async (): Promise<Equipment> => {
      const [secret, code] = [makeSecret(), makeCode()];
      return { secret, code, secretHash: await secrets.hash(secret), codeHash: hashOfCode(sealing, accountId, code) };
    };
    say({ id, equipment: await Promise.all(Array.from({ length: count }, equip)) });
  } catch (error) {
    say({ id, failure: (error as Error).message });
  }
}

function say(answered: Answered): void {
  parentPort?.postMessage(answered);
}
