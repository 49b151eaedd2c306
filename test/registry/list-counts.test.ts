/** Counts of lists that are kept. */
import t from 'tap';
import { insertDevices } from '../../db/registry/presence.js';
import { newId } from '../../src/ids.js';
import { type Service, startService } from '../support/service.js';

let service: Service;
t.before(async () => {
  service = await startService(t);
});

t.test('callers of an account that ask for more lists at once than are kept are all answered', async (t) => {
  await service.login();
  const { registry } = service.server.ctx;
  const { id } = await service.create('/devices', 'device', { serialNumber: 'pattern' });
  const whole = registry.query.selectFrom('wholeDevices').selectAll().where('id', '=', id);
  const { row: _, account: __, ...first } = await whole.executeTakeFirstOrThrow();
  const devices = Array.from({ length: 6000 }, (_, n) => ({
    ...first,
    id: newId(service.accountId),
    serialNumber: `n-${n}`,
    created: new Date(n).toISOString(),
  }));
  await registry.transaction((tx) => insertDevices(tx, devices));
  const tokens: string[] = [];
  for (let n = 0; n < 70; n += 1) {
    const made = { name: service.unique('App'), kind: 'backEnd' };
    const { id, appToken } = await service.create('/applications', 'application', made);
    const body = { appId: id, appToken, accountId: service.accountId };
    tokens.push((await service.ok('POST', '/api/v1/auth/login-application', { token: null, body })).jwt);
  }
  const ask = async (token: string, n: number) => {
    // No index has this letter: all devices are looked at.
    const search = new URLSearchParams({ accountId: service.accountId, serialNumber: `\uFFFD${n}` });
    return (await service.ok('GET', `/api/v1/devices?${search}`, { token })).devices.meta.count;
  };
  t.same([...new Set(await Promise.all(tokens.map(ask)))], [0]);
});
