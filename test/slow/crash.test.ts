/** `kill -9` under load, in short; `npm run test:crash` does it as often as one likes. */
import t from 'tap';
import { seed, seedAdmin } from '../../bench/seed.ts';
import { proveMqtt5 } from '../crash/mqtt5.ts';
import { proveCrashes } from '../crash/proof.ts';
import { dice } from '../support/dice.ts';
import { temporaryDirectory } from '../support/directory.ts';

t.test(
  'kill -9 under load loses nothing that was acknowledged, also when a copy of the bytes goes on elsewhere',
  async (t) => {
    const directory = temporaryDirectory(t);
    const lines: string[] = [];
    const say = (line: string) => void lines.push(line);
    const proof = await proveCrashes({ directory, rounds: 2, seed: 161, devices: 200, loadTime: 500, move: true, say });
    t.same(proof.losses, []);
    t.ok(proof.acknowledged > 0 && proof.kills > 1, lines.join('\n'));
  },
);

t.test('what MQTT 5 keeps is there after kill -9, and ends in its time', async (t) => {
  const directory = temporaryDirectory(t);
  const accountId = await seed(directory, 10, () => {});
  const proof = await proveMqtt5({
    ...{ directory, accountId, admin: seedAdmin, rounds: 1, loadTime: 500, dice: dice(161), say: () => {} },
  });
  t.same(proof.losses, []);
  t.ok(proof.acknowledged > 0);
});
