import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Story } from '../story.ts';

export const operations: Story = {
  tell: async ({ t, next, service, shell }) => {
    const sh = shell({
      env: {
        SLIPWAY_DATA_DIR: service.directory,
        SLIPWAY_HTTP_PORT: new URL(service.server.url).port,
        SLIPWAY_MQTT_PORT: `${service.server.mqttPort}`,
      },
      instead: { '/mnt/safe': '"$SAFE"', '/var/lib/slipway': '"$SAFE"', '/opt/slipway': process.cwd() },
    });
    const safe = join(sh.directory, 'safe');
    mkdirSync(safe);
    await sh.set({ SAFE: safe });
    t.equal(await sh.run(next()), '', 'modes');

    await sh.run(next());
    t.match(await sh.run('openssl verify -CAfile ca.crt cert.pem'), /OK/, 'a private CA');

    const [backup = '', restore = ''] = next().trim().split('\n');
    t.match(JSON.parse(await sh.run(backup)), { backup: String });
    const today = new Date().toISOString().slice(0, 10);
    await sh.run(`SLIPWAY_DATA_DIR="$SAFE/data" ${restore.replace('2026-11-22', today)}`);
    t.ok(existsSync(join(safe, 'data/registry.db')));

    // Cron runs what stands after the five fields, and takes \% as %.
    const lines = next()
      .trim()
      .split('\n')
      .map((line) => line.replace(/^(\S+ +){5}/, '').replaceAll('\\%', '%'));
    t.equal(lines.length, 3);
    const [nightly = '', old = '', doctor = ''] = lines;
    await sh.run('rm "$SAFE"/*.zip');
    t.equal(await sh.run(`(${nightly})\n${old}`), '');
    t.match(await sh.run('ls "$SAFE"'), /^data\nslipway-\d{4}-\d\d-\d\d\.zip\n$/);
    t.notMatch(await sh.run(`(${doctor}) || true`), /^(ok|error) /m, 'it prints warnings alone');

    const shown = JSON.parse(next());
    const [usage] = (await sh.run('slipway usage')).trim().split('\n');
    t.strictSame(Object.keys(JSON.parse(usage ?? '')), Object.keys(shown));
  },
};
