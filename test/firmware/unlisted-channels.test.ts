/** The channels for firmware and commands: the device and callers of the whole account hear them, end-users do not. */
import { randomBytes } from 'node:crypto';
import type { MqttClient } from 'mqtt';
import { serviceChannel, serviceChannelNames, serviceChannels } from '../../src/core/topics.ts';
import { openStream } from '../support/events.ts';
import { part } from '../support/part.ts';
import { closed, nextMessage, type Service } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { type Device, devices, publish, rollOut, rolloutUntil } from './fleet.ts';

const t = await part(import.meta);

// Nobody but the device may name a private one: test/enrollment/renewals.test.ts.
const unlisted = serviceChannelNames.filter(
  (name) => !serviceChannels[name].listed && !serviceChannel(name)?.isPrivate,
);

let service: Service;
t.before(async () => {
  service = await sharedService(t);
});

/** A device in an organization, its end-user, and a channel that everybody in reach hears. */
async function scene() {
  const template = await service.template({ channels: [{ name: 'chat', persistenceType: 'simple' }] });
  const home = await service.organization();
  const [device] = (await devices(service, template.id, 1, { organizationId: home.id })) as [Device];
  const { endUser, token } = await service.endUser(home.id);
  return { template, device, endUser, token, topic: (channel: string) => service.topic(device.id, channel) };
}

/** Gives the device an update and a command, and lets it answer both; the answers are retained. */
async function work(templateId: string, device: Device) {
  const topic = (channel: string) => service.topic(device.id, channel);
  const firmware = await publish(service, templateId, '2.0', { 'app.bin': randomBytes(100) });
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const offered = nextMessage(client, (name, payload) => name === topic('_firmware') && /"url"/.test(`${payload}`));
  const commanded = nextMessage(client, (name) => name === topic('_commands'));
  await client.subscribeAsync([topic('_firmware'), topic('_commands')], { qos: 1 });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: [device.id] } });
  await rolloutUntil(service, id, ({ counts }) => counts.offered === 1);
  const { command } = await service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: 'reboot' } });
  await commanded;
  const say = (channel: string, body: object) =>
    client.publishAsync(topic(channel), JSON.stringify(body), { qos: 1, retain: true });
  await say('_commands/replies', { id: command.id, status: 'succeeded' });
  await say('_firmware/status', { state: 'downloaded' });
  return { client, offer: JSON.parse((await offered).text), commandId: command.id };
}

/** Channels of all messages that a client gets before the one that the device publishes on `chat`. */
async function heardUntil(listener: MqttClient, heard: string[], device: MqttClient, chat: string, text: string) {
  const last = nextMessage(listener, (_, payload) => payload.toString() === text);
  await device.publishAsync(chat, text, { qos: 1 });
  await last;
  return heard.map((name) => name.split('/').slice(5).join('/'));
}

t.test('an end-user gets 0x80 for each of them, by name and by every wildcard that means only them', async (t) => {
  const { token, topic } = await scene();
  const anyDevice = service.topic('+', '');
  const filters = [
    ...unlisted.map(topic),
    ...unlisted.map((name) => anyDevice + name),
    ...['_firmware/#', '_firmware/+', '+/replies', '_commands/#'].flatMap((end) => [topic(end), anyDevice + end]),
  ];
  const [user, admin] = [await service.connect({ jwt: token }), await service.connect({ jwt: service.admin })];
  const codes = (client: MqttClient, names: string[]) =>
    new Promise<number[]>((resolve) => {
      client.on('packetreceive', ({ cmd, ...packet }) => {
        if (cmd === 'suback') resolve((packet as { granted: number[] }).granted);
      });
      client.subscribe(names, { qos: 1 }, () => {});
    });
  t.same(
    await codes(user, filters),
    filters.map(() => 0x80),
  );
  t.same(
    await codes(admin, filters),
    filters.map(() => 1),
  );
  for (const filter of filters) {
    const url = `${service.server.url}/api/v1/stream?topics=${encodeURIComponent(filter)}`;
    const answer = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
    await answer.body?.cancel();
    t.equal(answer.status, 404, `a stream of ${filter}`);
  }
  const chat = [topic('chat'), `${anyDevice}chat`, `${anyDevice}+`, `${anyDevice}+/+`, `${anyDevice}chat/#`, '#'];
  t.same(
    await codes(user, chat),
    chat.map(() => 1),
    'the filters of what it may hear are granted',
  );
});

t.test('a wildcard of an end-user brings nothing of them: live, retained, queued or streamed', async (t) => {
  const { template, device, token, topic } = await scene();
  const heard = { live: [] as string[], queued: [] as string[], late: [] as string[], account: [] as string[] };
  const listen = async (jwt: string, names: string[], options = {}) => {
    const client = await service.connect({ jwt }, options);
    client.on('message', (name) => names.push(name));
    return client;
  };
  const stored = { clean: false, clientId: service.unique('listener').replace(' ', '') };
  const away = await listen(token, [], stored);
  await away.subscribeAsync('#', { qos: 1 });
  const gone = closed(away);
  away.end();
  await gone;
  const live = await listen(token, heard.live);
  await live.subscribeAsync(['#', service.topic('+', '#'), topic('#'), topic('+')], { qos: 1 });
  const account = await listen(service.admin, heard.account);
  await account.subscribeAsync(topic('#'), { qos: 1 });
  const stream = await openStream(t, service, `#,${topic('#')}`, { token });
  const { client } = await work(template.id, device);
  const said = await heardUntil(live, heard.live, client, topic('chat'), 'live');
  const only = (names: string[]) => names.filter((name) => unlisted.some((one) => one === name));
  t.same(only(said), []);
  const toAccount = only(await heardUntil(account, heard.account, client, topic('chat'), 'account'));
  t.same([...new Set(toAccount)].sort(), [...unlisted].sort(), 'an admin hears all of them');
  const streamed = await stream.until(({ data }) => data.payload === 'account');
  t.same(only(streamed.map(({ data }) => data.topic.split('/').slice(5).join('/'))), []);
  const late = await listen(token, heard.late);
  await late.subscribeAsync('#', { qos: 1 });
  t.same(only(await heardUntil(late, heard.late, client, topic('chat'), 'late')), [], 'the answers are retained');
  const back = await listen(token, heard.queued, stored);
  t.same(only(await heardUntil(back, heard.queued, client, topic('chat'), 'back')), [], 'some were queued');
  t.ok(
    heard.queued.some((name) => name === topic('chat')),
    'the queue of its stored session brings the others',
  );
  const replay = await openStream(t, service, `#,${topic('#')}`, { token, after: stream.lastId });
  await client.publishAsync(topic('chat'), 'replayed', { qos: 1 });
  const missed = await replay.until(({ data }) => data.payload === 'replayed');
  t.same(only(missed.map(({ data }) => `${data.topic}`.split('/').slice(5).join('/'))), []);
});

t.test('an end-user cannot download firmware: nothing that it hears or reads has the signed URL', async (t) => {
  const { template, device, token, topic } = await scene();
  const texts: string[] = [];
  const listener = await service.connect({ jwt: token });
  listener.on('message', (_, payload) => texts.push(payload.toString()));
  await listener.subscribeAsync('#', { qos: 1 });
  const { client, offer, commandId } = await work(template.id, device);
  await heardUntil(listener, [], client, topic('chat'), 'end');
  const read = async (path: string) => {
    const answer = await service.http('GET', `/api/v1${path}`, { token });
    texts.push(answer.text);
    return answer;
  };
  t.match(await read(`/devices/${device.id}/firmware`), { status: 200, body: { firmware: { state: 'downloaded' } } });
  const command = await read(`/devices/${device.id}/commands/${commandId}`);
  t.match(command, { status: 200, body: { command: { state: 'succeeded' } } }, 'it reads states and commands');
  t.equal((await read(`/devices/${device.id}/logs`)).status, 200);
  t.equal((await read('/firmware/offer')).status, 403);
  const [{ url, sha256 }] = offer.files;
  t.notOk(texts.some((text) => text.includes(sha256) || text.includes('signature=')));
  const bare = url.split('?')[0];
  const asUser = await fetch(bare, { headers: { authorization: `Bearer ${token}` } });
  t.ok([401, 403, 404].includes(asUser.status), `its own token answers ${asUser.status}`);
  t.equal((await fetch(url)).status, 200, 'the device has a URL that works');
});

t.test('an end-user cannot publish there, and explain says so of publishing and listening', async (t) => {
  const { device, endUser, token, topic } = await scene();
  const principal = { type: 'endUser', id: endUser.id };
  const explain = (action: string, name: string, who: object = principal) =>
    service.ok('POST', '/api/v1/permissions/explain', { body: { principal: who, action, topic: name } });
  for (const name of unlisted) {
    const path = `/api/v1/messaging/publish/${topic(name)}` as const;
    const headers = { 'content-type': 'text/plain' };
    t.match(await service.http('POST', path, { token, body: '{}', headers }), { status: 403 }, name);
    for (const action of ['publish', 'subscribe'])
      t.match(
        await explain(action, topic(name)),
        { allowed: false, rule: 'service channel', path: { length: 0 } },
        name,
      );
    t.match(await explain('subscribe', topic(name), { type: 'device', id: device.id }), { rule: 'own channel' });
    t.match(await explain('subscribe', service.topic('+', name)), { rule: 'matches nothing in reach' });
  }
});

t.end();
