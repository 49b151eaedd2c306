/** Pages of the console that stay open while a device publishes: what they hold does not grow. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { openAs } from '../console/browser.ts';
import { domOf } from '../console/dom.ts';
import { openBrowser } from '../console/shared-browser.ts';
import { startService } from '../support/service.ts';

/** `npm run test:pages` takes ten. */
const minutes = Number(process.env.TEST_MINUTES ?? 1);
/** Milliseconds between two messages, and between two counts. */
const publishEvery = 50;
const countEvery = 5000;

t.test('pages that are open for minutes at 20 messages a second gain neither nodes nor listeners', async (t) => {
  const service = await startService(t);
  const browser = await openBrowser();
  const { id: deviceTemplateId } = await service.template({ channels: ['readings'] });
  const { device, secret } = await service.device({ deviceTemplateId });
  const client = await service.connect({ deviceId: device.id, secret });
  const opened = [];
  for (const place of [
    'home',
    'devices',
    ...['', '/live', '/series', '/log'].map((tab) => `devices/${device.id}${tab}`),
  ])
    opened.push(await openAs(t, browser, service, place));
  let sent = 0;
  const begun = performance.now();
  // A busy machine is late now and then, and catches up.
  const publishing = setInterval(() => {
    for (const due = (performance.now() - begun) / publishEvery; sent < due; sent += 1) {
      const values = [`,temperature,${20 + (sent % 50) / 10},`, `,door,,${sent % 2 ? 'open' : 'closed'}`];
      client.publish(service.topic(device.id, 'readings'), values.join('\n'));
    }
  }, publishEvery);
  t.teardown(() => clearInterval(publishing));
  const counts: Awaited<ReturnType<typeof domOf>>[] = [];
  const [first] = opened;
  if (!first) throw new Error('there is no page');
  for (const end = Date.now() + minutes * 60_000; Date.now() < end; await sleep(countEvery))
    counts.push(await domOf(first.page));
  // Pages are full after the first third. They hold more and less by turns, so the most of a third is compared.
  const third = Math.floor(counts.length / 3);
  for (const what of ['nodes', 'listeners'] as const) {
    const all = counts.map((one) => one[what]);
    const [second, last] = [all.slice(third, 2 * third), all.slice(2 * third)].map((some) => Math.max(...some));
    t.ok((last ?? 0) < (second ?? 0) * 1.05, `${what} after ${sent} messages: ${all.join(', ')}`);
  }
  t.strictSame(
    opened.flatMap(({ errors }) => errors),
    [],
  );
});
