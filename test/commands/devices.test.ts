/** `slipway device send`: what is sent arrives with its properties, and what cannot be sent is said. */
import { runCommand } from '../support/command.ts';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import type { Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let device: Made<'device'>;
t.before(async () => {
  service = await sharedService(t);
  const { id: deviceTemplateId } = await service.template({
    channels: ['readings', { name: 'requests', persistenceType: 'simple' }],
  });
  ({ device } = await service.device({ deviceTemplateId, serialNumber: 'SEND-1' }));
  await service.device({ deviceTemplateId, serialNumber: 'SEND-10' });
});

const send = (...args: string[]) =>
  runCommand(['device', 'send', ...args], {
    SLIPWAY_URL: service.server.url,
    SLIPWAY_TOKEN: service.admin,
  });

t.test('a message has the properties that flags name', async (t) => {
  const requests = service.topic(device.id, 'requests');
  const events = await openStream(t, service, requests);
  const properties = ['--content-type', 'text/plain', '--response-topic', service.topic(device.id, 'readings')];
  const pairs = ['--user-property', 'unit=°C', '--user-property', 'unit=a=b', '--user-property', '=empty name'];
  const rest = ['--correlation-data', 'AP8H', '--message-expiry', '100'];
  const sent = await send(device.id, 'requests', 'read', ...properties, ...pairs, ...rest);
  t.strictSame(sent, { code: 0, stdout: `${requests}\n`, stderr: '' });
  t.match((await events.next()).data, {
    topic: requests,
    payload: 'read',
    properties: {
      contentType: 'text/plain',
      responseTopic: service.topic(device.id, 'readings'),
      correlationData: 'AP8H',
      userProperties: [
        ['unit', '°C'],
        ['unit', 'a=b'],
        ['', 'empty name'],
      ],
      messageExpiry: 100,
    },
  });
  t.match(await send(device.id, 'requests', 'plain'), { code: 0 });
  t.notOk('properties' in (await events.next()).data);
});

t.test('a device is found by its whole serial number', async (t) => {
  const topic = service.topic(device.id, 'readings');
  const { code, stdout } = await send('SEND-1', 'readings', ',temperature,21.5,', '--json');
  t.equal(code, 0);
  t.strictSame(JSON.parse(stdout), { topic, success: true });
  const { result } = await service.ok('GET', `/api/v4/data/${topic}/latest`);
  t.match(result, [{ category: 'temperature', numericValue: 21.5 }]);
});

t.test('--retain keeps the message for later subscribers, and --qos bounds its deliveries', async (t) => {
  t.match(await send('SEND-1', 'requests', 'kept', '--retain', '--qos', '0'), { code: 0 });
  const client = await service.connect({ jwt: service.admin });
  const heard = new Promise((resolve) => {
    client.on('message', (topic, payload, { qos, retain }) => resolve([topic, payload.toString(), qos, retain]));
  });
  await client.subscribeAsync(service.topic(device.id, 'requests'), { qos: 1 });
  t.strictSame(await heard, [service.topic(device.id, 'requests'), 'kept', 0, true]);
  await client.endAsync();
});

t.test('a payload that is delivered and not stored ends with 1, and the reason', async (t) => {
  const { code, stdout, stderr } = await send('SEND-1', 'readings', 'no form at all');
  t.equal(code, 1);
  t.equal(stdout, `${service.topic(device.id, 'readings')}\n`);
  t.match(stderr, /delivered but not stored/);
});

t.test('what cannot be sent is said', async (t) => {
  const other = service.topic(device.id, 'elsewhere').replace(service.accountId, device.id);
  for (const [args, code, sentence] of [
    [['SEND-2', 'readings', 'x'], 2, /There is no device with the serial number SEND-2\./],
    [['SEND-1', 'nothing', 'x'], 2, /has no channel nothing\. Its channels are: .*readings/],
    [['SEND-1', 'readings'], 2, /Missing required argument 'TEXT'/],
    [['SEND-1', 'requests', 'x', '--user-property', 'unit'], 2, /--user-property unit must be NAME=VALUE/],
    [['SEND-1', 'requests', 'x', '--message-expiry', 'soon'], 2, /messageExpiry/],
    [['SEND-1', 'requests', 'x', '--correlation-data', '?'], 2, /correlationData/],
    [['SEND-1', 'requests', 'x', '--response-topic', other], 4, /may not subscribe to the response topic/],
    [['SEND-1', 'requests', 'x', '--qos', '3'], 2, /--qos/],
  ] as const) {
    const ended = await send(...args);
    t.equal(ended.code, code, args.join(' '));
    t.match(ended.stderr, sentence);
    t.equal(ended.stdout, '');
  }
});

t.end();
