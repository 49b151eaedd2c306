import t from 'tap';
import { greeting } from '../src/process/greeting.js';
import { certificate } from './broker/certificate.js';
import { startService } from './support/service.js';

/** An account of its own is made, so that this is a first start. */
const first = { SLIPWAY_ACCOUNT_NAME: 'First' };

t.test('the first start says how a board on the network gets in, and its commands need no installation', async (t) => {
  const { server } = await startService(t, { env: first });
  const said = greeting(server);
  t.match(said, /start with SLIPWAY_HOST=0\.0\.0\.0/);
  t.match(said, new RegExp(`^npx --yes mqtt@5 pub -h 127\\.0\\.0\\.1 -p ${server.mqttPort} `, 'm'));
  t.match(said, new RegExp(`^mosquitto_pub -h 127\\.0\\.0\\.1 -p ${server.mqttPort} `, 'm'));
  const open = await startService(t, { env: { ...first, SLIPWAY_HOST: '0.0.0.0' } });
  t.match(greeting(open.server), new RegExp(`address of this machine, port ${open.server.mqttPort}`));
});

t.test('with TLS the commands use the port with TLS', async (t) => {
  const { server } = await startService(t, { env: { ...first, ...certificate(t) } });
  const { mqtts } = server.ctx.broker.addresses;
  const said = greeting(server);
  t.ok(mqtts);
  t.match(said, new RegExp(`^npx --yes mqtt@5 pub -C mqtts -h 127\\.0\\.0\\.1 -p ${mqtts} `, 'm'));
  t.match(said, new RegExp(`^mosquitto_pub --cafile .* -h 127\\.0\\.0\\.1 -p ${mqtts} `, 'm'));
});
