/** The thread that makes secrets and codes, hashes them and seals them as results: the event loop of the service does not. */
import { parentPort, workerData } from 'node:worker_threads';
import { Sealing } from '../../identity/secrets/sealing.js';
import { makeSecret, Secrets } from '../../identity/secrets/secrets.js';
import { hashOfCode, makeCode } from '../../registry/credentials/association-codes.js';
import { ResultSeal } from '../results/store.js';
import type { Answered, Asked, Bare, Equipped, Wanted } from './equipping.js';

const { keys } = workerData as { keys: string };
const services = { sealing: Sealing.open(keys), secrets: new Secrets() };

let underWay = Promise.resolve();

parentPort?.on('message', (asked: Asked) => {
  // It ends when nothing is left to do.
  if ('close' in asked) void underWay.then(() => parentPort?.close());
  else underWay = Promise.all([underWay, answer(asked)]).then(() => {});
});

async function answer({ id, job, units }: Wanted): Promise<void> {
  try {
    const seal = ResultSeal.of(services, job);
    if (!seal) throw new Error('The job has no key for its results.');
    const equip = async ({ row, serialNumber, deviceTemplateId }: Bare): Promise<Equipped> => {
      const [secret, code] = [makeSecret(), makeCode()];
      const secretHash = await services.secrets.hash(secret);
      const codeHash = hashOfCode(services.sealing, job.accountId, code);
      const sealedResult = seal.seal(row, { serialNumber, deviceTemplateId, secret, code });
      return { secretHash, codeHash, sealedResult };
    };
    say({ id, equipped: await Promise.all(units.map(equip)) });
  } catch (error) {
    say({ id, failure: (error as Error).message });
  }
}

function say(answered: Answered): void {
  parentPort?.postMessage(answered);
}
