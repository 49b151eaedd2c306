/** A machine that another one has replaced: it still runs, on the same bytes, and its lock was not seen. */
import mqtt from 'mqtt';
import { takeOver } from '../../db/files/lock.ts';
import { part } from '../support/part.ts';
import { startProcess } from '../support/process.ts';
import { type Anything, startService } from '../support/service.ts';

const t = await part(import.meta);

t.test('a process whose data directory was taken over acknowledges nothing more, and ends with 3', async (t) => {
  const service = await startService(t);
  const template = await service.template({ channels: ['series'] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const topic = service.topic(device.id, 'series');
  await service.close();
  const server = await startProcess(t, service.directory);
  const ended = new Promise((resolve) => server.child.once('exit', resolve));
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, {
    username: device.id,
    password: secret,
    reconnectPeriod: 0,
  });
  t.teardown(() => client.end(true));
  client.on('error', () => {});
  const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
  const headers = { authorization: `Bearer ${service.admin}`, 'content-type': 'application/json' };
  const rename = async (name: string, etag: string) => {
    const url = `${server.url}/api/v1/devices/templates/${template.id}`;
    const body = JSON.stringify({ name });
    return fetch(url, { method: 'PUT', headers: { ...headers, etag }, body });
  };
  await client.publishAsync(topic, ',n,1,', { qos: 1 });
  const renamed = (await (await rename('Before', template.version)).json()) as Anything;
  t.equal(renamed.deviceTemplate?.name, 'Before');

  takeOver(service.directory).close();
  let acknowledged = 0;
  const published = client.publishAsync(topic, ',n,2,', { qos: 1 }).then(
    () => {
      acknowledged += 1;
    },
    () => {},
  );
  const status = await rename('After', renamed.deviceTemplate.version).then(
    (answer) => answer.status,
    () => 0,
  );
  t.ok(status === 0 || status >= 500, `answered ${status}`);
  t.equal(await ended, 3);
  await Promise.race([published, closed]);
  t.equal(acknowledged, 0);

  const next = await startProcess(t, service.directory);
  const answer = await fetch(`${next.url}/api/v1/devices/templates/${template.id}`, { headers });
  t.match(await answer.json(), { deviceTemplate: { name: 'Before' } });
  await next.stop('SIGTERM');
});

t.end();
