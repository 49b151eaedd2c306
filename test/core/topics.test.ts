/** The table of service channels: topics, rights, documentation and metrics follow from it. */
import { readFileSync } from 'node:fs';
import { channelKinds } from '../../broker/connections/counters.ts';
import {
  formatTopic,
  handledChannels,
  parseTopic,
  serviceChannelNames,
  serviceChannels,
} from '../../src/core/topics.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const accountId = '01932c5e-7a10-7000-8000-000000000abc';
const deviceId = '01932c5e-7a10-7abc-8def-000000000abc';

t.test(
  'each service channel has a topic, and only clients that may publish make the broker handle messages',
  async (t) => {
    for (const channel of serviceChannelNames) {
      const topic = formatTopic('slipway/v1', accountId, deviceId, channel);
      t.strictSame(parseTopic('slipway/v1', topic), { accountId, deviceId, channel });
      const handled = handledChannels.some((name) => name === channel);
      t.equal(handled, 'handler' in serviceChannels[channel], channel);
      t.equal(
        channelKinds.some((kind) => kind === channel),
        handled,
        `${channel} is counted`,
      );
    }
    t.equal(parseTopic('slipway/v1', formatTopic('slipway/v1', accountId, deviceId, '_set/more')), undefined);
  },
);

t.test('docs/mqtt.md has a row for each service channel', async (t) => {
  const page = readFileSync('docs/mqtt.md', 'utf8');
  for (const channel of serviceChannelNames) t.ok(page.includes(`\n| \`${channel}\` | `), `${channel} has a row`);
});

t.end();
