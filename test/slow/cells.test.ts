/** The tests of the broker and of the registry once more, with HAProxy in front of every service that they start. */
import t from 'tap';
import { withHaproxy } from '../support/haproxy.ts';

const options = { ...withHaproxy, env: { ...process.env, TEST_CELLS: '1' } };

for (const wing of ['broker', 'registry'])
  t.spawn(process.execPath, [`test/wings/${wing}.test.ts`], options, `${wing} behind HAProxy`);
