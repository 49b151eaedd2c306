/** What bridges cost publishers: acknowledged QoS 1 messages on a stored channel at each level. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { logIn } from './api.js';
import { median, type Row } from './figures.js';
import { flood } from './flood.js';
import { type Link, openLink } from './link.js';
import type { Bench } from './sizes.js';

const connections = 4;
const inFlight = 500;
/** Messages of one run, for each unit of `Size.units`. */
const perUnit = 1.2;
const admin = { email: 'bench@bench.example', password: 'a password of the bench' };

export async function measureBridges({ size, directory, serve }: Bench): Promise<Row[]> {
  const accountId = '00000000-0000-7000-8000-00000000b0b0';
  const server = await serve(await directory(0), {
    SLIPWAY_ACCOUNT_ID: accountId,
    SLIPWAY_ADMIN_EMAIL: admin.email,
    SLIPWAY_ADMIN_PASSWORD: admin.password,
    SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
    SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
  });
  let accepted = 0;
  let away = false;
  const target = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      if (!away) accepted += body.split('"id":').length - 1;
      response.writeHead(away ? 503 : 200).end();
    });
  });
  target.listen(0, '127.0.0.1');
  await once(target, 'listening');
  try {
    const { call } = await logIn(server, accountId, admin);
    const post = (path: string, body: object) => call<Answer>('POST', path, { accountId, ...body });
    const { deviceTemplate } = await post('/devices/templates', { name: 'Bridged' });
    for (const streamBridgeDelivery of [0, 1, 2])
      await post('/channels/templates', {
        entityId: deviceTemplate.id,
        entityType: 'deviceTemplate',
        name: `level${streamBridgeDelivery}`,
        persistenceType: 'timeSeries',
        streamBridgeDelivery,
      });
    const { port } = target.address() as AddressInfo;
    await post('/bridges', { name: 'bench', kind: 'webhook', url: `http://127.0.0.1:${port}/` });
    const perRun = Math.round(size.units * perUnit);
    const clients: Array<{ link: Link; root: string }> = [];
    for (let n = 0; n < connections; n += 1) {
      const body = { serialNumber: `${n}`, deviceTemplateId: deviceTemplate.id };
      const { device } = await post('/devices', body);
      const about = { entityId: device.id, entityType: 'device' };
      const { mqttCredential } = await post('/access/mqtt-credentials', about);
      const login = { username: device.id, password: mqttCredential.secret, clientId: device.id };
      clients.push({
        link: await openLink({ port: server.mqttPort }, login),
        root: `slipway/v1/${accountId}/d/${device.id}`,
      });
    }
    const scenarios = [
      { name: 'level 0', channel: 'level0', isAway: false },
      { name: 'level 1', channel: 'level1', isAway: false },
      { name: 'level 2', channel: 'level2', isAway: false },
      { name: 'level 1, target away', channel: 'level1', isAway: true },
      { name: 'level 2, target away', channel: 'level2', isAway: true },
    ];
    const rates = new Map<string, number[]>();
    for (let round = 0; round < size.rounds; round += 1)
      for (const { name, channel, isAway } of scenarios) {
        away = isAway;
        const before = accepted;
        const from = performance.now();
        const each = perRun / connections;
        await Promise.all(clients.map(({ link, root }) => flood(link, `${root}/${channel}`, inFlight, each).done));
        const seconds = (performance.now() - from) / 1000;
        rates.set(name, [...(rates.get(name) ?? []), perRun / seconds]);
        // What is still on its way must not burden the next run.
        if (channel !== 'level0' && !isAway) await settled(() => accepted, before);
      }
    for (const { link } of clients) link.socket.destroy();
    const base = { name: 'level 0', value: median(rates.get('level 0') ?? []) };
    return [...rates].map(([name, all]) => ({
      what: `QoS 1 that a bridge takes along, ${name}`,
      ours: median(all),
      unit: 'msg/s',
      ...(name !== base.name && { peer: base }),
    }));
  } finally {
    await server.stop();
    target.close();
    target.closeAllConnections();
  }
}

interface Answer {
  deviceTemplate: { id: string };
  device: { id: string };
  mqttCredential: { secret: string };
}

/** When nothing more has arrived for a while. */
async function settled(read: () => number, before: number): Promise<void> {
  for (let last = before - 1; read() !== last; ) {
    last = read();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
