/** A unit that boots when it has been flashed; its partition is the text that the generator is given. */
import mqtt from 'mqtt';
import { nvsText, readNvs } from './nvs.ts';

/** How long a unit is on, in milliseconds: the test ends it before, so this only ends one that was forgotten. */
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
  // The time a real device stays on: the factory's log has it.
  setTimeout(() => client.end(true), onFor);
}

await boot(process.argv[2] ?? '');
