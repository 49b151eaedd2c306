/** Moves and deletes an organization with many devices while an end-user listens: how long nothing else can happen. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import mqtt from 'mqtt';
import { readConfig } from '../src/config.ts';
import { startServer } from '../src/process/server.ts';
import { logIn } from './api.ts';
import type { Row } from './figures.ts';
import type { Bench } from './sizes.ts';

/** The longest that the process may be blocked, in milliseconds. */
const figure = 50;
const moves = 20;

export async function measureMoves({ size, directory }: Bench): Promise<Row[]> {
  const deviceCount = size.fleet;
  const seeded = await directory(1000);
  const clients: mqtt.MqttClient[] = [];
  // With its clients in this process: what is measured is how long its event loop stands still, which nobody sees from outside.
  const server = await startServer(
    readConfig({
      SLIPWAY_DATA_DIR: seeded,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_LOG_LEVEL: 'warn',
    }),
  );
  try {
    const { registry } = server.ctx;
    const { id: accountId } = await registry.query.selectFrom('accounts').select('id').executeTakeFirstOrThrow();
    const at = { url: `${server.url}/api/v1` };
    const { call } = await logIn(at, accountId);
    const post = (path: string, body: object) => call<Answer>('POST', path, { accountId, ...body });
    const login = async (email: string, password: string) => (await logIn(at, accountId, { email, password })).token;
    const make = async (name: string) => (await post('/organizations', { name })).organization;
    const [home, away] = [await make('home'), await make('away')];
    let moved = await make('moved');

    const { deviceTemplate } = await post('/devices/templates', { name: `Moved ${Date.now()}` });
    await post('/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name: 'data',
    });
    const device = { serialNumber: 'talker', deviceTemplateId: deviceTemplate.id, organizationId: moved.id };
    const talker = (await post('/devices', device)).device;
    const body = { entityId: talker.id, entityType: 'device' };
    const { secret } = (await post('/access/mqtt-credentials', body)).mqttCredential;
    const source = await registry.query
      .selectFrom('devices')
      .selectAll()
      .where('id', '=', talker.id)
      .executeTakeFirstOrThrow();
    await registry.transaction(async (tx) => {
      for (let n = 1; n < deviceCount; n += 1) {
        const id = crypto.randomUUID();
        const { row: _, ...copy } = source as typeof source & { row: number };
        await tx
          .insertInto('devices')
          .values({ ...copy, id, serialNumber: `moved ${n}` })
          .execute();
      }
    });
    const user = {
      organizationId: home.id,
      createIdmUser: true,
      idmUserEmail: `u${Date.now()}@bench.example`,
      idmUserPassword: 'a password of the bench',
    };
    await post('/end-users', user);
    const connect = async (username: string, password: string) => {
      const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, { username, password });
      clients.push(client);
      return client;
    };
    const listener = await connect('Auth:JWT', await login(user.idmUserEmail, user.idmUserPassword));
    await listener.subscribeAsync('#', { qos: 1 });
    let heard = 0;
    listener.on('message', (topic) => {
      if (topic.endsWith('/data')) heard += 1;
    });
    const speaker = await connect(talker.id, secret);
    const speak = () => speaker.publishAsync(`slipway/v1/${accountId}/d/${talker.id}/data`, 'x', { qos: 1 });

    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const times: number[] = [];
    let expected = 0;
    for (let n = 0; n < moves; n += 1) {
      const parentId = n % 2 ? away.id : home.id;
      const from = performance.now();
      moved = (await call<Answer>('PUT', `/organizations/${moved.id}`, { parentId }, moved.version)).organization;
      times.push(performance.now() - from);
      await speak();
      if (parentId === home.id) expected += 1;
    }
    const refused = await call('DELETE', `/organizations/${moved.id}`, undefined, moved.version).catch(String);
    delay.disable();
    // Whatever was to be heard comes before the answer to a subscription made afterwards.
    await listener.subscribeAsync(`slipway/v1/${accountId}/d/+/_log`, { qos: 1 });
    console.log(`heard ${heard} of ${expected} messages in reach; a delete with devices in it: ${refused}`);
    if (heard !== expected) throw new Error(`heard ${heard} messages where ${expected} were in reach`);
    return [
      { what: 'Move an organization, longest', devices: deviceCount, ours: Math.max(...times), unit: 'ms' },
      {
        what: 'Longest stand of the event loop meanwhile',
        devices: deviceCount,
        ours: delay.max / 1e6,
        unit: 'ms',
        figure: { below: figure },
      },
    ];
  } finally {
    for (const client of clients) client.end(true);
    await server.close();
  }
}

interface Answer {
  organization: { id: string; version: string };
  deviceTemplate: { id: string };
  device: { id: string };
  mqttCredential: { secret: string };
}
