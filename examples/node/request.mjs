/** Request and response with MQTT 5 (mqtt.js): `request.mjs answer` is the device, `request.mjs ask` asks it. */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import mqtt from 'mqtt';

const {
  SLIPWAY_HOST = 'localhost',
  SLIPWAY_PORT = '1883',
  SLIPWAY_ACCOUNT,
  SLIPWAY_DEVICE,
  SLIPWAY_SECRET,
  SLIPWAY_TOKEN,
  SLIPWAY_CA,
} = process.env;
const root = `slipway/v1/${SLIPWAY_ACCOUNT}/d/${SLIPWAY_DEVICE}`;
const asks = process.argv[2] === 'ask';

const client = mqtt.connect({
  protocol: SLIPWAY_CA ? 'mqtts' : 'mqtt',
  protocolVersion: 5,
  host: SLIPWAY_HOST,
  port: Number(SLIPWAY_PORT),
  ...(SLIPWAY_CA && { ca: readFileSync(SLIPWAY_CA) }),
  ...(asks
    ? { username: 'Auth:JWT', password: SLIPWAY_TOKEN }
    : {
        ...{ username: SLIPWAY_DEVICE, password: SLIPWAY_SECRET },
        // Requests wait for an hour while the device is away.
        ...{ clientId: `${SLIPWAY_DEVICE}-requests`, clean: false, properties: { sessionExpiryInterval: 3600 } },
      }),
});
client.on('error', (error) => process.stderr.write(`${error.message}\n`));

function answer() {
  client.on('message', (_topic, _payload, { properties: request = {} }) => {
    if (request.responseTopic === undefined) return;
    const { correlationData } = request;
    const properties = { contentType: 'application/json', ...(correlationData && { correlationData }) };
    const value = JSON.stringify({ temperature: Number((20 + Math.random()).toFixed(2)) });
    client.publish(request.responseTopic, value, { qos: 1, properties });
  });
  client.on('connect', async () => {
    await client.subscribeAsync(`${root}/requests`, { qos: 1 });
    process.stdout.write('ready\n');
  });
}

async function ask() {
  const correlationData = Buffer.from(randomUUID());
  client.on('message', (_topic, payload, { properties: response = {} }) => {
    // The response to another request.
    if (!response.correlationData?.equals(correlationData)) return;
    process.stdout.write(`${payload}\n`);
    client.end();
  });
  await client.subscribeAsync(`${root}/responses`, { qos: 1 });
  await client.publishAsync(`${root}/requests`, '{"read":"temperature"}', {
    qos: 1,
    properties: {
      contentType: 'application/json',
      responseTopic: `${root}/responses`,
      correlationData,
      messageExpiryInterval: 60,
    },
  });
}

if (asks) await ask();
else answer();
