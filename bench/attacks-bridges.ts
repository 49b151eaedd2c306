/** Harm that is done with what leaves: bridges and event streams. */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Attack, again, ask, demand, type Means, open } from './attack-tools.ts';
import { floodChat } from './attacks-mqtt.ts';

/** As many as an account may have. */
const maxBridges = 5;
/** The default of SLIPWAY_MQTT_MAX_PAYLOAD_BYTES. */
const maxPayloadBytes = 131_072;
/** The default of SLIPWAY_MQTT_MAX_CONNECTIONS_PER_PRINCIPAL. */
const maxStreams = 200;
/** What a stream that comes back gets at most: messages, and characters in them. */
const maxMissed = { messages: 9900, characters: 400 };
const env = { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' };

export const bridgeAttacks: Record<string, Attack> = {
  'hanging-targets': {
    shows: `${maxBridges} bridges whose targets never answer, best effort and guaranteed, while devices flood`,
    env,
    run: async (means, begun) => {
      await bridge(means, () => {});
      begun();
      await floodChat(means, 20);
    },
  },
  replays: {
    shows: `${maxBridges} bridges that deliver the same 800 messages of 128 KiB again and again`,
    env,
    run: async (means, begun) => {
      const ids = await bridge(means, (response) => response.end());
      await post(means, 160, Buffer.alloc(maxPayloadBytes, 'x'));
      await sleep(2000);
      begun();
      await Promise.all(ids.map((id) => again(1, () => replay(means, id, '2100-01-01T00:00:00Z'))));
    },
  },
  'empty-replays': {
    shows: `replays that find nothing, and reads of bridges that keep 100,000 messages, 64 at once`,
    env,
    run: async (means, begun) => {
      const ids = await bridge(means, (response) => response.end());
      await post(means, 20_000, Buffer.from(',x,1,'));
      await sleep(5000);
      begun();
      await again(64, (n) =>
        n % 2
          ? replay(means, ids[n % maxBridges] ?? '', '2001-01-01T00:00:00Z')
          : ask(means, 'GET', `/bridges/${ids[n % maxBridges]}`),
      );
    },
  },
  'dead-letters': {
    shows: 'pages of 100 dead letters of 128 KiB, 16 at once, and messages that their targets refuse',
    env,
    run: async (means, begun) => {
      const ids = await bridge(means, (response) => response.writeHead(400).end());
      await post(means, 160, Buffer.alloc(maxPayloadBytes, 'x'));
      await sleep(5000);
      begun();
      await Promise.all([
        again(16, (n) => ask(means, 'GET', `/bridges/${ids[n % maxBridges]}/dead-letters?pageSize=100`)),
        ...ids.map((id) => again(1, () => replay(means, id, '2100-01-01T00:00:00Z'))),
      ]);
    },
  },
  'missed-streams': {
    shows: `${maxStreams} event streams that come back, have missed as much as is sent again, and do not read it`,
    run: async (means, begun) => {
      const [first] = means.devices;
      if (!first) throw new Error('no device');
      const path = `/stream?topics=${encodeURIComponent(`slipway/v1/${means.accountId}/d/+/_log`)}`;
      const after = await firstEventId(means, path);
      const entries = Array.from({ length: 100 }, () => ({ message: 'x'.repeat(maxMissed.characters - 90) }));
      for (let n = 0; n < maxMissed.messages / 100; n += 1)
        await ask(means, 'POST', `/devices/${first.id}/logs`, { body: entries });
      begun();
      await again(maxStreams, () => ask(means, 'GET', path, { deaf: true, headers: { 'last-event-id': after } }));
    },
  },
};

/** Makes bridges that get all that the devices chat, guaranteed. @returns their ids. */
async function bridge(means: Means, answer: (response: ServerResponse) => void): Promise<string[]> {
  const server = createServer((request, response) => {
    request.resume().once('end', () => answer(response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const { accountId, deviceTemplateId } = means;
  const list = `/channels/templates?accountId=${accountId}&pageSize=1000`;
  type Channel = { id: string; name: string; version: number; entityId?: string };
  const found = await demand<Record<string, { results: Channel[] }>>(means, 'GET', list);
  const [channels] = Object.values(found);
  const chat = channels?.results.find(({ name }) => name === 'chat');
  if (!chat) throw new Error(`no channel of ${deviceTemplateId}`);
  await demand(means, 'PUT', `/channels/templates/${chat.id}`, {
    body: { streamBridgeDelivery: 2 },
    headers: { etag: String(chat.version) },
  });
  const ids: string[] = [];
  for (let n = 0; n < maxBridges; n += 1) {
    const body = { accountId, name: `Bridge ${n}`, kind: 'webhook', url: `http://127.0.0.1:${port}/` };
    ids.push((await demand<{ bridge: { id: string } }>(means, 'POST', '/bridges', { body })).bridge.id);
  }
  return ids;
}

/** Publishes so many messages on channels with bridges. */
async function post(means: Means, count: number, payload: Buffer): Promise<void> {
  let left = count;
  const publish = async (place: number) => {
    const { id, secret, root } = means.devices[place] as Means['devices'][number];
    const headers = { 'content-type': 'application/octet-stream', 'content-length': String(payload.length) };
    while (left > 0) {
      left -= 1;
      await ask(means, 'POST', `/messaging/publish/${root}/chat`, { as: { id, secret }, body: payload, headers });
    }
  };
  await Promise.all(Array.from({ length: 32 }, (_, place) => publish(place)));
}

function replay(means: Means, id: string, to: string): Promise<number> {
  return ask(means, 'POST', `/bridges/${id}/replay`, { body: { from: '2000-01-01T00:00:00Z', to } });
}

async function firstEventId(means: Means, path: string): Promise<string> {
  const asking = open(means, 'GET', path);
  asking.end();
  return new Promise((resolve, reject) => {
    asking.once('error', reject);
    asking.once('response', (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk) => {
        text += chunk;
        const [, id] = /^id: (\S+)$/m.exec(text) ?? [];
        if (id === undefined) return;
        asking.destroy();
        resolve(id);
      });
      answer.on('error', () => {});
    });
  });
}
