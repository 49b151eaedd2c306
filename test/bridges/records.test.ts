/** How messages are written into a log, byte for byte, and which names they get there. */
import { toRecord } from '../../src/bridges/records.ts';
import { type BridgedMessage, nameMessage } from '../../src/bridges/target.ts';
import { topicOf } from '../../src/bridges/targets/kafka.ts';
import { subjectOf } from '../../src/bridges/targets/nats.ts';
import { propertyBytes } from '../../src/core/formats/message-properties.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const message: BridgedMessage = {
  id: '01a2040c-5206-7000-8000-00000abc0001',
  topic: 'slipway/v1/acc/d/dev/ch',
  accountId: 'acc',
  deviceId: 'dev',
  organizationId: 'org',
  deviceTemplateId: 'tpl',
  channel: 'ch',
  qos: 1,
  // 1 January 2020, 00:00:00.000 UTC
  time: 1_577_836_800_000,
  payload: Buffer.from('hi\0!'),
  size: 4,
};

/** Written by hand from the description of the form: each line is one part. */
function expectedEnvelope(uuid: Buffer): Buffer {
  const source =
    '{"SchemaVersion":1,"EntityType":"device","OrganizationIds":["org"],"TemplateId":"tpl","AccountId":"acc"}';
  const target = '{"SchemaVersion":1,"EntityType":"topic","TopicOwner":{"EntityType":"device","AccountId":"acc"}}';
  return Buffer.concat([
    Buffer.from('01', 'hex'),
    uuid,
    Buffer.from('0300', 'hex'),
    Buffer.from('dev'),
    // 104 bytes
    Buffer.from('6800', 'hex'),
    Buffer.from(source),
    // 23 bytes
    Buffer.from('1700', 'hex'),
    Buffer.from('slipway/v1/acc/d/dev/ch'),
    // 95 bytes
    Buffer.from('5f00', 'hex'),
    Buffer.from(target),
    Buffer.from('04000000', 'hex'),
    Buffer.from('68690021', 'hex'),
  ]);
}

t.test('the envelope has every part where consumers of the original platform look for it', async (t) => {
  const { value, headers } = toRecord('envelope', message);
  t.strictSame(value.toString('hex'), expectedEnvelope(value.subarray(1, 17)).toString('hex'));
  t.strictSame(headers, {});
});

t.test('properties of MQTT 5 are headers of a log, and have no line breaks there', async (t) => {
  const stored = propertyBytes({
    contentType: 'text/plain\r\nx: 1',
    correlationData: Buffer.from([0, 255]),
    userProperties: [
      ['a', '1'],
      ['a', 'ü'],
    ],
  });
  const { topic, accountId, size, ...row } = message;
  const about = { ...row, properties: stored, expires: message.time + 5000 };
  const named = nameMessage('slipway/v1', accountId, about, message.time + 1500);
  t.equal(named.topic, topic);
  t.equal(named.size, size + stored.length, 'they count where a bridge has room for so many bytes');
  const expected = {
    'slipway-content-type': 'text/plain  x: 1',
    'slipway-correlation-data': 'AP8=',
    'slipway-user-properties': '[["a","1"],["a","ü"]]',
    'slipway-message-expiry': '4',
  };
  t.strictSame(toRecord('json', named).headers, expected);
  t.match(toRecord('raw', named).headers, { ...expected, 'slipway-id': message.id });
  t.strictSame(toRecord('raw', message).headers['slipway-content-type'], undefined);
});

t.test('its UUID is of version 1, in network byte order, with the time of acceptance', async (t) => {
  const uuid = toRecord('envelope', message).value.subarray(1, 17);
  // 1,577,836,800 s after 1970, in intervals of 100 ns after 15 October 1582.
  const ticks =
    (BigInt(uuid.readUInt16BE(6) & 0x0fff) << 48n) |
    (BigInt(uuid.readUInt16BE(4)) << 32n) |
    BigInt(uuid.readUInt32BE(0));
  const begin = 137_971_296_000_000_000n;
  t.ok(ticks >= begin && ticks < begin + 10_000n, 'within the millisecond');
  t.equal((uuid[6] ?? 0) >> 4, 1, 'version');
  t.equal((uuid[8] ?? 0) >> 6, 2, 'variant');
  const again = toRecord('envelope', message).value.subarray(1, 17);
  t.strictSame(again, uuid, 'every try sends the same');
  const other = toRecord('envelope', { ...message, id: '01a2040c-5206-7000-8000-00000abc0002' }).value.subarray(1, 17);
  t.notOk(other.equals(uuid), 'another message has another');
});

t.test('outside every organization the list of organizations is empty', async (t) => {
  const { value } = toRecord('envelope', { ...message, organizationId: null });
  t.match(value.toString('latin1'), '"OrganizationIds":[]');
});

t.test('raw is the payload alone, and the headers have the rest', async (t) => {
  const { value, headers } = toRecord('raw', message);
  t.strictSame(value, Buffer.from('hi\0!'));
  t.strictSame(headers, {
    'slipway-id': message.id,
    'slipway-topic': message.topic,
    'slipway-account': 'acc',
    'slipway-device': 'dev',
    'slipway-organization': 'org',
    'slipway-template': 'tpl',
    'slipway-channel': 'ch',
    'slipway-qos': '1',
    'slipway-time': '2020-01-01T00:00:00.000Z',
  });
});

t.test('json is what webhooks get, and says when it is a test', async (t) => {
  const { value } = toRecord('json', { ...message, test: true });
  t.match(JSON.parse(value.toString()), {
    id: message.id,
    payloadBase64: 'aGkAIQ==',
    time: '2020-01-01T00:00:00.000Z',
    test: true,
  });
});

t.test('account, device and channel are one token each of a subject of NATS', async (t) => {
  t.equal(
    subjectOf('slipway', { ...message, channel: 'a.b *>%\u00a0ü' }),
    'slipway.acc.d.dev.a%2Eb%20%2A%3E%25%C2%A0ü',
  );
});

t.test('a topic of Kafka has only the characters that Kafka permits', async (t) => {
  t.equal(topicOf('slipway.{account}.{channel}', { ...message, channel: 'a b/ü' }), 'slipway.acc.a-b--');
  t.equal(topicOf('all', message), 'all');
  t.equal(topicOf('{device}{nothing}', message), 'dev-nothing-');
});

t.end();
