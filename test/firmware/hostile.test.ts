/** Attacks on the ways to devices: topics of others, URLs that are void, what other accounts may name. */
import { randomBytes } from 'node:crypto';
import { part } from '../support/part.ts';
import { closed, type Service, startService } from '../support/service.ts';
import { sharedService } from '../support/shared.ts';
import { board, codec, getChunk, info } from './board.ts';
import { asDevice, type Device, devices, offerTo, publish, rollOut, rollout, rolloutUntil } from './fleet.ts';

const t = await part(import.meta);

async function offered(service: Service, count: number) {
  const template = await service.template();
  const made = await devices(service, template.id, count);
  const firmware = await publish(service, template.id, '2', { app: randomBytes(3000) });
  const { id } = await rollOut(service, firmware, { target: { deviceIds: made.map((one) => one.id) } });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === count);
  return { made, firmware, id };
}

t.test('the control topics of a device are its own: nobody else speaks or listens there', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '0' } });
  const { made, id } = await offered(service, 2);
  const [victim, thief] = made as [Device, Device];
  const { controlRoot } = service;
  const [svc, cln] = [`${controlRoot}/${victim.id}/svc`, `${controlRoot}/${victim.id}/cln`];
  const others = [
    await service.connect({ deviceId: thief.id, secret: thief.secret }),
    await service.connect({ jwt: service.admin }),
  ];
  const done = codec.encode({ msgtype: 4, msgver: 1, N: 'app', R: '2', P: 5, S: 0 });
  for (const other of others) {
    const heard: string[] = [];
    other.on('message', (topic) => heard.push(topic));
    for (const filter of [cln, svc, `${controlRoot}/#`, `${controlRoot}/+/cln`, `${controlRoot}/${victim.id}/+`]) {
      const granted = await other.subscribeAsync(filter, { qos: 1 }).catch(() => []);
      t.ok(
        granted.every(({ qos }) => qos === 128),
        filter,
      );
    }
    await other.subscribeAsync('#', { qos: 1 });
    for (const topic of [svc, cln, `${svc}/`, svc.replace(victim.id, victim.id.toUpperCase())])
      for (const retain of [false, true]) await other.publishAsync(topic, done, { qos: 1, retain });
    const own = await board(service, victim);
    await own.send(info({}));
    await own.send(getChunk('app', '2', 0));
    t.same(
      own.heard.map(({ msgtype }) => msgtype),
      [1, 3],
      'the device hears the service alone',
    );
    await own.client.endAsync();
    t.same(
      heard.filter((topic) => topic.startsWith(controlRoot)),
      [],
    );
    t.ok(other.connected);
  }
  t.match((await rollout(service, id)).counts, { succeeded: 0, failed: 0 }, 'nobody has spoken for it');
  const will = { topic: svc, payload: done, qos: 1 as const, retain: false };
  await t.rejects(service.connect({ deviceId: thief.id, secret: thief.secret }, { will }), 'nor at its end');
  const publishing = `/messaging/publish/${svc}`;
  t.equal((await asDevice(service, thief, 'POST', publishing, {})).status, 404);
  t.equal((await asDevice(service, victim, 'POST', publishing, {})).status, 403, 'not over HTTP');
});

t.test('a URL is void for everybody once its offer has ended', async (t) => {
  const service = await sharedService(t);
  const { made, id } = await offered(service, 3);
  const [good, bad, left] = made as [Device, Device, Device];
  const urls = new Map<string, string>();
  for (const device of made) urls.set(device.id, (await offerTo(service, device)).files[0].url);
  const status = async ({ id: one }: Device) => (await fetch(urls.get(one) ?? '')).status;
  for (const device of made) t.equal(await status(device), 200);
  const say = (device: Device, state: string) =>
    asDevice(service, device, 'POST', '/firmware/status', { state, firmwareVersion: '2' });
  await say(good, 'succeeded');
  t.equal(await status(good), 410, 'replayed after the success');
  await say(bad, 'failed');
  t.equal(await status(bad), 410, 'and after a failure');
  const retried = await service.ok('POST', `/api/v1/firmware/rollouts/${id}/retry`);
  t.equal(retried.firmwareRollout.counts.pending, 1);
  t.equal(await status(bad), 410, 'a retry does not make it valid again');
  t.equal((await fetch((await offerTo(service, bad)).files[0].url)).status, 200, 'there is another one');
  const [one, other] = [new URL(urls.get(left.id) ?? ''), new URL(urls.get(good.id) ?? '')];
  const [own = '', foreign = ''] = [one, other].map(({ searchParams }) => searchParams.get('offer') ?? '');
  one.searchParams.set('offer', own.replace(/[^.]*$/, foreign.slice(foreign.lastIndexOf('.') + 1)));
  t.equal((await fetch(one)).status, 403, 'a signature of another device');
  for (const query of ['?offer=&signature=', '?signature=%00', `?offer=${'.'.repeat(255)}`])
    t.equal((await fetch(`${one.origin}${one.pathname}${query}`)).status, 403, query.slice(0, 20));
  await service.ok('POST', `/api/v1/firmware/rollouts/${id}/cancel`);
  t.equal(await status(left), 410, 'cancelled');
});

t.test('a device that asks for chunks all the time, and reads none, holds one place and harms nobody', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_FIRMWARE_DOWNLOADS: '2' } });
  const { made } = await offered(service, 2);
  const [greedy, modest] = made as [Device, Device];
  const flood = await board(service, greedy);
  const other = await board(service, modest);
  flood.client.stream.pause();
  const root = `${service.controlRoot}/${greedy.id}/svc`;
  const bytes = codec.encode(getChunk('app', '2', 0));
  for (let n = 0; n < 3000; n += 1) flood.client.publish(root, bytes, { qos: 0 });
  for (const offset of [0, 1024, 2048]) await other.send(getChunk('app', '2', offset));
  t.same(
    other.heard.map(({ msgtype, S, L }) => [msgtype, S, L]),
    [
      [3, 0, 1024],
      [3, 0, 1024],
      [3, 0, 952],
    ],
  );
  const gone = closed(flood.client);
  flood.client.stream.destroy();
  await gone;
});

t.test('a pattern with many wildcards chooses devices as fast as one with a single wildcard', async (t) => {
  const service = await sharedService(t);
  const template = await service.template();
  const [long, other] = [`${'a'.repeat(250)}B`, 'a'.repeat(255)];
  const ids: string[] = [];
  for (const serialNumber of [long, other])
    ids.push((await service.device({ deviceTemplateId: template.id, serialNumber })).device.id);
  const firmware = await publish(service, template.id, '2');
  const chosenBy = async (serialNumber: string) => {
    const { id } = await rollOut(service, firmware, { target: { filter: { serialNumber } } });
    await rolloutUntil(service, id, ({ state, counts }) => state === 'finished' || counts.pending > 0);
    const { devices: listed } = await service.ok('GET', `/api/v1/firmware/rollouts/${id}/devices`);
    await service.ok('POST', `/api/v1/firmware/rollouts/${id}/cancel`);
    return listed.results.map(({ deviceId }) => deviceId);
  };
  const many = '*a'.repeat(30);
  t.same(await chosenBy(`${many}*b`), [ids[0]], 'upper and lower case are the same');
  t.same(await chosenBy(`b${many}`), []);
  t.same((await chosenBy(`${many}*`)).sort(), [...ids].sort());
  t.same(await chosenBy(`${'a'.repeat(200)}*${'a'.repeat(60)}*`), [], 'parts do not overlap');
});

t.end();
