import { readdirSync } from 'node:fs';
import { part } from '../support/part.ts';
import { startDemo } from './demo.ts';

const t = await part(import.meta);

t.test('npm run demo ends 0, its last lines say what was done, and it leaves nothing behind', async (t) => {
  const demo = startDemo(t);
  t.equal(await demo.ended, 0, demo.output());
  t.match(
    demo.output().trim().split('\n').slice(-13).join('\n'),
    /All 12 steps checked in [\d.]+ s:\n {2}- Start[\s\S]*SIGTERM: exit 0/,
  );
  t.same(readdirSync(demo.temporary), []);
});

t.end();
