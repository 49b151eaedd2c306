/**
 * Answers and deliveries do not depend on how packets are cut into segments: random pipelines, sent one by one, and at once
 * with random cuts, over TCP, TLS and WebSocket. `npm run test:pipelines -- --seeds 5 --count 1000` runs many.
 */
import { parseArgs } from 'node:util';
import { part } from '../support/part.ts';
import { certificate } from './certificate.ts';
import { fixture, sibling } from './fixture.ts';
import { anySeed, converse, cutsOf, type Heard, pipeline, pipeline5, seeded, transports } from './pipeline.ts';

const t = await part(import.meta);

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1' },
    count: { type: 'string', default: '40' },
    seed: { type: 'string' },
  },
  strict: false,
});
const [seeds, count] = [Number(values.seeds), Number(values.count)];
const fixedSeed = values.seed === undefined ? undefined : Number(values.seed);

// No limit: --seeds and --count decide how long it takes.
t.setTimeout(0);
for (const level of [4, 5] as const)
  t.test(`${count} pipelines of level ${level} in ${seeds} seeds are answered as packets one by one`, async (t) => {
    const f = await fixture(t, { ...certificate(t), SLIPWAY_MQTT_REFUSALS_PER_MINUTE: '0' });
    const other = await sibling(f);
    const { mqttPort } = f.service.server;
    const securePort = f.service.mqttsPort;
    const ways = transports({ port: mqttPort, securePort, url: `wss://127.0.0.1:${securePort}/` });
    const names = Object.keys(ways) as Array<keyof typeof ways>;
    const topics = {
      channels: [f.topic('chat'), f.topic('temperature')],
      granted: [f.topic('chat'), f.topic('temperature'), f.topic('#'), f.topic('+'), '#'],
      refused: [f.topic('nothing'), other.topic('chat'), '$SYS/#'],
      forbidden: [f.topic('nothing'), other.topic('chat')],
    };
    const login = { username: f.device.id, password: Buffer.from(f.secret) };
    /** Retained messages and stored sessions of a former pipeline say nothing to the next. */
    const cleared = async () => {
      const clear = topics.channels.map((topic) => ({
        cmd: 'publish',
        topic,
        payload: '',
        qos: 1,
        retain: true,
        dup: false,
      }));
      const packets = clear.map((packet, n) => ({ ...packet, messageId: n + 1 }));
      await converse(ways.tcp(), { ...login, clientId: 'p' }, packets as never, 'one by one');
    };
    let differences = 0;
    for (let n = 0; n < seeds; n += 1) {
      const seed = fixedSeed ?? anySeed();
      const random = seeded(seed);
      for (let nth = 0; nth < count / seeds; nth += 1) {
        const packets = (level === 5 ? pipeline5 : pipeline)(random, topics);
        const clean = random(2) === 0;
        const heard: Heard[] = [];
        const name = names[random(names.length)] as keyof typeof ways;
        const cuts = cutsOf(random, packets, level);
        for (const [way, manner] of [
          ['tcp', 'one by one'],
          [name, { cuts }],
        ] as const) {
          await cleared();
          const kept = level === 5 && !clean ? { properties: { sessionExpiryInterval: 60, topicAliasMaximum: 2 } } : {};
          heard.push(await converse(ways[way](), { ...login, clientId: 'p', clean, ...kept }, packets, manner, level));
        }
        if (JSON.stringify(heard[0]) === JSON.stringify(heard[1])) continue;
        differences += 1;
        t.same(
          heard[1],
          heard[0],
          `seed ${seed}, pipeline ${nth}, over ${name}, cut at ${cuts}: ${JSON.stringify(packets)}`,
        );
      }
    }
    t.equal(differences, 0);
  });

t.end();
