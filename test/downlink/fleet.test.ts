/** A mixed fleet, played by the simulator, with power losses, bad hashes and a server that is killed: every end is true. */
import t from 'tap';
import { proveFleet, provePause } from './long/fleet-proof.js';

t.test('60 devices update in stages while the server is killed twice', async (t) => {
  const stages = [{ percent: 5, pauseSeconds: 1 }, { percent: 30, pauseSeconds: 1 }, { percent: 100 }];
  const { counts } = await proveFleet(t, { devices: 60, absent: 0, stages, deviceDeadlineSeconds: 86_400 });
  t.match(counts, { succeeded: 58, failed: 2 });
});

t.test('a rollout pauses itself when too many devices fail', (t) => provePause(t, 24));
