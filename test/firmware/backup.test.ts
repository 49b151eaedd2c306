/** Firmware files are part of a backup, and doctor looks at them. */
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import yazl from 'yazl';
import { finishSnapshot, snapshotBeforeMigration } from '../../db/files/snapshots.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { unzipped } from '../support/unzipped.ts';
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

t.test('a backup that lacks a part of what it is of is not restored', async (t) => {
  const service = await startService(t);
  const bytes = randomBytes(100);
  await publish(service, (await service.template()).id, '1', { 'app.bin': bytes });
  const directory = temporaryDirectory(t);
  const [whole, less] = [join(directory, 'whole.zip'), join(directory, 'less.zip')];
  t.equal((await runCommand(['backup', whole, '--data-dir', service.directory], {})).code, 0);
  const files = await unzipped(readFileSync(whole));
  const restore = (file: string, target: string) => runCommand(['restore', file, '--data-dir', target], {});
  for (const name of ['registry.db', 'messages.db', 'keys/sealing.key', `firmware/${sha256(bytes)}`]) {
    t.ok(files.has(name), name);
    // As one that was made without it: its manifest does not name it either.
    const manifest = JSON.parse(files.get('manifest.json')?.toString() ?? '');
    manifest.files = manifest.files.filter((file: { name: string }) => file.name !== name);
    const rest = new Map([...files].filter(([one]) => one !== name));
    writeFileSync(less, await zipOf(rest.set('manifest.json', Buffer.from(JSON.stringify(manifest)))));
    const target = join(directory, 'target');
    const { code, stderr } = await restore(less, target);
    t.equal(code, 2, name);
    const said = name === 'registry.db' ? 'manifest.json is not one of a backup' : `${name} is missing`;
    t.match(stderr, new RegExp(`This is not a backup .*: ${said}.*Nothing has been changed`), name);
    for (const made of ['registry.db', 'messages.db', 'keys', 'firmware'])
      t.notOk(existsSync(join(target, made)), made);
  }
  t.equal((await restore(whole, join(directory, 'target'))).code, 0);
});

t.test('a rollback names the firmware files that its data names, and that are gone', async (t) => {
  const service = await startService(t);
  const { directory } = service;
  const kept = randomBytes(100);
  const gone = [randomBytes(100), randomBytes(100)];
  const template = await service.template();
  await publish(service, template.id, '1', { 'app.bin': kept });
  for (const [n, bytes] of gone.entries()) await publish(service, template.id, `${n + 2}`, { 'app.bin': bytes });
  await service.close();
  const rollback = () => runCommand(['rollback', '--data-dir', directory], {});
  const names = gone.map(sha256).sort();
  for (const missing of [[], names.slice(0, 1), names]) {
    // As an upgrade, and what the version after it has removed.
    await snapshotBeforeMigration(directory, Date.now());
    finishSnapshot(directory);
    for (const name of missing) rmSync(join(directory, 'firmware', name), { force: true });
    const { code, stdout, stderr } = await rollback();
    t.equal(code, 0, stderr);
    t.strictSame(JSON.parse(stdout).missingFirmware.sort(), missing);
    const files = { 0: undefined, 1: '1 file', 2: '2 files' }[missing.length];
    if (files) t.match(stderr, new RegExp(`Upload again .*: ${files}\\.\n`));
    else t.notMatch(stderr, /firmware/);
  }
  const backup = await runCommand(['backup', join(temporaryDirectory(t), 'all.zip'), '--data-dir', directory], {});
  t.match(backup, { code: 2, stderr: /is missing, and the registry names it/ });
});

function zipOf(files: ReadonlyMap<string, Buffer>): Promise<Buffer> {
  const zip = new yazl.ZipFile();
  for (const [name, bytes] of files) zip.addBuffer(bytes, name);
  zip.end();
  return buffer(zip.outputStream);
}

t.end();
