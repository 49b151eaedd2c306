/** README's sixty seconds, and the pages that go on from there in the same terminal. */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../../../support/until.ts';
import { type Python, pythons } from '../python.ts';
import { has, type Story } from '../story.ts';

const first = (answers: unknown[]) => answers[0];

export const readme: Story = {
  goesOn: true,
  tell: async ({ t, next, newcomer, service, email, password }) => {
    await newcomer.set({ ACCOUNT: service.accountId, EMAIL: email, PASSWORD: password });
    const sixtySeconds = next();
    const [, point] = await newcomer.answers(sixtySeconds);
    const shown = JSON.parse(next());
    t.match(Object.keys(point), Object.keys(shown));
    t.match(point, { meta: { count: 1, pagingToken: null } });
    t.match(point.result, [{ ...shown.result[0], time: /T.*Z$/ }], 'as the page shows it');
    service.secrets.add(await newcomer.get('SECRET'));
  },
};

export const api: Story = {
  goesOn: true,
  tell: async ({ t, next, newcomer, service }) => {
    const [made, list] = await newcomer.answers(next());
    t.match(made, { device: { serialNumber: 'SN-0002' } });
    t.match(list.devices, { results: [{ serialNumber: 'SN-0001' }, { serialNumber: 'SN-0002' }] });
    const body = { accountId: service.accountId, serialnumber: 'SN-0003' };
    const refused = await service.http('POST', '/api/v1/devices', { body });
    t.strictSame(refused.body.error, JSON.parse(next()).error);
  },
};

export const mqtt: Story = {
  goesOn: true,
  tell: async ({ t, next, skip, newcomer, service, secure, shell }) => {
    if (!has('mosquitto_pub')) return skip(2, 'mosquitto_pub and mosquitto_sub are not installed');
    const [listen = '', say = ''] = next().trim().split('\n');
    const rejected = await newcomer.start(listen);
    // It does not say when it has subscribed.
    await until(async () => {
      await newcomer.run(say.replace('readings', 'no-such-channel'));
      return rejected.output().includes('no-such-channel');
    });
    const points = async () => (await service.ok('GET', '/api/v1/usage')).usage.points;
    const before = await points();
    await newcomer.run(say);
    t.equal(await points(), before + 1);
    rejected.stop();
    // The other ways of the page need TLS.
    const { service: tls, caFile, mqttsPort } = await secure();
    const { id: deviceTemplateId } = await tls.template({ channels: ['readings'] });
    const { device } = await tls.device({ deviceTemplateId });
    const sh = shell({
      env: { CURL_CA_BUNDLE: caFile },
      instead: { 'ca.crt': caFile, 'things.example.com': 'localhost', '-p 8883': `-p ${mqttsPort}` },
    });
    const topic = tls.topic(device.id, 'readings');
    await sh.set({ ACCOUNT: tls.accountId, TOKEN: tls.admin, URL: tls.server.url, DEVICE: device.id, TOPIC: topic });
    await sh.set({ SERIAL: 'SN-0003' });
    t.match(first(await sh.answers(next())), { mqttCertificate: { entityId: device.id } });
    t.match((await tls.ok('GET', `/api/v4/data/${topic}`)).result, [{ category: 'temperature', numericValue: 21.5 }]);
  },
};

export const firmware: Story = {
  goesOn: true,
  tell: async ({ t, next, newcomer, service }) => {
    const url = service.server.url;
    const device = await newcomer.get('DEVICE');
    await newcomer.run(`export SLIPWAY_URL=${url} SLIPWAY_TOKEN=$TOKEN\nURL=${url}\nprintf firmware > app.bin`);
    t.match(await newcomer.run(next()), /./, 'publish');
    const published = (await newcomer.answers(next())).at(-1);
    t.match(published, { firmwarePackage: { state: 'published', firmwareVersion: '2.1.0' } });
    const { version } = (await service.ok('GET', `/api/v1/devices/${device}`)).device;
    const change = { body: { firmwareVersion: '1.9' }, headers: { etag: version } };
    await service.ok('PUT', `/api/v1/devices/${device}`, change);
    const watched = await newcomer.start(next());
    const [python] = pythons;
    if (!python) t.comment('Python with paho-mqtt is not installed: the device in Python is not run.');
    else {
      copyFileSync('examples/python/firmware.py', join(newcomer.directory, 'firmware.py'));
      const flags = `127.0.0.1 ${service.server.mqttPort} $ACCOUNT $DEVICE $SECRET`;
      const run = ({ assigned, file }: Python, running: string) =>
        newcomer.start(`env ${assigned} '${file}' firmware.py ${flags} ${running}`);
      const stateOf = async () => (await service.ok('GET', `/api/v1/devices/${device}/firmware`)).firmware?.state;
      const old = await run(python, '1.9');
      await old.until(async () => (await stateOf()) === 'installing');
      old.stop();
      // After the restart it speaks with the other version of paho-mqtt.
      const updated = await run(pythons.at(-1) ?? python, '2.1.0');
      await updated.until(async () => (await stateOf()) === 'succeeded');
      updated.stop();
      t.equal((await service.ok('GET', `/api/v1/devices/${device}`)).device.firmwareVersion, '2.1.0');
    }
    // Its later stages begin in hours.
    watched.stop();
    t.match(await newcomer.run(next()), /^Rollout: /m, 'a fleet is kept up to date');
    const booting = await service.connect({ deviceId: device, secret: await newcomer.get('SECRET') });
    booting.on('message', (topic, payload) => {
      const reply = { id: JSON.parse(payload.toString()).id, status: 'succeeded' };
      booting.publish(`${topic}/replies`, JSON.stringify(reply), { qos: 1 });
    });
    await booting.subscribeAsync(service.topic(device, '_commands'), { qos: 1 });
    const [answer] = await newcomer.answers(next());
    t.match(answer, { command: { name: 'reboot', payload: { delay: 3 }, state: 'succeeded' } });
    await booting.endAsync();
    const [declared] = await newcomer.answers(next());
    t.match(declared, { deviceTemplate: { commands: [{ name: 'report', parameters: { required: ['interval'] } }] } });
  },
};
