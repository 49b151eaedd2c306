/** A device in Node.js (mqtt.js): publishes readings and answers commands. */
import { readFileSync } from 'node:fs';
import process from 'node:process';
import mqtt from 'mqtt';

const {
  SLIPWAY_HOST = 'localhost',
  SLIPWAY_PORT = '1883',
  SLIPWAY_ACCOUNT,
  SLIPWAY_DEVICE,
  SLIPWAY_SECRET,
  SLIPWAY_CA,
} = process.env;
const root = `slipway/v1/${SLIPWAY_ACCOUNT}/d/${SLIPWAY_DEVICE}`;

const client = mqtt.connect({
  protocol: SLIPWAY_CA ? 'mqtts' : 'mqtt',
  host: SLIPWAY_HOST,
  port: Number(SLIPWAY_PORT),
  username: SLIPWAY_DEVICE,
  password: SLIPWAY_SECRET,
  ...(SLIPWAY_CA && { ca: readFileSync(SLIPWAY_CA) }),
});

function reply(id, status, result) {
  client.publish(`${root}/_commands/replies`, JSON.stringify({ id, status, result }), { qos: 1 });
}

client.on('connect', () => client.subscribe(`${root}/_commands`, { qos: 1 }));
client.on('message', (_topic, message) => {
  const { id, name, payload } = JSON.parse(message.toString());
  reply(id, 'accepted');
  if (name === 'echo') reply(id, 'succeeded', payload);
  else reply(id, 'failed', 'unknown command');
});
client.on('error', (error) => process.stderr.write(`${error.message}\n`));

function publish() {
  // CSV: time (empty: now), category, number, text.
  client.publish(`${root}/readings`, `,temperature,${(20 + Math.random()).toFixed(2)},`, { qos: 1 });
}
publish();
setInterval(publish, 10_000);
