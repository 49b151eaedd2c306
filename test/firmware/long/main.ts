/** `npm run test:firmware`: fleets update and get commands while the service is killed, one of them large. Some minutes. */
import t from 'tap';
import { present } from '../../support/service.ts';
import { proveCommands } from './command-proof.ts';
import { proveFleet, provePause } from './fleet-proof.ts';
import { proveLarge } from './large-proof.ts';
import { startGround } from './played.ts';

// It takes some minutes, more on a busy machine, and tap would end it after 30 seconds. This only ends one that hangs.
t.setTimeout(1_200_000);

t.test('2,000 devices update in stages of 1, 10 and 100 percent while the service is killed twice', async (t) => {
  const stages = [{ percent: 1, pauseSeconds: 3 }, { percent: 10, pauseSeconds: 5 }, { percent: 100 }];
  const ground = await startGround(t, [2000]);
  const plan = { absent: 20, stages, deviceDeadlineSeconds: 180 };
  const { counts } = await proveFleet(t, ground, present(ground.groups[0]), plan);
  t.comment(JSON.stringify(counts));
});

t.test('a rollout to 200 devices pauses itself at the failure limit', async (t) => {
  const ground = await startGround(t, [200]);
  await provePause(t, ground, present(ground.groups[0]));
});

t.test('1,000 offline devices get their commands after kill -9', async (t) => {
  const ground = await startGround(t, [1000]);
  await proveCommands(t, ground, present(ground.groups[0]));
});

t.test('50,000 devices in one rollout, 2,000 of which download at once', (t) =>
  proveLarge(t, { devices: 50_000, polling: 2000, listening: 200 }),
);
