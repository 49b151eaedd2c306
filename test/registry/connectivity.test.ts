import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { nextMessage, type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('the connectivity of a device names the broker, its topics and lines that hold no secret', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
  const topic = service.topic(device.id, 'readings');
  t.match(connectivity, { host: '127.0.0.1', port: service.direct.server.mqttPort, tls: false, username: device.id });
  t.match(
    connectivity.topics.find(({ channel }: { channel: string }) => channel === 'readings'),
    { topic, devicePublishes: true, service: false },
  );
  for (const line of Object.values<string>(connectivity.lines)) {
    t.ok(line.includes(topic) && line.includes('YOUR_SECRET'), line);
    t.notOk(line.includes(secret));
  }
});

t.test('the curl line publishes as it is', async (t) => {
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(service.topic(device.id, 'readings'));
  const heard = nextMessage(listener);
  await promisify(execFile)('sh', ['-c', connectivity.lines.curl.replaceAll('YOUR_SECRET', secret)]);
  t.equal((await heard).text, ',temperature,21.5,');
});

t.test('the name of a channel is text in the lines, whatever it is', async (t) => {
  const channel = `a 'b' "c" \\ $(exit 7) \`exit 8\` ; exit 9 ? é`;
  const { id: deviceTemplateId } = await service.template({ channels: [channel] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const { connectivity } = await service.ok('GET', `/api/v1/devices/${device.id}/connectivity`);
  const { mosquitto, node, curl } = connectivity.lines;
  const topic = service.topic(device.id, channel);
  const run = promisify(execFile);
  const { stdout } = await run('sh', ['-c', mosquitto.replace('mosquitto_pub', `printf '%s\\n'`)]);
  t.ok(stdout.split('\n').includes(topic), stdout);
  const [, literal = ''] = /publishAsync\(('.*'), ',temp/.exec(node) ?? [];
  t.equal(runInNewContext(literal), topic);
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync(topic);
  const heard = nextMessage(listener);
  await run('sh', ['-c', curl.replaceAll('YOUR_SECRET', secret)]);
  t.equal((await heard).text, ',temperature,21.5,');
});

t.test('devices are counted by state within the reach of the caller', async (t) => {
  const organization = await service.organization();
  const { token } = await service.endUser(organization.id);
  const { device, secret } = await service.device({ organizationId: organization.id });
  await service.create('/devices', 'device', { serialNumber: service.unique('SN'), organizationId: organization.id });
  await service.connect({ deviceId: device.id, secret });
  const path = `/api/v1/devices/counts?accountId=${service.accountId}`;
  const { counts } = await service.ok('GET', path, { token });
  t.equal(counts.total, 2);
  t.match(counts.states, [
    { provisioningState: 'defined', count: 1 },
    { provisioningState: 'activated', count: 1 },
  ]);
  const all = await service.ok('GET', path);
  t.ok(all.counts.total > counts.total);
});
