/** `npm run test:firmware`: fleets update and get commands while the service is killed, one of them large. Some minutes. */
import t from 'tap';
import { proveCommands } from './command-proof.js';
import { proveFleet, provePause } from './fleet-proof.js';
import { proveLarge } from './large-proof.js';

// It takes some minutes, more on a busy machine, and tap would end it after 30 seconds. This only ends one that hangs.
t.setTimeout(1_200_000);

t.test('2,000 devices update in stages of 1, 10 and 100 percent while the service is killed twice', async (t) => {
  const stages = [{ percent: 1, pauseSeconds: 3 }, { percent: 10, pauseSeconds: 5 }, { percent: 100 }];
  const { counts } = await proveFleet(t, { devices: 2000, absent: 20, stages, deviceDeadlineSeconds: 180 });
  t.comment(JSON.stringify(counts));
});

t.test('a rollout to 200 devices pauses itself at the failure limit', (t) => provePause(t, 200));

t.test('1,000 offline devices get their commands after kill -9', (t) => proveCommands(t, 1000));

t.test('50,000 devices in one rollout, 2,000 of which download at once', (t) =>
  proveLarge(t, { devices: 50_000, polling: 2000, listening: 200 }),
);
