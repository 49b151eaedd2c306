/** What a message costs does not depend on the filters of other accounts: live, stored, shared, or of event streams. */
import type { MqttClient } from 'mqtt';
import { openStream } from '../support/events.ts';
import { countLooks } from '../support/faults.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';

const t = await part(import.meta);

/** Filters of the other account of each kind; of shared ones an account may have a thousand. */
const foreign = { live: 20_000, stored: 20_000, shared: 450, streamed: 10_000 };
const atOnce = 2000;
const messages = 50;

let service: Service;
t.before(async () => {
  service = await startService(t, {
    env: {
      SLIPWAY_MQTT_MAX_SUBSCRIPTIONS: '0',
      SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
      SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL: '0',
    },
  });
});

/** Filters with a wildcard in place of the account; the first of each part match whatever is published. */
class Filters {
  readonly #devices = ['+'];
  readonly #channels = ['data'];

  /** Makes devices and channels of an account, whose ids and names the filters have. */
  async begin(other: Service): Promise<void> {
    for (let n = 1; n < 100; n += 1) this.#channels.push(`channel ${n}`);
    const template = await other.template({ channels: this.#channels });
    while (this.#devices.length < 26) {
      const { device } = await other.device({ deviceTemplateId: template.id });
      this.#devices.push(device.id);
    }
  }

  *parts(count: number, share = ''): Generator<string[]> {
    const [first = '', second = ''] = service.topicRoot.split('/');
    const roots = [`${first}/${second}/+`, `+/${second}/+`, `${first}/+/+`, '+/+/+'].flatMap((root) => [
      `${root}/d`,
      `${root}/+`,
    ]);
    const all = roots.flatMap((root) =>
      this.#devices.flatMap((device) => this.#channels.map((channel) => `${share}${root}/${device}/${channel}`)),
    );
    for (let from = 0; from < count; from += atOnce)
      yield [`${share}#`, `${share}${service.topicRoot}/+/#`, ...all.slice(from, Math.min(count, from + atOnce))];
  }
}
const filters = new Filters();

async function subscribeAll(client: MqttClient, count: number, share?: string): Promise<void> {
  for (const some of filters.parts(count, share)) await client.subscribeAsync(some, { qos: 1 });
}

/** Brings the other account's filters of one kind about. */
const kinds: Record<string, (t: Parameters<typeof openStream>[0], other: Service) => Promise<unknown>> = {
  live: async (_, other) => subscribeAll(await other.connect({ jwt: other.admin }), foreign.live),
  stored: async (_, other) => {
    const client = await other.connect({ jwt: other.admin }, { clientId: 'stored', clean: false });
    await subscribeAll(client, foreign.stored);
    await client.endAsync();
  },
  shared: async (_, other) => {
    await subscribeAll(await other.connect({ jwt: other.admin }), foreign.shared, '$share/group/');
    const stored = await other.connect({ jwt: other.admin }, { clientId: 'shared', clean: false });
    await subscribeAll(stored, foreign.shared, '$share/stored/');
    await stored.endAsync();
  },
  streamed: async (t, other) => {
    for (const some of filters.parts(foreign.streamed))
      for (let n = 0; n < some.length; n += 150) await openStream(t, other, some.slice(n, n + 150).join(','));
  },
};

t.test('a message looks at as many filters as without 50,000 foreign ones, and hands them nothing', async (t) => {
  const own = await service.inNewAccount();
  const other = await service.inNewAccount();
  await filters.begin(other);
  const template = await own.template({ channels: ['data'] });
  const listener = await own.connect({ jwt: own.admin });
  await listener.subscribeAsync(own.topic('+', 'data'), { qos: 1 });
  const away = await own.connect({ jwt: own.admin }, { clientId: 'away', clean: false });
  await away.subscribeAsync([own.topic('+', 'data'), `$share/own/${own.topic('+', 'data')}`], { qos: 1 });
  await away.endAsync();
  await openStream(t, own, own.topic('+', 'data'));
  // That a device has connected is told at some time.
  const looks = countLooks(t, (topic) => topic.endsWith('/data'));
  /** How often is looked when a new device publishes: nothing is known yet of its topic. */
  const publish = async () => {
    const { device, secret } = await own.device({ deviceTemplateId: template.id });
    const client = await own.connect({ deviceId: device.id, secret });
    looks();
    for (let n = 0; n < messages; n += 1)
      await client.publishAsync(own.topic(device.id, 'data'), `,x,${n},`, { qos: 1 });
    const seen = looks();
    await client.endAsync();
    return seen;
  };
  const alone = await publish();
  t.ok(alone > 0, `${alone} looks`);
  for (const [kind, begin] of Object.entries(kinds)) {
    await begin(t, other);
    t.equal(await publish(), alone, kind);
  }
});

t.end();
