/** Moves and deletes an organization with many devices while an end-user listens: how long nothing else can happen. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import mqtt from 'mqtt';
import { readConfig } from '../src/config.js';
import { startServer } from '../src/server.js';
import { seedAdmin } from './seed.js';

/** The longest that the process may be blocked, in milliseconds. */
const figure = 50;
const moves = 20;

export async function measureMoves(directory: string, deviceCount: number): Promise<void> {
  const env = {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'warn',
  };
  const server = await startServer(readConfig(env));
  const clients: mqtt.MqttClient[] = [];
  try {
    const { registry } = server.ctx;
    const { id: accountId } = await registry.query.selectFrom('accounts').select('id').executeTakeFirstOrThrow();
    let token = '';
    const call = async (method: string, path: string, body?: object, etag?: string) => {
      const response = await fetch(`${server.url}/api/v1${path}`, {
        method,
        headers: {
          ...(body && { 'content-type': 'application/json' }),
          ...(token && { authorization: `Bearer ${token}` }),
          ...(etag && { etag }),
        },
        ...(body && { body: JSON.stringify({ accountId, ...body }) }),
      });
      // biome-ignore lint/suspicious/noExplicitAny: answers are read as a script would
      return (await response.json()) as any;
    };
    const login = async (emailAddress: string, password: string): Promise<string> =>
      (await call('POST', '/auth/login-user', { emailAddress, password })).jwt;
    token = await login(seedAdmin.email, seedAdmin.password);
    const make = async (name: string) => (await call('POST', '/organizations', { name })).organization;
    const [home, away] = [await make('home'), await make('away')];
    let moved = await make('moved');

    const { deviceTemplate } = await call('POST', '/devices/templates', { name: `Moved ${Date.now()}` });
    await call('POST', '/channels/templates', {
      entityId: deviceTemplate.id,
      entityType: 'deviceTemplate',
      name: 'data',
    });
    const device = { serialNumber: 'talker', deviceTemplateId: deviceTemplate.id, organizationId: moved.id };
    const talker = (await call('POST', '/devices', device)).device;
    const body = { entityId: talker.id, entityType: 'device' };
    const { secret } = (await call('POST', '/access/mqtt-credentials', body)).mqttCredential;
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
    await call('POST', '/end-users', user);
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
      moved = (await call('PUT', `/organizations/${moved.id}`, { parentId }, moved.version)).organization;
      times.push(performance.now() - from);
      await speak();
      if (parentId === home.id) expected += 1;
    }
    const refused = await call('DELETE', `/organizations/${moved.id}`, undefined, moved.version);
    delay.disable();
    // Whatever was to be heard comes before the answer to a subscription made afterwards.
    await listener.subscribeAsync(`slipway/v1/${accountId}/d/+/_log`, { qos: 1 });
    times.sort((a, b) => a - b);
    const blocked = delay.max / 1e6;
    console.log(
      `moves of an organization with ${deviceCount} devices: median ${times[moves / 2]?.toFixed(1)} ms, longest ${times.at(-1)?.toFixed(1)} ms`,
    );
    console.log(`the process was blocked for ${blocked.toFixed(1)} ms at most (figure: ${figure} ms)`);
    console.log(
      `heard ${heard} of ${expected} messages in reach, and ${heard > expected ? 'SOME' : 'none'} out of reach`,
    );
    console.log(`a delete with devices in it is refused with ${refused.error?.code}`);
  } finally {
    for (const client of clients) client.end(true);
    await server.close();
  }
}
