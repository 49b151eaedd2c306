/** What bridges cost others: bodies are made in turns, a few milliseconds at a time. */
import diagnostics from 'node:diagnostics_channel';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { startReceiver } from './receiver.ts';

const t = await part(import.meta);

/** Bodies of a megabyte that are made in one turn of the event loop at most: each takes more than a millisecond. */
const most = 4;
const messages = 40;

t.test('many bodies of a megabyte are not made in one turn of the event loop', async (t) => {
  const service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  const channels = [{ name: 'sure', streamBridgeDelivery: 2 }];
  const { id: deviceTemplateId } = await service.template({ channels });
  const receiver = await startReceiver(t);
  const bridges: string[] = [];
  for (let n = 0; n < 5; n += 1) {
    const bridge = { name: service.unique('Bridge'), kind: 'webhook', url: receiver.url };
    bridges.push((await service.create('/bridges', 'bridge', bridge)).id);
  }
  for (let n = 0; n < messages; n += 1) {
    const { device } = await service.device({ deviceTemplateId });
    const topic = `/api/v1/messaging/publish/${service.topic(device.id, 'sure')}`;
    const headers = { 'content-type': 'text/plain' };
    await service.ok('POST', topic, { body: 'x'.repeat(120_000), headers });
  }
  await receiver.received(messages * bridges.length);

  let inTurn = 0;
  let largest = 0;
  let isCounted = false;
  const count = ({ request }: { request?: { path?: string } }) => {
    if (request?.path !== '/hook') return;
    inTurn += 1;
    largest = Math.max(largest, inTurn);
    if (isCounted) return;
    isCounted = true;
    setImmediate(() => {
      inTurn = 0;
      isCounted = false;
    });
  };
  const created = 'http.client.request.created';
  diagnostics.subscribe(created, count as (message: unknown) => void);
  t.teardown(() => diagnostics.unsubscribe(created, count as (message: unknown) => void));
  const all = { from: '2000-01-01', to: '2100-01-01' };
  await Promise.all(bridges.map((id) => service.ok('POST', `/api/v1/bridges/${id}/replay`, { body: all })));
  await receiver.received(2 * messages * bridges.length);
  await until(() => !isCounted);
  t.ok(largest >= 1 && largest <= most, `${largest} in one turn`);
});

t.end();
