import { chmodSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { readConfig } from '../../src/core/config.ts';
import { startServer } from '../../src/process/server.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { cliFile, launch, runToEnd, startProcess } from '../support/process.ts';
import { startService } from '../support/service.ts';

const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);

/** What of a directory, the directory included, others than the owner may open. */
function open(directory: string): string[] {
  const inside = readdirSync(directory, { recursive: true, encoding: 'utf8' }).map((name) => join(directory, name));
  return [directory, ...inside].flatMap((path) => (statSync(path).mode & 0o077 ? [`${path} ${modeOf(path)}`] : []));
}

t.test('data, keys, backups and what is restored are for their owner alone, whatever the umask was', async (t) => {
  const before = process.umask(0o000);
  t.teardown(() => process.umask(before));
  const parent = temporaryDirectory(t);
  const data = join(parent, 'data');
  mkdirSync(data, { mode: 0o700 });
  // Every file is made by the process itself.
  const { child, listening } = launch(data, { SLIPWAY_LOG_LEVEL: 'info' });
  t.teardown(() => child.kill('SIGKILL'));
  const server = await listening;
  const file = join(parent, 'backup.zip');
  const environment = { SLIPWAY_DATA_DIR: data };
  t.match(await runToEnd(cliFile, ['backup', file], environment), { code: 0 });
  t.match(await runToEnd(cliFile, ['account', 'create', '--name', 'B', '--admin-email', 'b@b.example'], environment), {
    code: 0,
  });
  t.same(open(data), []);
  t.equal(modeOf(file), '600');
  t.equal(await server.stop('SIGTERM'), 0);
  t.same(open(data), []);
  const restored = join(parent, 'restored');
  t.match(await runToEnd(cliFile, ['restore', file], { SLIPWAY_DATA_DIR: restored }), { code: 0 });
  t.same(open(restored), []);
  t.match((await startProcess(t, restored)).output(), 'Slipway is listening');
});

t.test('data that others can open stops the start, with the sentence that closes it', async (t) => {
  const directory = temporaryDirectory(t);
  const environment = { SLIPWAY_DATA_DIR: directory, SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  await (await startService(t, { directory })).close();
  const config = readConfig(environment, directory);
  const [key = ''] = readdirSync(join(directory, 'keys'));
  for (const [path, mode, closed] of [
    [directory, 0o710, 0o700],
    [join(directory, 'registry.db'), 0o644, 0o600],
    [join(directory, 'messages.db'), 0o660, 0o600],
    [join(directory, 'keys'), 0o701, 0o700],
    [join(directory, 'keys', key), 0o604, 0o600],
  ] as const) {
    chmodSync(path, mode);
    const message = `SLIPWAY_DATA_DIR cannot be used: other users can open ${path} (mode ${mode.toString(8)}). Run: chmod -R go-rwx ${directory}`;
    await t.rejects(startServer(config, {}), { message });
    chmodSync(path, closed);
  }
  await (await startService(t, { directory })).close();
});
