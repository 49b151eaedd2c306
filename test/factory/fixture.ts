/** Stands in for what a fixture has: `nvs_partition_gen.py`, `esptool.py`, and a unit that boots when it has been flashed. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import mqtt from 'mqtt';
import { nvsText, readNvs } from './nvs.js';

/** How long a unit is on, in milliseconds. */
const onFor = 20_000;

async function boot(partition: string): Promise<void> {
  const nvs = readNvs(partition);
  const text = (place: string) => nvsText(nvs, place) ?? '';
  const client = await mqtt.connectAsync(text('slipway/broker_uri'), {
    username: text('slipway/username'),
    password: text('slipway/password'),
    ca: text('slipway/ca_cert'),
    ...(nvs.has('slipway/client_cert') && { cert: text('slipway/client_cert'), key: text('slipway/client_key') }),
    rejectUnauthorized: true,
    reconnectPeriod: 0,
  });
  client.on('close', () => process.exit());
  await client.publishAsync(text('slipway_topics/readings'), ',temperature,21.5,', { qos: 1 });
  setTimeout(() => client.end(true), onFor);
}

const [tool, ...args] = process.argv.slice(2);
const [, input = '', output = '', size] = args;
if (tool === 'nvs_partition_gen.py') {
  if (args[0] !== 'generate' || size !== '0x6000') throw new Error(`generate input output size, not ${args}`);
  const csv = readFileSync(input, 'utf8');
  readNvs(csv);
  writeFileSync(output, csv);
} else if (tool === 'esptool.py') {
  const [command, offset, file = ''] = args.slice(args.indexOf('write_flash'));
  if (command !== 'write_flash' || offset !== '0x9000') throw new Error(`write_flash 0x9000 file, not ${args}`);
  const unit = [fileURLToPath(import.meta.url), 'boot', readFileSync(file, 'utf8')];
  spawn(process.execPath, unit, { detached: true, stdio: 'ignore' }).unref();
} else if (tool === 'boot') await boot(args[0] ?? '');
