import { Encoder } from 'cbor-x';
import mqtt, { type IClientOptions, type MqttClient } from 'mqtt';
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { closed, type Made, nextMessage, present, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { patience } from '../support/until.ts';
import { ask, claim, connectOnce, derived, newGroup } from './devices.ts';

const t = await part(import.meta);

let service: Service;
t.before(async () => {
  service = await sharedService(t, { SLIPWAY_MQTT_FAILED_CONNECTS_PER_ADDRESS: '0' });
});

const codec = new Encoder({ useRecords: false, mapsAsObjects: true });
const root = () => `${service.topicRoot}/enroll`;
const levels = [
  { protocolVersion: 3, protocolId: 'MQIsdp' },
  { protocolVersion: 4 },
  { protocolVersion: 5 },
] as const satisfies IClientOptions[];

/** A connection of a device that enrolls; it ends with the test. */
async function enter(t: Test, username: string, password: string, options: IClientOptions = {}): Promise<MqttClient> {
  const how = { username, password, reconnectPeriod: 0, connectTimeout: patience * 1000, ...options };
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${service.server.mqttPort}`, how, false);
  t.teardown(() => client.endAsync(true));
  return client;
}

const enterGroup = (t: Test, { id, claimSecret = '' }: Made<'enrollmentGroup'>, options: IClientOptions = {}) =>
  enter(t, `enroll/${id}`, claimSecret, options);

/** Asks on a connection, and gives the answer. */
async function exchange(client: MqttClient, request: object | Buffer, qos: 0 | 1 | 2 = 1, filter = `${root()}/+`) {
  await client.subscribeAsync(filter, { qos: 1 });
  const answer = nextMessage(client);
  client.publish(root(), Buffer.isBuffer(request) ? request : JSON.stringify(request), { qos });
  return answer;
}

t.test('a device enrolls over MQTT of every level, and its connection ends when it has the answer', async (t) => {
  const group = await newGroup(service);
  for (const [n, level] of levels.entries())
    for (const qos of [0, 1, 2] as const) {
      const client = await enterGroup(t, group, level);
      const ended = closed(client);
      const serialNumber = `V${level.protocolVersion}-${qos}`;
      const { topic, text } = await exchange(client, { serialNumber }, qos);
      t.equal(topic, `${root()}/accepted`);
      const answer = JSON.parse(text);
      service.secrets.add(answer.credential.secret);
      t.match(answer, {
        device: { serialNumber, accountId: service.accountId },
        broker: { topicRoot: service.topicRoot },
      });
      await ended;
      await connectOnce(service, answer);
      t.ok(n >= 0);
    }
});

t.test('an answer is in the form of its request: CBOR for CBOR', async (t) => {
  const group = await newGroup(service, { proof: 'derivedKey' });
  const serialNumber = 'AC:DE/1';
  const password = derived(present(group.groupKey), serialNumber);
  const client = await enter(t, `enroll/${group.id}/${serialNumber}`, password);
  const { topic, payload } = await exchange(client, Buffer.from(codec.encode({ firmwareVersion: '2' })));
  t.equal(topic, `${root()}/accepted`);
  const answer = codec.decode(payload);
  t.equal(answer.device.serialNumber, serialNumber);
  await connectOnce(service, answer);
});

t.test('blanks at the ends of the serial number in a username are no part of it', async (t) => {
  const group = await newGroup(service, { proof: 'derivedKey' });
  for (const [given, proven] of [
    ['M-END\u00a0', 'M-END'],
    [' M-END ', ' M-END '],
  ] as const) {
    const client = await enter(t, `enroll/${group.id}/${given}`, derived(present(group.groupKey), proven));
    const { topic, text } = await exchange(client, {});
    t.equal(topic, `${root()}/accepted`);
    const answer = JSON.parse(text);
    service.secrets.add(answer.credential.secret);
    t.equal(answer.device.serialNumber, 'M-END');
  }
});

t.test('a wrong proof is refused in CONNACK; any other refusal is told on its topic', async (t) => {
  const group = await newGroup(service, { serialNumberPattern: 'A-*' });
  for (const [username, password] of [
    [`enroll/${group.id}`, 'wrong'],
    [`enroll/${group.id}`, ''],
    ['enroll/00000000-0000-7000-8000-000000000000', present(group.claimSecret)],
    ['enroll/', 'nothing'],
  ] as const)
    for (const level of levels)
      await t.rejects(enter(t, username, password, level), { code: level.protocolVersion === 5 ? 0x86 : 4 });

  const refused = async (request: object | Buffer, more: object) => {
    const client = await enterGroup(t, group);
    const ended = closed(client);
    const { topic, text } = await exchange(client, request);
    t.equal(topic, `${root()}/rejected`);
    t.match(JSON.parse(text), { error: more });
    await ended;
  };
  await refused({ serialNumber: 'B-1' }, { code: 21, message: /pattern/ });
  await refused({}, { code: 106, details: [{ path: 'serialNumber' }] });
  await refused({ serialNumber: 7 }, { code: 106, details: [{ path: 'serialNumber' }] });
  await refused({ serialNumber: 'A-\u0000' }, { code: 106, details: [{ path: 'serialNumber' }] });
  await refused(Buffer.from('{"serialNumber"'), { code: 106, details: [{ path: 'body' }] });
  await refused(Buffer.from('[]'), { code: 106 });
});

t.test('junk is refused, whatever it is', async (t) => {
  const group = await newGroup(service);
  for (let seed = 1; seed <= 5; seed += 1) {
    const junk = Buffer.alloc(200);
    for (let at = 0, value = seed; at < junk.length; at += 1) {
      value = (value * 1_103_515_245 + 12_345) & 0x7fffffff;
      junk[at] = at === 0 ? 0xa0 | (value & 0x1f) : value >> 16;
    }
    const client = await enterGroup(t, group);
    const { topic, payload } = await exchange(client, junk);
    t.equal(topic, `${root()}/rejected`);
    t.equal(codec.decode(payload).error.code, 106);
  }
  const hooked = await enterGroup(t, await newGroup(service, { hookUrl: 'https://localhost/enroll' }));
  const { payload } = await exchange(hooked, codec.encode({ serialNumber: 'L-1', fields: { location: 2n ** 60n } }));
  t.match(codec.decode(payload), { error: { code: 21, message: /hook/ } }, 'a long integer is asked of the hook, too');
});

t.test('such a connection may do nothing else, and nobody hears of it', async (t) => {
  const group = await newGroup(service);
  const listener = await service.connect({ jwt: service.admin });
  await listener.subscribeAsync('#').catch(() => {});
  const heard: string[] = [];
  listener.on('message', (topic) => heard.push(topic));
  const client = await enterGroup(t, group, {
    protocolVersion: 5,
    will: { topic: service.topic('x', 'readings'), payload: Buffer.from('gone') },
  });
  const other = await enterGroup(t, group, { protocolVersion: 5 });
  const filters = [
    '#',
    `${root()}`,
    `${service.topicRoot}/+`,
    `${root()}/#`,
    `$share/g/${root()}/+`,
    service.topic('+', '+'),
  ];
  for (const filter of filters) await t.rejects(client.subscribeAsync(filter), filter);
  await t.rejects(client.publishAsync(root(), '{}', { qos: 1 }), 'without a subscription there would be no answer');
  await client.subscribeAsync(`${root()}/+`);
  for (const topic of [service.topic('x', 'readings'), `${root()}/accepted`])
    await t.rejects(client.publishAsync(topic, '{}', { qos: 1 }), topic);
  await other.subscribeAsync(`${root()}/+`);
  other.on('message', (topic) => heard.push(topic));
  const { text } = await exchange(client, { serialNumber: 'N-1' });
  t.equal(JSON.parse(text).device.serialNumber, 'N-1');
  await other.endAsync();
  await listener.endAsync();
  t.notMatch(heard.join(), /enroll/);

  const below = await enterGroup(t, group, { protocolVersion: 4 });
  const ended = closed(below);
  below.publish(service.topic('x', 'readings'), '1');
  await ended;
});

t.test('client ids are private to each connection, and no session is kept', async (t) => {
  const group = await newGroup(service);
  const same = { clientId: 'same', clean: false, protocolVersion: 4 } as const;
  const [one, two] = [await enterGroup(t, group, same), await enterGroup(t, group, same)];
  const first = exchange(one, { serialNumber: 'C-1' });
  const second = exchange(two, { serialNumber: 'C-2' });
  t.match(JSON.parse((await first).text), { device: { serialNumber: 'C-1' } });
  t.match(JSON.parse((await second).text), { device: { serialNumber: 'C-2' } });
  const again = await enterGroup(t, group, same);
  again.on('message', () => t.fail('nothing is kept'));
  const level5 = { clientId: '', clean: true, protocolVersion: 5, properties: { sessionExpiryInterval: 100 } } as const;
  const granted = await enterGroup(t, group, level5);
  t.ok(granted.connected);
});

t.test('over MQTT and HTTP at once a serial number is one device', async (t) => {
  const group = await newGroup(service, { proof: 'derivedKey' });
  const password = derived(present(group.groupKey), 'M-1');
  const client = await enter(t, `enroll/${group.id}/M-1`, password);
  const [message, answer] = await Promise.all([exchange(client, {}), ask(service, group, 'M-1')]);
  t.equal(JSON.parse(message.text).device.id, answer.body.device.id);
  t.equal(
    (await claim(service, await newGroup(service), { serialNumber: 'M-1' })).status,
    200,
    'in another group it is another',
  );
});

t.end();
