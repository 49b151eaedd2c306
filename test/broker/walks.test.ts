/**
 * Random walks: clients of every version that publish, subscribe, leave, come back and lose acknowledgements hear what the
 * standards promise. `npm run test:walk -- --walks 10000 --seed N` takes many.
 */
import { parseArgs } from 'node:util';
import { slices } from '../../src/core/scheduler/time-slice.ts';
import { part } from '../support/part.ts';
import { startService } from '../support/service.ts';
import type { Place } from '../walk/client.ts';
import { channels } from '../walk/steps.ts';
import { kindOf, shrink, told, walkAll } from '../walk/walks.ts';

const t = await part(import.meta);

const { values } = parseArgs({
  options: {
    walks: { type: 'string', default: '50' },
    seed: { type: 'string', default: '1500' },
    // How often each walk is taken: its races differ.
    repeat: { type: 'string', default: '1' },
    // How many walks with faults end the run, and of how many kinds of fault one is shrunk.
    most: { type: 'string', default: '1' },
    shrunk: { type: 'string', default: '1' },
  },
  strict: false,
});
const [count, seed, repeat, most, shrunk] = [values.walks, values.seed, values.repeat, values.most, values.shrunk].map(
  Number,
) as [number, number, number, number, number];
/** Where no turn of the event loop has time for more than a few deliveries, most of them wait for the next one. */
const paces = { 'with time': {}, 'without time': { time: 0, least: 8, perLook: 1 } };

// No limit: --walks decides how long it takes.
t.setTimeout(0);
for (const [pace, slice] of Object.entries(paces))
  t.test(`${count} walks from seed ${seed} on, ${pace}, lose, double and disorder nothing`, async (t) => {
    t.setTimeout(0);
    const usual = { ...slices.packets };
    t.teardown(() => Object.assign(slices.packets, usual));
    Object.assign(slices.packets, slice);
    const service = await startService(t, { env: { SLIPWAY_MQTT_MAX_CONNECTIONS_PER_DEVICE: '0' } });
    const template = await service.template({
      channels: channels.map((name) => ({ name, persistenceType: 'simple' })),
    });
    const newPlace = async (): Promise<Place> => {
      const { device, secret } = await service.device({ deviceTemplateId: template.id });
      const topic = (channel: string) => service.topic(device.id, channel);
      return { port: service.server.mqttPort, username: device.id, password: secret, topic, another: newPlace };
    };
    const findings = await walkAll(newPlace, { seed, count, repeat, most }, ({ walk, faults }) => {
      const first = faults.filter((one, n) => faults.findIndex((other) => kindOf(other) === kindOf(one)) === n);
      for (const fault of first) t.comment(`seed ${walk.seed}: ${fault}`);
    });
    const kinds = new Map(findings.map((found) => [kindOf(found.faults[0] ?? ''), found]));
    for (const found of [...kinds.values()].slice(0, shrunk))
      for (const line of told(await shrink(newPlace, found)).split('\n')) t.comment(line);
    t.equal(findings.length, 0);
  });

t.end();
