/** The thread that makes secrets and codes and hashes them: the event loop of the service does not. */
import { parentPort, workerData } from 'node:worker_threads';
import { Sealing } from '../../identity/secrets/sealing.ts';
import { hashSecret, makeSecret } from '../../identity/secrets/secrets.ts';
import { hashOfCode, makeCode } from '../../registry/credentials/association-codes.ts';
import type { Answered, Asked, Equipment, Wanted } from './equipping.ts';

const { keys } = workerData as { keys: string };
/** All threads of the process hash in the same few: others wait for these. */
const hashesAtOnce = 25;

const sealing = Sealing.open(keys);

let underWay = Promise.resolve();

parentPort?.on('message', (asked: Asked) => {
  // It ends when nothing is left to do.
  if ('close' in asked) void underWay.then(() => parentPort?.close());
  else underWay = Promise.all([underWay, equipUnits(asked)]).then(() => {});
});

async function equipUnits({ id, accountId, count }: Wanted): Promise<void> {
  try {
    const equip = async (): Promise<Equipment> => {
      const [secret, code] = [makeSecret(), makeCode()];
      return { secret, code, secretHash: await hashSecret(secret), codeHash: hashOfCode(sealing, accountId, code) };
    };
    const equipment: Equipment[] = [];
    while (equipment.length < count) {
      const some = Math.min(hashesAtOnce, count - equipment.length);
      equipment.push(...(await Promise.all(Array.from({ length: some }, equip))));
    }
    postAnswer({ id, equipment });
  } catch (error) {
    postAnswer({ id, failure: (error as Error).message });
  }
}

function postAnswer(answered: Answered): void {
  parentPort?.postMessage(answered);
}
