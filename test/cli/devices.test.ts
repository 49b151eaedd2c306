/** Commands for people who look after devices: list, show, new, send, tail, simulate. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { runCommand } from '../support/command.ts';
import { endingWithUs } from '../support/ending.ts';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import { cliFile, inherited, plainNode } from '../support/process.ts';
import type { Made, Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

let service: Service;
let device: Made<'device'>;
let secret: string;
t.before(async () => {
  service = await sharedService(t);
  const { id: deviceTemplateId } = await service.template({
    channels: ['readings', { name: 'requests', persistenceType: 'simple' }],
  });
  ({ device, secret } = await service.device({ deviceTemplateId, serialNumber: 'SEND-1' }));
  await service.device({ deviceTemplateId, serialNumber: 'SEND-10' });
});

const environment = () => ({ SLIPWAY_URL: service.server.url, SLIPWAY_TOKEN: service.admin });
const slipway = (...args: string[]) => runCommand(args, environment());
const send = (...args: string[]) => slipway('device', 'send', ...args);

/** A command that has no end of its own. `next` is its next line. */
function begin(...args: string[]) {
  const [command, ...rest] = endingWithUs(['env', ...plainNode, cliFile, ...args]);
  const child = spawn(command, rest, { env: { ...inherited, ...environment() }, stdio: 'pipe' });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = once(child, 'close');
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  return {
    next: async () => (await lines.next()).value as string,
    /** Waits until it has said so on standard error. */
    async until(sentence: RegExp) {
      while (!sentence.test(said)) await once(child.stderr, 'data');
    },
    async stop() {
      child.kill('SIGINT');
      return (await ended)[0] as number;
    },
  };
}

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
      // One less with each second that has passed.
      messageExpiry: /^(9\d|100)$/,
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

t.test('list is a table for people and JSON for programs, with filters', async (t) => {
  const all = await slipway('device', 'list');
  t.equal(all.code, 0);
  const [heading, ...rows] = all.stdout.trimEnd().split('\n');
  t.match(heading, /^SERIAL NUMBER +PRODUCT +STATE +ONLINE +LAST CONNECTED +FIRMWARE +ID$/);
  t.ok(rows.some((row) => row.startsWith('SEND-1 ') && row.endsWith(device.id)));
  const { stdout } = await slipway('device', 'list', '--where', 'serialNumber=SEND-10', '--json');
  t.match(JSON.parse(stdout), [{ serialNumber: 'SEND-10', id: String }]);
  const few = await slipway('device', 'list', '--limit', '1');
  t.match(few.stderr, /^1 of \d+ devices\. --limit shows more\.$/m);
  const unknown = await slipway('device', 'list', '--where', 'location=Berlin', '--where', 'räum=1');
  t.match(unknown, { code: 2, stdout: '', stderr: /^GET \/devices has no filter or parameter location, räum\.$/m });
  t.match(await slipway('device', 'list', '--where', 'nonsense'), {
    code: 2,
    stderr: /--where nonsense must be NAME=VALUE/,
  });
  const nothing = await slipway('device', 'list', '--product', 'none');
  t.match(nothing, { code: 2, stderr: /--template none/ });
  t.match(nothing.stderr, /(?<!template )template “none” does not refer to an existing entity\./);
});

t.test('show has the latest values, and text of a device does not move the cursor', async (t) => {
  const client = await service.connect({ deviceId: device.id, secret });
  await client.publishAsync(service.topic(device.id, 'readings'), ',mode,,\u001b[2Jopen', { qos: 1 });
  await client.endAsync();
  const { code, stdout } = await slipway('device', 'show', 'SEND-1');
  t.equal(code, 0);
  t.match(stdout, /^Serial number: +SEND-1$/m);
  t.match(stdout, /^readings +mode +\ufffd\[2Jopen +/m);
  t.notOk(stdout.includes('\u001b'));
  t.match(JSON.parse((await slipway('device', 'show', device.id, '--json')).stdout), { id: device.id });
});

t.test('new makes a device that can connect, and says when the serial number is taken', async (t) => {
  const { deviceTemplate } = await service.ok('GET', `/api/v1/devices/templates/${device.deviceTemplateId}`);
  const product = ['--product', deviceTemplate.name];
  const { code, stdout, stderr } = await slipway('device', 'new', 'NEW-1', ...product, '--json');
  t.equal(code, 0, stderr);
  const made = JSON.parse(stdout);
  const client = await service.connect({ deviceId: made.device.id, secret: made.secret });
  await client.publishAsync(made.channels.requests, 'hello', { qos: 1 });
  await client.endAsync();
  t.match(await slipway('device', 'new', 'NEW-1', ...product), {
    code: 2,
    stderr: /has the serial number NEW-1 already/,
  });
  t.match((await slipway('device', 'new', 'NEW-2', ...product)).stdout, /^Secret: +\S+$/m);
});

t.test('tail prints messages of a device, and of the account, as they come', async (t) => {
  const topic = service.topic(device.id, 'requests');
  const one = begin('device', 'tail', 'SEND-1', '--channel', 'requests', '--json');
  const all = begin('tail');
  for (const { until } of [one, all]) await until(/Listening to/);
  t.match(await send('SEND-1', 'requests', 'first'), { code: 0 });
  t.match(JSON.parse(await one.next()), { topic, payload: 'first' });
  t.match(await all.next(), new RegExp(` {2}SEND-1 {2}${device.id}/requests {2}first$`));
  t.match(await send('SEND-1', 'requests', 'a,1\nb,2\r\n'), { code: 0 });
  for (const line of ['a,1', 'b,2'])
    t.match(await all.next(), new RegExp(` {2}SEND-1 {2}${device.id}/requests {2}${line}$`), 'each line is one');
  for (const { stop } of [one, all]) t.equal(await stop(), 130);
  const counted = begin('tail', '--count', '1', '--json');
  await counted.until(/Listening to/);
  await send('SEND-1', 'requests', 'second');
  t.match(JSON.parse(await counted.next()), { payload: 'second' });
});

t.test('fleets are made, listed and named, by their name or their id', async (t) => {
  const made = await slipway('fleet', 'new', 'Tens', '--filter', 'serialNumber eq "SEND-10"');
  t.match(made, { code: 0, stdout: /^Id: +[\da-f-]{36}\nDevices: +1\n$/ });
  const id = /[\da-f-]{36}/.exec(made.stdout)?.[0] ?? '';
  t.match(await slipway('fleet', 'new', 'Wrong', '--filter', 'serialNumber'), { code: 2, stderr: /At character 13/ });
  t.match(await slipway('fleet', 'list'), {
    code: 0,
    stdout: new RegExp(`\nTens +1 +serialNumber eq "SEND-10" +${id}\n`),
  });
  for (const fleet of ['Tens', id])
    t.match(JSON.parse((await slipway('device', 'list', '--fleet', fleet, '--json')).stdout), [
      { serialNumber: 'SEND-10' },
    ]);
  t.match(await slipway('device', 'list', '--fleet', 'None'), { code: 2, stderr: /There is no fleet None/ });
  const rollOut = (...target: string[]) => slipway('firmware', 'roll-out', '--package', id, ...target);
  t.match(await rollOut('--fleet', 'None'), { code: 2, stderr: /There is no fleet None/ });
  t.match(await rollOut('--fleet', 'Tens', '--device', device.id), { code: 2, stderr: /One of --where/ });
  t.match(await rollOut('--fleet', 'Tens'), { code: 2, stderr: /firmwarePackageId/ });
});

t.test('simulate makes a fleet that publishes, and finds it again', async (t) => {
  const first = await slipway('simulate', '3', '--every', '1', '--for', '3', '--json');
  t.equal(first.code, 0, first.stderr);
  const { devices, messages } = JSON.parse(first.stdout);
  t.equal(devices, 3);
  t.ok(messages >= 3, first.stdout);
  const listed = async () =>
    JSON.parse((await slipway('device', 'list', '--where', 'serialNumber=SIM-', '--json')).stdout);
  const made = await listed();
  t.match(made, [{ serialNumber: 'SIM-0001' }, { serialNumber: 'SIM-0002' }, { serialNumber: 'SIM-0003' }]);
  t.match(await slipway('simulate', '2', '--every', '1', '--for', '2'), {
    code: 0,
    stdout: /^2 devices have published/,
  });
  t.strictSame(
    (await listed()).map(({ id }: Made<'device'>) => id),
    made.map(({ id }: Made<'device'>) => id),
  );
  const topic = service.topic(made[0].id, 'readings');
  const { result } = await service.ok('GET', `/api/v4/data/${topic}/latest`);
  const categories = new Set(result.map(({ category }) => category));
  t.strictSame([...categories].sort(), ['battery', 'door', 'humidity', 'temperature']);
  t.match(await slipway('simulate', '0'), { code: 2, stderr: /COUNT must be a whole number from 1 to 1000/ });
});

t.end();
