/** Firmware files are part of a backup, and doctor looks at them. */
import { randomBytes } from 'node:crypto';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { publish, sha256 } from './fleet.ts';

const t = await part(import.meta);

t.test('a backup holds the files of packages, a restore restores them, doctor tells what is damaged', async (t) => {
  const service = await startService(t);
  const template = await service.template();
  const bytes = randomBytes(5000);
  await publish(service, template.id, '1', { 'app.bin': bytes });
  const metrics = (await service.http('GET', '/metrics', { token: null })).text;
  t.match(metrics, /^slipway_firmware_downloads 0$/m);
  const directory = temporaryDirectory(t);
  const file = join(directory, 'backup.zip');
  const restored = join(directory, 'restored');
  const made = await runCommand(['backup', file, '--data-dir', service.directory], {});
  t.equal(made.code, 0, made.stderr);
  const names = JSON.parse(made.stdout).files.map(({ name }: { name: string }) => name);
  t.ok(names.includes(`firmware/${sha256(bytes)}`));
  const back = await runCommand(['restore', file, '--data-dir', restored], {});
  t.equal(back.code, 0, back.stderr);
  const content = join(restored, 'firmware', sha256(bytes));
  t.ok(existsSync(content));
  const doctor = async () => {
    const env = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0', SLIPWAY_DISK_RESERVE_BYTES: '0' };
    const { stdout } = await runCommand(['doctor', '--json', '--data-dir', restored], env);
    return JSON.parse(stdout).findings.find(({ check }: { check: string }) => check === 'firmware');
  };
  t.match(await doctor(), { level: 'ok', message: /1 firmware files/ });
  writeFileSync(content, 'x');
  t.match(await doctor(), { level: 'error' });
  rmSync(content);
  t.match(await doctor(), { level: 'error', message: /missing or damaged/ });
});

t.end();
