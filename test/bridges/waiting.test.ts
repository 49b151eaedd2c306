/** What waits for a webhook: what expires meanwhile, under which id a batch comes again, and how long a refusal counts. */
import type { Test } from 'tap';
import { part } from '../support/part.ts';
import { type Made, present, type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { type Receiver, startReceiver, textOf } from './receiver.ts';

const t = await part(import.meta);

let offset = 0;
const minute = 60_000;
const hour = 60 * minute;
let service: Service;
let templateId: string;
t.before(async () => {
  service = await startService(t, {
    env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' },
    clock: { now: () => Date.now() + offset },
  });
  const channels = [
    { name: 'effort', streamBridgeDelivery: 1 },
    { name: 'sure', streamBridgeDelivery: 2 },
  ];
  templateId = (await service.template({ channels })).id;
});

async function bridged(t: Test): Promise<{ receiver: Receiver; bridge: Omit<Made<'bridge'>, 'status'> }> {
  const receiver = await startReceiver(t);
  const about = { name: service.unique('Bridge'), kind: 'webhook', url: receiver.url };
  const bridge = await service.create('/bridges', 'bridge', about);
  t.teardown(async () => {
    await service.login();
    const { version } = (await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge;
    await service.ok('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: version } });
  });
  return { receiver, bridge };
}

/** A device of MQTT 5: publishes, with an expiry in seconds where there is one, and waits for the acknowledgement. */
async function speaker() {
  const { device, secret } = await service.device({ deviceTemplateId: templateId });
  const client = await service.connect({ deviceId: device.id, secret }, { protocolVersion: 5, keepalive: 0 });
  const say = (channel: string, text: string, messageExpiryInterval?: number) =>
    client.publishAsync(service.topic(device.id, channel), text, {
      qos: 1,
      ...(messageExpiryInterval !== undefined && { properties: { messageExpiryInterval } }),
    });
  return { id: device.id, say };
}

const statusOf = async ({ id }: { id: string }) => {
  await service.login();
  return (await service.ok('GET', `/api/v1/bridges/${id}`)).bridge.status;
};
const deadLettersOf = async ({ id }: { id: string }) =>
  (await service.ok('GET', `/api/v1/bridges/${id}/dead-letters?pageSize=100`)).deadLetters.results;
/** Takes all but these messages. */
const refusing =
  (what: RegExp): Receiver['behave'] =>
  ({ messages }) =>
    messages.some((message) => what.test(textOf(message))) ? 503 : 200;
const idsOf = ({ tries }: Receiver) => tries.map(({ headers }) => headers['webhook-id']);

for (const channel of ['effort', 'sure'])
  t.test(`what expires while it waits on a channel (${channel}) is not sent, and counted`, async (t) => {
    const { receiver, bridge } = await bridged(t);
    receiver.behave = () => 503;
    const [one, other] = [await speaker(), await speaker()];
    await one.say(channel, 'expires', 60);
    await one.say(channel, 'lasts', 7200);
    await other.say(channel, 'expires too', 60);
    await other.say(channel, 'stays');
    await receiver.tried(1);
    await until(async () => (await statusOf(bridge)).lastFailure !== null);
    t.match(await statusOf(bridge), { expired: 0 });
    // What is on its way now may have been sent before.
    receiver.behave = refusing(/^expires/);
    offset += 10 * minute;
    const texts = (await receiver.received(2)).map(textOf);
    await until(async () => {
      const { pending, waiting } = await statusOf(bridge);
      return pending + waiting === 0;
    });
    t.strictSame(texts.sort(), ['lasts', 'stays']);
    t.equal(receiver.messages.length, 2);
    t.match(await statusOf(bridge), { expired: 2, deadLetters: 0, dropped: 0 });
  });

t.test('a device that is held goes on behind what has expired', async (t) => {
  const { receiver, bridge } = await bridged(t);
  const { say } = await speaker();
  receiver.behave = () => 500;
  await say('sure', 'expires', 60);
  await until(async () => (await statusOf(bridge)).lastFailureReason === 'answered 500');
  receiver.behave = refusing(/^expires$/);
  await say('sure', 'next');
  offset += 10 * minute;
  t.strictSame((await receiver.received(1)).map(textOf), ['next']);
  t.match(await statusOf(bridge), { expired: 1, deadLetters: 0 });
});

t.test('a jump of the date ends no pause, and ends no message that waits', async (t) => {
  let [jump, passed] = [0, 0];
  const own = await startService(t, {
    env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' },
    clock: { now: () => Date.now() + jump, monotonic: () => passed },
  });
  const { id: deviceTemplateId } = await own.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const [failing, witness] = [await startReceiver(t), await startReceiver(t)];
  failing.behave = () => 500;
  const about = { name: 'Failing', kind: 'webhook', url: failing.url };
  const { id } = await own.create('/bridges', 'bridge', about);
  await own.create('/bridges', 'bridge', { ...about, name: 'Witness', url: witness.url });
  const { device, secret } = await own.device({ deviceTemplateId });
  const client = await own.connect({ deviceId: device.id, secret });
  const say = (text: string) => client.publishAsync(own.topic(device.id, 'sure'), text, { qos: 1 });
  const status = async () => (await own.ok('GET', `/api/v1/bridges/${id}`)).bridge.status;
  await say('first');
  await until(async () => (await status()).lastFailureReason === 'answered 500');
  const { length } = failing.tries;
  jump = 4 * 24 * hour;
  await own.login();
  await say('second');
  await witness.received(2);
  t.equal(failing.tries.length, length, 'no time has passed');
  failing.behave = () => 200;
  passed += 10 * minute;
  t.strictSame((await failing.received(2)).map(textOf), ['first', 'second']);
  t.match(await status(), { deadLetters: 0 });
});

t.test('a batch has one webhook-id for ever; with one message more it is another', async (t) => {
  const { receiver } = await bridged(t);
  const { say } = await speaker();
  receiver.behave = () => 503;
  await say('sure', 'a', 7200);
  await receiver.tried(1);
  offset += 10 * minute;
  await receiver.tried(2);
  const [first, again] = receiver.tries.map(({ messages }) => present(messages[0]));
  t.not(
    JSON.stringify(first?.properties),
    JSON.stringify(again?.properties),
    'what is left of its expiry is less by then',
  );
  await say('sure', 'b');
  receiver.behave = () => 200;
  offset += 10 * minute;
  await receiver.received(2);
  const ids = idsOf(receiver);
  const sizes = receiver.tries.map(({ messages }) => messages.length);
  const byContent = new Map(receiver.tries.map(({ messages }, at) => [messages.map(({ id }) => id).join(), ids[at]]));
  t.equal(new Set(byContent.values()).size, byContent.size, `of batches of ${sizes}`);
  for (const [at, { messages }] of receiver.tries.entries())
    t.equal(byContent.get(messages.map(({ id }) => id).join()), ids[at]);
});

for (const status of [401, 403, 404, 410, 431])
  t.test(`a webhook that answers ${status} has an hour to be put right`, async (t) => {
    const { receiver, bridge } = await bridged(t);
    const { say } = await speaker();
    receiver.behave = () => status;
    await say('sure', 'waits');
    await until(async () => (await statusOf(bridge)).lastFailureReason?.includes(`answered ${status}`));
    offset += 50 * minute;
    const { length } = receiver.tries;
    await receiver.tried(length + 1);
    t.match(await statusOf(bridge), { pending: 1, deadLetters: 0, paused: null });
    receiver.behave = () => 200;
    offset += 8 * minute;
    t.strictSame((await receiver.received(1)).map(textOf), ['waits']);

    receiver.behave = () => status;
    await say('sure', 'dies');
    await receiver.tried(receiver.tries.length + 1);
    await until(async () => (await statusOf(bridge)).pending === 1);
    offset += 61 * minute;
    await say('sure', 'is young');
    await until(async () => (await statusOf(bridge)).deadLetters === 1);
    t.strictSame((await deadLettersOf(bridge)).map(textOf), ['dies']);
    t.match(await deadLettersOf(bridge), [{ reason: new RegExp(`answered ${status}`) }]);
    t.match(await statusOf(bridge), { pending: 1 });
  });

t.test('one device that is refused waits alone for an hour, and what is as old goes with it', async (t) => {
  const { receiver, bridge } = await bridged(t);
  const [bad, good] = [await speaker(), await speaker()];
  receiver.behave = ({ messages }) => (messages.some(({ deviceId }) => deviceId === bad.id) ? 403 : 200);
  for (const text of ['1', '2', '3']) await bad.say('sure', text);
  for (let n = 1; n <= 30; n += 1) {
    await good.say('sure', 'passes');
    // It waits for its own pause at most: far less than the hour goes by, however often is looked.
    await until(() => {
      offset += 100;
      return receiver.messages.length >= n;
    });
    offset += minute;
  }
  // What has arrived is delivered when its answer is back.
  await until(async () => (await statusOf(bridge)).pending === 3);
  t.equal((await statusOf(bridge)).deadLetters, 0);
  await until(async () => {
    await good.say('sure', 'passes');
    offset += 6 * minute;
    return (await statusOf(bridge)).deadLetters === 3;
  });
  t.strictSame((await deadLettersOf(bridge)).map(textOf).reverse(), ['1', '2', '3'], 'in order');
  receiver.behave = () => 200;
  await bad.say('sure', '4');
  await until(() => {
    offset += minute;
    return receiver.messages.some((message) => textOf(message) === '4');
  });
});

t.test(
  'a webhook that is gone for a day is sent nothing more, until a test arrives or the bridge changes',
  async (t) => {
    const { receiver, bridge } = await bridged(t);
    const { say } = await speaker();
    receiver.behave = () => 410;
    await say('sure', 'first');
    await until(async () => (await statusOf(bridge)).lastFailureReason?.includes('answered 410'));
    offset += 23 * hour;
    await until(async () => (await statusOf(bridge)).deadLetters === 1);
    await say('sure', 'second');
    t.match(await statusOf(bridge), { paused: null, note: null });
    offset += 2 * hour;
    await until(async () => (await statusOf(bridge)).paused !== null);
    t.match(await statusOf(bridge), { note: /^Paused: the webhook has answered 410 for a day/ });
    await until(async () => (await statusOf(bridge)).pending === 0);
    const { length } = receiver.tries;
    const witness = await bridged(t);
    for (const text of ['third', 'fourth']) {
      offset += 10 * minute;
      await say('sure', text);
      await until(() => witness.receiver.messages.some((message) => textOf(message) === text));
    }
    t.match(await statusOf(bridge), { pending: 2, deadLetters: 2 });
    t.equal(receiver.tries.length, length, 'nothing is sent');
    const path = `/api/v1/bridges/${bridge.id}/test`;
    t.match(await service.ok('POST', path), { test: { delivered: false } });
    t.not((await statusOf(bridge)).paused, null);
    receiver.behave = () => 200;
    t.match(await service.ok('POST', path), { test: { delivered: true } });
    await receiver.received(3);
    t.strictSame(receiver.messages.filter(({ test }) => !test).map(textOf), ['third', 'fourth']);
    t.match(await statusOf(bridge), { paused: null, note: null });
  },
);

t.end();
