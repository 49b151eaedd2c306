/** `slipway firmware`: a package from files, a rollout that is watched, and exit codes by the outcome. */
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { sharedService } from '../support/shared.ts';
import { type Device, devices, rolloutUntil, sha256, update } from './fleet.ts';

const t = await part(import.meta);

t.test('publish, roll out and watch', async (t) => {
  const service = await sharedService(t);
  const template = await service.template();
  const [good, bad] = (await devices(service, template.id, 2, { firmwareVersion: '1.0' })) as [Device, Device];
  const bytes = randomBytes(5_000_000);
  const file = join(temporaryDirectory(t), 'app.bin');
  writeFileSync(file, bytes);
  const env = { SLIPWAY_URL: service.server.url, SLIPWAY_TOKEN: service.admin };
  const run = (...args: string[]) => runCommand(['firmware', ...args], env);
  const published = await run('publish', file, '--template', template.id, '--firmware-version', '2.0');
  t.equal(published.code, 0, published.stderr);
  const firmware = JSON.parse(published.stdout);
  t.match(firmware, { state: 'published', files: [{ name: 'app.bin', sha256: sha256(bytes), size: 5_000_000 }] });
  const where = ['--package', firmware.id, '--where', 'firmwareVersion=1.*'];
  const made = await run('roll-out', ...where, '--max-failures', '100', '--json');
  t.equal(made.code, 0, made.stderr);
  const { id } = JSON.parse(made.stdout);
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 2);
  const shown = await run('status', id);
  t.match(
    shown.stdout,
    new RegExp(`^Rollout: +${id}\nState: +running\nStage: +1 of 1\nDevices: +2\n {2}pending: +2\n$`),
  );
  const watching = run('status', '--rollout', id, '--watch', '--json');
  await update(service, good);
  await update(service, bad, 'failed');
  const watched = await watching;
  t.equal(watched.code, 1, 'a device has failed');
  t.match(JSON.parse(watched.stdout), { state: 'finished', counts: { succeeded: 1, failed: 1 } });
  t.equal((await run('roll-out', '--package', firmware.id)).code, 2);
  const table = (await run('status')).stdout.split('\n');
  t.match(table[0], /^CREATED +STATE +STAGE +DEVICES +SUCCEEDED +FAILED +ID$/);
  t.match(table[1], new RegExp(` finished +1 of 1 +2 +1 +1 +${id}$`));
  const listed = await run('status', '--json');
  t.match(listed, { code: 0, stderr: '' }, 'without flags it shows the newest rollouts');
  t.match(JSON.parse(listed.stdout), { id, state: 'finished', counts: { failed: 1 } });
  t.match(await run('status', '--watch'), { code: 2, stderr: /--watch needs --rollout/ });
  await devices(service, template.id, 1);
  const nowhere = await run('roll-out', '--package', firmware.id, '--where', 'firmwareVersion=7', '--watch', '--json');
  t.match(nowhere, {
    code: 1,
    stdout: /"devices":0/,
    stderr: /^No device matches the target\. 1 device has no firmware/,
  });
  const [newest] = (await run('status', '--json')).stdout.split('\n');
  const { id: cancelled } = JSON.parse(nowhere.stdout);
  t.match(JSON.parse(newest ?? ''), { id: cancelled, state: /^(cancelled|finished)$/ }, 'it does not stay');
  const plain = await run('roll-out', '--package', firmware.id, '--device', bad.id);
  t.equal(plain.code, 0, plain.stderr);
  const [last] = (await run('status', '--json')).stdout.split('\n');
  t.match(plain.stdout, new RegExp(`^Rollout: +${JSON.parse(last ?? '').id}\nState: `), 'as status prints it');
  const filter = `deviceTemplateId eq "${template.id}" and firmwareVersion eq "0.9"`;
  const fleet = await service.create('/fleets', 'fleet', { name: service.unique('Old'), filter });
  const living = await run('roll-out', '--package', firmware.id, '--fleet', fleet.name, '--continuous', '--json');
  t.match(living, { code: 0, stderr: /No device matches/ });
  const continuous = JSON.parse(living.stdout);
  t.match(continuous, { continuous: true, target: { fleetId: fleet.id } }, 'it stays, and waits for devices');
  await devices(service, template.id, 1, { firmwareVersion: '0.9' });
  await rolloutUntil(service, continuous.id, ({ counts }) => counts.pending === 1);
  await service.ok(
    'POST',
    `/api/v1/firmware/rollouts/${continuous.id}/cancel` as '/api/v1/firmware/rollouts/{id}/cancel',
  );
  t.match(await run('roll-out', ...where, '--continuous'), { code: 2, stderr: /--continuous is for --fleet/ });
  t.equal((await run('publish', '/no/such/file', '--template', 'x', '--firmware-version', '1')).code, 2);
});

t.test(
  'roll-out in stages with --watch ends with 0 when every device has succeeded; a signature goes with the file',
  async (t) => {
    const service = await sharedService(t);
    const template = await service.template();
    const fleet = await devices(service, template.id, 4, { firmwareVersion: '1.0' });
    const directory = temporaryDirectory(t);
    const [file, signature] = [join(directory, 'app.bin'), join(directory, 'app.sig')];
    writeFileSync(file, randomBytes(100));
    writeFileSync(signature, 'signed');
    const env = { SLIPWAY_URL: service.server.url, SLIPWAY_TOKEN: service.admin };
    const run = (...args: string[]) => runCommand(['firmware', ...args], env);
    const named = ['--template', template.id, '--firmware-version', '2.0', '--signature', signature];
    const published = await run('publish', file, ...named);
    t.equal(published.code, 0, published.stderr);
    const firmware = JSON.parse(published.stdout);
    t.equal(firmware.files[0].signature, Buffer.from('signed').toString('base64'));
    const stages = ['--where', 'firmwareVersion=1.*', '--stages', '25,100', '--pause', '0', '--watch', '--json'];
    const watched = run('roll-out', '--package', firmware.id, ...stages);
    const path = `/api/v1/firmware/rollouts?accountId=${service.accountId}`;
    const list = async () => (await service.ok('GET', path)).firmwareRollouts.results;
    let made = await list();
    while (made.length === 0) made = await list();
    await rolloutUntil(service, made[0].id, ({ counts }) => counts.pending === 4);
    for (const device of fleet) await update(service, device);
    const { code, stdout, stderr } = await watched;
    t.equal(code, 0, stderr);
    t.match(JSON.parse(stdout), {
      state: 'finished',
      stages: [{ percent: 25 }, { percent: 100 }],
      counts: { succeeded: 4 },
    });
  },
);

t.end();
