/** The thread that makes secrets and codes and hashes them: the event loop of the service does not. */
import { workerData } from 'node:worker_threads';
import { answerQuestions } from '../../../db/threads/answering.ts';
import { Sealing } from '../../identity/secrets/sealing.ts';
import { hashSecret, makeSecret } from '../../identity/secrets/secrets.ts';
import { hashOfCode, makeCode } from '../../registry/credentials/association-codes.ts';
import type { Equipment, Unequipped } from './equipping.ts';

/** All threads of the process hash in the same few: others wait for these. */
const hashesAtOnce = 25;

const sealing = Sealing.open((workerData as { keys: string }).keys);

answerQuestions<Unequipped, Equipment[]>({
  answer: async ({ accountId, count }) => {
    const equip = async (): Promise<Equipment> => {
      const [secret, code] = [makeSecret(), makeCode()];
      return { secret, code, secretHash: await hashSecret(secret), codeHash: hashOfCode(sealing, accountId, code) };
    };
    const equipment: Equipment[] = [];
    while (equipment.length < count) {
      const some = Math.min(hashesAtOnce, count - equipment.length);
      equipment.push(...(await Promise.all(Array.from({ length: some }, equip))));
    }
    return equipment;
  },
});
