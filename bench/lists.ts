/** Page 1 of every documented filter and sort of GET /devices, over HTTP, at the size that the directory has. */
import { sql } from '../db/kysely.js';
import { readConfig } from '../src/config.js';
import { startServer } from '../src/server.js';
import { seedAdmin } from './seed.js';

const rounds = 60;
const warmUp = 3;

/** The figure to stay under, p95 in milliseconds (design: list, filter, sort, partial match at a million devices). */
const figure = 25;

export async function measureLists(directory: string): Promise<void> {
  const started = performance.now();
  const env = {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'warn',
  };
  const server = await startServer(readConfig(env));
  console.log(`started in ${Math.round(performance.now() - started)} ms`);
  try {
    const { registry } = server.ctx;
    // The start has told everybody disconnected.
    await sql`update devices set connected = 1 where "row" % 100 = 7`.execute(registry.query);
    const { id: accountId } = await registry.query.selectFrom('accounts').select('id').executeTakeFirstOrThrow();
    const { count } = await registry.query
      .selectFrom('devices')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow();
    const some = await registry.query
      .selectFrom('devices')
      .selectAll()
      .where('organizationId', 'is not', null)
      .where('lastConnected', 'is not', null)
      .where('geoIpLatitude', 'is not', null)
      .where('geoIpLongitude', 'is not', null)
      .where('reverseDns', 'is not', null)
      .where('latitude', 'is not', null)
      .where('longitude', 'is not', null)
      .where('firmwareVersion', 'is not', null)
      .limit(1)
      .executeTakeFirstOrThrow();
    const login = await fetch(`${server.url}/api/v1/auth/login-user`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ accountId, emailAddress: seedAdmin.email, password: seedAdmin.password }),
    });
    const { jwt } = (await login.json()) as { jwt: string };

    const queries = [
      '',
      ...[
        'created',
        'lastModified',
        'id',
        'deviceTemplateId',
        'organizationId',
        'provisioningState',
        'firmwareVersion',
        'serialNumber',
      ].flatMap((name) => [`sortBy=${name}`, `sortBy=${name}&sortOrder=desc`]),
      ...Object.entries({
        deviceTemplateId: some.deviceTemplateId,
        organizationId: some.organizationId,
        provisioningState: 'activated',
        latitude: some.latitude,
        longitude: some.longitude,
        lastConnected: some.lastConnected,
        externalIp: some.externalIp,
        geoIpLatitude: some.geoIpLatitude,
        geoIpLongitude: some.geoIpLongitude,
        reverseDns: some.reverseDns,
      }).map(([name, value]) => `${name}=${encodeURIComponent(value ?? '')}`),
      'organizationId=null',
      'connected=true',
      'connected=false',
      `serialNumber=${some.serialNumber.slice(2, 8).toLowerCase()}`,
      `serialNumber=${some.serialNumber.slice(3, 6)}`,
      ...['s', 'sn', 'Z', 'zz', 'q7', '-0', 'é', 'nothing-like-it'].map(
        (text) => `serialNumber=${encodeURIComponent(text)}`,
      ),
      'serialNumber=SNZ',
      'serialNumber=z&sortBy=created&sortOrder=desc',
      'serialNumber=zz&sortBy=organizationId',
      ...['.', '3', '3.', '3.7', '3.7.1'].map((text) => `firmwareVersion=${text}`),
      'firmwareVersion=3.7.1&provisioningState=activated',
      'firmwareVersion=3.7&provisioningState=activated',
      'serialNumber=zz&connected=false',
      'serialNumber=sn&connected=true',
      `serialNumber=sn&organizationId=${some.organizationId}`,
      'serialNumber=sn&provisioningState=activated',
      'firmwareVersion=3.&provisioningState=activated',
      'provisioningState=activated&connected=false',
      `deviceTemplateId=${some.deviceTemplateId}&provisioningState=defined`,
      `deviceTemplateId=${some.deviceTemplateId}&connected=true`,
      `deviceTemplateId=${some.deviceTemplateId}&connected=false&sortBy=created`,
      `organizationId=null&provisioningState=associated&connected=true`,
      `organizationId=${some.organizationId}&deviceTemplateId=${some.deviceTemplateId}`,
      `organizationId=${some.organizationId}&sortBy=created&sortOrder=desc`,
      `deviceTemplateId=${some.deviceTemplateId}&connected=true&sortBy=lastModified&sortOrder=desc`,
      'page=1000000000',
      'serialNumber=sn&page=1000000000',
    ];
    console.log(`\nGET /devices, page 1, ${count} devices, ${rounds} rounds each (figure: p95 < ${figure} ms)\n`);
    let over = 0;
    for (const query of queries) {
      const times: number[] = [];
      let answer = '';
      for (let round = -warmUp; round < rounds; round += 1) {
        const from = performance.now();
        const response = await fetch(`${server.url}/api/v1/devices?accountId=${accountId}&${query}`, {
          headers: { authorization: `Bearer ${jwt}` },
        });
        const body = (await response.json()) as { devices?: { meta: { count: number } } };
        if (round >= 0) times.push(performance.now() - from);
        answer = `${response.status}${body.devices ? ` count ${body.devices.meta.count}` : ''}`;
      }
      times.sort((a, b) => a - b);
      const at = (share: number) =>
        (times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0).toFixed(1);
      if (Number(at(0.95)) >= figure) over += 1;
      console.log(
        `${Number(at(0.95)) < figure ? '  ' : '! '}p50 ${at(0.5).padStart(7)}  p95 ${at(0.95).padStart(7)}  ${answer.padEnd(20)} ${query}`,
      );
    }
    console.log(`\n${queries.length - over} of ${queries.length} within the figure`);
  } finally {
    await server.close();
  }
}
