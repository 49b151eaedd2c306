/** Hostile input in short; `npm run test:fuzz` goes on as long as one likes, with any seed. */

import t from 'tap';
import { fuzz } from '../fuzz/fuzz.ts';
import { temporaryDirectory } from '../support/directory.ts';

t.test('whatever is sent over HTTP and MQTT is answered as documented, and ends nothing', async (t) => {
  const lines: string[] = [];
  const say = (line: string) => void lines.push(line);
  const { inputs, findings } = await fuzz({ directory: temporaryDirectory(t), seed: 8, rounds: 24, seconds: 60, say });
  t.same(findings, []);
  t.equal(inputs, 7 * 24, lines.join('\n'));
});
