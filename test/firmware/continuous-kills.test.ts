/** kill -9 while devices begin to match the fleet of a continuous rollout: each of them is offered the package after it. */
import Sqlite from 'better-sqlite3';
import mqtt from 'mqtt';
import { part } from '../support/part.ts';
import { startProcess } from '../support/process.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { devices, publish, rollOut, rollout } from './fleet.ts';

const t = await part(import.meta);

const count = 60;

t.test('who has begun to match is offered it after a kill, and who has ceased to is withdrawn', async (t) => {
  const service = await startService(t);
  const { accountId, directory } = service;
  const deviceTemplateId = (await service.template({})).id;
  const firmware = await publish(service, deviceTemplateId, '2.0');
  const filter = `deviceTemplateId eq "${deviceTemplateId}" and firmwareVersion lt "2.0" and not (location eq "away")`;
  const fleet = await service.create('/fleets', 'fleet', { name: 'Old', filter });
  const made = await devices(service, deviceTemplateId, count, { firmwareVersion: '3.0' });
  const { id } = await rollOut(service, firmware, { target: { fleetId: fleet.id }, continuous: true });
  await until(async () => (await rollout(service, id)).stage === 1);
  await service.close();

  const file = new Sqlite(`${directory}/registry.db`, { readonly: true });
  t.teardown(() => file.close());
  /** How many devices match and are not offered it, and the other way round. */
  const wrong = file.prepare<[string], { missing: number; spare: number }>(`
    select count(*) filter (where "matches" and not "open") as "missing", count(*) filter (where "open" and not "matches") as "spare"
    from (select "firmwareVersion" = '1.0' and ("fields" ->> '$.location') is not 'away' as "matches",
      exists (select 1 from "firmwareDeliveries" where "deviceId" = "devices"."id" and "state" = 'pending') as "open"
      from "devices" where "deviceTemplateId" = ?)`);
  const matching = file
    .prepare<[string], number>(
      `select count(*) from "devices" where "deviceTemplateId" = ? and "firmwareVersion" = '1.0'
       and ("fields" ->> '$.location') is not 'away'`,
    )
    .pluck();
  const isRight = () => {
    const { missing, spare } = wrong.get(deviceTemplateId) ?? {};
    return missing === 0 && spare === 0;
  };

  let server = await startProcess(t, directory);
  /** All devices say this at once; the server dies with the acknowledgement of the first. */
  const sayAndKill = async (state: object) => {
    const clients = await Promise.all(
      made.map(({ id: username, secret: password }) =>
        mqtt.connectAsync(`mqtt://127.0.0.1:${server.mqttPort}`, { username, password, reconnectPeriod: 0 }),
      ),
    );
    for (const client of clients) client.on('error', () => {});
    await Promise.any(
      clients.map((client, at) =>
        client.publishAsync(`slipway/v1/${accountId}/d/${made[at]?.id}/_set/fields`, JSON.stringify({ state }), {
          qos: 1,
        }),
      ),
    );
    t.equal(await server.stop('SIGKILL'), 'SIGKILL');
    for (const client of clients) client.end(true);
    server = await startProcess(t, directory);
  };
  await sayAndKill({ firmwareVersion: '1.0' });
  t.ok(Number(matching.get(deviceTemplateId)) > 0);
  await until(isRight);
  await sayAndKill({ location: 'away' });
  t.ok(Number(matching.get(deviceTemplateId)) < count);
  await until(isRight);
  await sayAndKill({ firmwareVersion: '1.0', location: null });
  t.ok(Number(matching.get(deviceTemplateId)) > 0);
  await until(isRight);
  await server.stop('SIGTERM');
});

t.end();
