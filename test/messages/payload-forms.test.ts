/** What becomes of payloads that people send by mistake, and of those on channels whose form is fixed. */
import type { MqttClient } from 'mqtt';
import { part } from '../support/part.ts';
import { type Made, nextMessage, present, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';

const t = await part(import.meta);

const forms = ['auto', 'csv', 'json', 'senml', 'float32', 'none'] as const;
type Form = (typeof forms)[number];
let service: Service;
let client: MqttClient;
let deviceId: string;
let template: Made<'deviceTemplate'>;
t.before(async () => {
  service = await sharedService(t);
  template = await service.template({
    channels: forms.map((payload) => ({ name: payload, persistenceType: 'timeSeries', payload })),
  });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  deviceId = device.id;
  client = await service.connect({ deviceId, secret });
  await client.subscribeAsync(service.topic(deviceId, '_rejected'));
});

const latest = async (channel: Form) =>
  (await service.ok('GET', `/api/v4/data/${service.topic(deviceId, channel)}/latest?pageSize=1000`)).result;

/** Publishes; the points that it has stored, or why there are none. */
async function send(channel: Form, payload: string | Buffer): Promise<number | string> {
  const before = (await latest(channel)).length;
  const rejected = nextMessage(client);
  await client.publishAsync(service.topic(deviceId, channel), payload, { qos: 1 });
  const stored = (await latest(channel)).length - before;
  return stored > 0 || channel === 'none' ? stored : JSON.parse((await rejected).text).error.details[0].message;
}

t.test('objects of ts and values are not stored, and the accepted form is named', async (t) => {
  const values = { temperature: 21.5 };
  for (const payload of [{ ts: Date.now(), values }, { ts: 1, values: 2 }, [{ ts: Date.now(), values }]]) {
    const said = await send('auto', JSON.stringify(payload));
    t.match(said, /ts and values.*\{"temperature": 21\.5\}.*timestamp,category/);
  }
  t.equal(await send('auto', '{"ts":1,"value":2}'), 2, 'other names are categories, as before');
});

t.test('a time that makes sense only as seconds is not stored, and the milliseconds are named', async (t) => {
  const seconds = Math.floor(Date.now() / 1000) - 60;
  t.match(await send('auto', `${seconds},temperature,21.5,`), new RegExp(`January 1970.*${seconds}000`));
  t.match(await send('csv', `946684800,temperature,21.5,`), /946684800000/);
  t.equal(await send('auto', `${seconds}000,temperature,21.5,`), 1);
  t.equal(await send('auto', `1970-01-20T00:00:00Z,temperature,21.5,`), 1, 'a date is meant');
  t.equal(await send('auto', `900000000,temperature,21.5,`), 1, 'before 2000 as seconds');
  t.match(await send('auto', `${seconds + 7200},temperature,21.5,`), /January 1970/, 'of a clock that runs ahead');
  t.match(await send('auto', ',temperature,1,5'), /1,5 is not a number; write 1\.5/, 'a decimal comma');
  t.match(await send('senml', '[{"n":"a","v":1,"bver":11}]'), /record 1: the version \(bver\) is above 10/);
  t.match(await send('senml', '[{"n":"a","v":1},{"n":"b","v":1,"must_":1}]'), /record 2: the label must_ is unknown/);
  t.equal(await send('senml', '[{"n":"a","v":1,"bver":10,"other":1}]'), 1);
  t.equal(await send('auto', String(seconds)), 1, 'a value is no time');

  t.match(await send('csv', `${seconds}.25,temperature,21.5,`), /neither epoch milliseconds nor/, 'fractional seconds');
  const log = (sourceTimestamp: unknown) =>
    service.http('POST', `/api/v1/devices/${deviceId}/logs`, { body: { message: 'x', sourceTimestamp } });
  t.match(await log(seconds), { status: 400, body: { error: { details: [{ path: 'sourceTimestamp' }] } } });
  for (const fraction of [seconds + 0.25, `${seconds}.25`, seconds + 7200.5, String(seconds + 7200)])
    t.match(await log(fraction), { status: 400, body: { error: { details: [{ path: 'sourceTimestamp' }] } } });
  t.equal((await log(seconds * 1000)).status, 200);
  const [earliest, latestTime] = [Date.now() - 60_000, Date.now() + 60 * 60_000];
  for (const [n, told] of [seconds, seconds + 0.25, `${seconds}.25`, seconds + 7200].entries()) {
    const message = `told-${n}`;
    const payload = JSON.stringify({ message, sourceTimestamp: told });
    await client.publishAsync(service.topic(deviceId, '_log'), payload, { qos: 1 });
    const { results } = (await service.ok('GET', `/api/v1/devices/${deviceId}/logs?text=${message}`)).logs;
    const entry = present(results.find((one) => one.message === message));
    t.match(entry, { custom: { sourceTimestamp: told } }, 'kept next to the time of arrival');
    const time = Date.parse(entry.sourceTimestamp);
    t.ok(time > earliest && time < latestTime, `${told}: ${entry.sourceTimestamp}`);
  }
});

t.test('an integer that a number cannot hold is rounded, with its digits as text', async (t) => {
  const [rounded, digits] = [9007199254740992, '9007199254740993'];
  for (const [channel, payload] of [
    ['json', `{"digits":${digits}}`],
    ['auto', `{"digits": -0.5, "more": 12345678901234567890}`],
    ['auto', digits],
    ['senml', `[{"n":"digits","v":${digits}},{"n":"more","v":12345678901234567890}]`],
    ['senml', `{"e":[{"n":"digits","v":${digits}}]}`],
    ['csv', `,digits,${digits},\n,more,+12345678901234567890,`],
  ] as const) {
    t.not(typeof (await send(channel, payload)), 'string', payload);
    for (const one of (await latest(channel)).slice(0, 2)) {
      if (one.numericValue === rounded) t.equal(one.stringValue, digits, payload);
      else if (one.category === 'more')
        t.strictSame(
          [one.numericValue, one.stringValue],
          [Number('12345678901234567890'), '12345678901234567890'],
          payload,
        );
    }
    const all = (await latest(channel)).map(({ stringValue }) => stringValue);
    t.ok(all.includes(digits) || all.includes('12345678901234567890'), payload);
  }
  for (const whole of [
    '9007199254740992',
    '1152921504606846976',
    '1e21',
    '21.12345678901234567',
    '-9007199254740991',
  ]) {
    await send('json', `{"whole":${whole}}`);
    const point = (await latest('json')).find(({ category }) => category === 'whole');
    t.match(point, { numericValue: Number(whole), stringValue: null }, whole);
  }
  await send('csv', `,digits,${digits},own text`);
  t.ok(
    (await latest('csv')).some(({ stringValue }) => stringValue === 'own text'),
    'a text of its own stays',
  );
});

t.test('of a name that an object of JSON has twice, the last value is stored', async (t) => {
  for (const [category, payload] of [
    ['twice', '{"twice":1,"twice":2}'],
    ['escaped', '{"escaped":1,"\\u0065scaped":2}'],
    ['rounded', '{"rounded":12345678901234567891,"rounded":2}'],
  ] as const) {
    t.equal(await send('json', payload), 1, payload);
    const point = (await latest('json')).find((one) => one.category === category);
    t.match(point, { numericValue: 2, stringValue: null }, payload);
  }
});

t.test('four characters that are meant as text are not a float; other four bytes are', async (t) => {
  for (const payload of ['true', 'null', '21,5', '1,25', '-1,5', ' 1,5'])
    t.match(await send('auto', payload), /decimal point, such as 21\.5/, payload);
  for (const payload of ['abcd', 'a,bc', Buffer.from([0, 0, 0xac, 0x41])]) t.equal(await send('auto', payload), 1);
  t.equal((await latest('auto'))[0]?.numericValue, 21.5);
  t.equal(await send('auto', '21.5'), 1, 'text');
  t.equal(await send('auto', '123\0'), 1, 'text of a program in C');
  t.equal((await latest('auto'))[0]?.numericValue, 123);
});

const payloads: Record<Exclude<Form, 'auto' | 'none'>, string | Buffer> = {
  csv: ',temperature,21.5,',
  json: '{"temperature":21.5}',
  senml: '[{"n":"temperature","v":21.5}]',
  float32: Buffer.from([0, 0, 0xac, 0x41]),
};

t.test('a channel template may fix the form of payloads, over MQTT and over HTTP', async (t) => {
  const write = (channel: Form, payload: string | Buffer) =>
    fetch(`${service.server.url}/api/v4/data/${service.topic(deviceId, channel)}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.admin}`, 'content-type': 'application/octet-stream' },
      body: payload,
    });
  for (const [form, payload] of Object.entries(payloads) as Array<[keyof typeof payloads, string | Buffer]>) {
    t.equal(await send(form, payload), 1, form);
    t.equal((await write(form, payload)).status, 200);
    for (const [other, wrong] of Object.entries(payloads)) {
      if (other === form) continue;
      t.match(await send(form, wrong), new RegExp(`This channel takes ${form}`, 'i'), `${other} on ${form}`);
      const answer = await write(form, wrong);
      t.equal(answer.status, 400);
      t.match(await answer.text(), /This channel takes/);
    }
  }
  t.equal(await send('float32', 'true'), 1, 'where a float is meant, any four bytes are one');
});

t.test('none: payloads are delivered and never read or stored, without a rejection', async (t) => {
  const topic = service.topic(deviceId, 'none');
  const jwt = await service.connect({ jwt: service.admin });
  await jwt.subscribeAsync([topic, service.topic(deviceId, '_rejected')]);
  const refusals = async () => (await service.ok('GET', `/api/v1/devices/${deviceId}/refusals`)).refusals.meta.count;
  const before = await refusals();
  for (const payload of [',temperature,21.5,', 'anything at all', '{"ts":1,"values":{}}']) {
    const heard = nextMessage(jwt);
    t.equal(await send('none', payload), 0);
    t.match(await heard, { topic, text: payload });
  }
  t.equal(await refusals(), before);
  const { meta } = await service.ok('GET', `/api/v4/data/${topic}`);
  t.match(meta.message, /stores no new data.*none/);
  t.match(await service.http('POST', `/api/v4/data/${topic}`, { body: { x: 1 } }), { status: 400 });
});

t.test('the form is shown, and PUT changes it for the next message', async (t) => {
  const shown = (await service.ok('GET', `/api/v1/devices/templates/${template.id}`)).deviceTemplate.channelTemplates;
  const { id } = present(shown.find(({ name }) => name === 'csv'));
  t.same(
    shown.flatMap(({ name, payload }) => (name.startsWith('_') ? [] : [[name, payload]])),
    [...forms].sort().map((form) => [form, form]),
  );
  const plain = await service.channel(template.id, { name: 'plain' });
  t.equal(plain.payload, 'auto', 'by default');
  const { channelTemplate } = await service.ok('GET', `/api/v1/channels/templates/${id}`);
  const put = (etag: string, payload: string) =>
    service.http('PUT', `/api/v1/channels/templates/${id}`, { body: { payload }, headers: { etag } });
  t.match(await put(channelTemplate.version, 'xml'), { status: 400, body: { error: { code: 106 } } });
  t.match(await send('csv', '{"x":1}'), /takes CSV/);
  t.match(await put(channelTemplate.version, 'json'), { status: 200, body: { channelTemplate: { payload: 'json' } } });
  t.equal(await send('csv', '{"x":1}'), 1);
});

t.test('a topic that is no channel: the accepted form is on _rejected, in the refusals and in the log', async (t) => {
  const logLines: string[] = [];
  const own = await startService(t, { logLines });
  const { device, secret } = await own.device();
  const board = await own.connect({ deviceId: device.id, secret });
  await board.subscribeAsync(own.topic(device.id, '_rejected'));
  const form = own.topic(device.id, '<channel>');
  const rejected = nextMessage(board);
  await board.publishAsync('test/topic', '1', { qos: 1 });
  const { error, topic } = JSON.parse((await rejected).text);
  t.equal(topic, 'test/topic');
  t.same(error.details, [{ path: 'topic', message: `is not a channel topic in reach; use ${form}` }]);
  const { refusals } = await own.ok('GET', `/api/v1/devices/${device.id}/refusals`);
  t.match(refusals.results[0].reason, form);
  const line = logLines.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'PUBLISH refused');
  t.equal(line.level, 30, 'info');
  t.match(line.reason, form);
  const http = await own.http('POST', '/api/v1/messaging/publish/test/topic', { body: {} });
  t.match(http.body.error.details, [{ path: 'topic', message: /\/d\/<device id>\/<channel>$/ }]);
});

t.end();
