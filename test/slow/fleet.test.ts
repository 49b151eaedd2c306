/** A mixed fleet, played by the simulator, with power losses, bad hashes and a server that is killed: every end is true. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { metric } from '../broker/metrics.ts';
import { devices, publish, rollOut, rollout, rolloutUntil } from '../firmware/fleet.ts';
import { proveCommands } from '../firmware/long/command-proof.ts';
import { proveFleet, provePause } from '../firmware/long/fleet-proof.ts';
import { type Group, startGround } from '../firmware/long/played.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { runToEnd } from '../support/process.ts';
import { present, type Service, startService } from '../support/service.ts';

t.test('a server that is killed again and again', async (t) => {
  const ground = await startGround(t, [45, 24, 40]);
  const [fleet, failing, offline] = ground.groups.map(present) as [Group, Group, Group];

  await t.test('45 devices update in stages while the server is killed twice', async (t) => {
    const stages = [{ percent: 5, pauseSeconds: 1 }, { percent: 30, pauseSeconds: 1 }, { percent: 100 }];
    const { counts } = await proveFleet(t, ground, fleet, { absent: 0, stages, deviceDeadlineSeconds: 86_400 });
    t.match(counts, { succeeded: 43, failed: 2 });
  });

  await t.test('a rollout pauses itself when too many devices fail', (t) => provePause(t, ground, failing));

  await t.test('40 offline devices get their commands after kill -9, once or with another attempt, in order', (t) =>
    proveCommands(t, ground, offline),
  );
});

const simulator = join(process.cwd(), 'examples/device-simulator/simulator.mjs');
const size = 100_000;

/** Runs the simulator with a device of each of these ways, as a user does; what it prints, and what the service has of it. */
async function simulate(t: Test, service: Service, ways: string[], ...flags: string[]) {
  const template = await service.template();
  const made = await devices(service, template.id, ways.length);
  const file = join(temporaryDirectory(t), 'devices.ndjson');
  writeFileSync(file, made.map((device, n) => `${JSON.stringify({ ...device, way: ways[n] })}\n`).join(''));
  const firmware = await publish(service, template.id, '2', { 'app.bin': randomBytes(size) });
  const target = { filter: { deviceTemplateId: template.id } };
  const { id } = await rollOut(service, firmware, { target, maxFailurePercent: 100 });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === ways.length);
  const sent = async () => Number(await metric({ service }, 'slipway_firmware_sent_bytes_total'));
  const before = await sent();
  const where = ['--url', service.server.url, '--mqtt', `mqtt://127.0.0.1:${service.server.mqttPort}`];
  const all = [...where, '--account', service.accountId, '--devices', file, ...flags];
  const { code, stdout, stderr } = await runToEnd(simulator, all, {});
  const said: Array<{ id: string; state: string }> = stdout
    .split('\n')
    .flatMap((line) => (line ? [JSON.parse(line)] : []));
  const states = new Map(said.map((one) => [one.id, one.state]));
  const { counts } = await rollout(service, id);
  return { code, stderr, states: made.map((one) => states.get(one.id)), counts, sent: (await sent()) - before };
}

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test(
  'the simulator by its flags: --fail, --slow, --lose-power-at, --disconnect-at, each over each way',
  async (t) => {
    const ways = ['http', 'json', 'cbor'];
    const plain = await simulate(t, service, ways);
    t.match(plain, { code: 0, states: ['succeeded', 'succeeded', 'succeeded'], counts: { succeeded: 3 } });
    t.equal(plain.sent, 3 * size);
    const failing = await simulate(t, service, ways, '--fail');
    t.match(failing, { code: 0, states: ['failed', 'failed', 'failed'], counts: { failed: 3 } });
    t.match(await simulate(t, service, ['http', 'json'], '--slow'), { code: 0, counts: { succeeded: 2 } });
    const dark = await simulate(t, service, ways, '--lose-power-at', '40%');
    t.match(dark, { code: 0, states: ['succeeded', 'succeeded', 'succeeded'], counts: { succeeded: 3 } });
    t.ok(dark.sent >= 3 * 1.4 * size, 'each begins again from the first byte');
    const torn = await simulate(t, service, ['http', 'json'], '--disconnect-at', '40');
    t.match(torn, { code: 0, states: ['succeeded', 'succeeded'], counts: { succeeded: 2 } });
    const broken = await simulate(t, service, ['cbor'], '--disconnect-at', '40%');
    t.match(broken, { code: 0, counts: { succeeded: 1 } });
    t.equal(broken.sent, size, 'a disconnection costs no byte twice');
  },
);

t.test('the simulator refuses what it cannot play', async (t) => {
  t.match(await simulate(t, service, ['pigeon']), { code: 2, stderr: /must be http, json or cbor/ });
  t.match(await simulate(t, service, ['http'], '--lose-power-at', 'noon'), { code: 2, stderr: /percentage/ });
  t.not((await simulate(t, service, ['http'], '--lose-power')).code, 0, 'a flag that does not exist');
});
