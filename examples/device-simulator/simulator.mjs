/**
 * Plays devices that update their firmware, each in its own way:
 *
 *   node simulator.mjs --url http://127.0.0.1:3000 --mqtt mqtt://127.0.0.1:1883 --account ID --devices FILE
 *
 * FILE has a JSON object in each line: {"id","secret","way":"http"|"json"|"cbor","fail"?,"slow"?,"losePowerAt"?}.
 * --fail, --slow and --lose-power-at 40% are for all devices: the hash is wrong; bytes are read slowly; the device forgets
 * everything when it has so much, once. It ends when every device has ended its update, and tells how, one line for each.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Decoder, Encoder } from 'cbor-x';
import mqtt from 'mqtt';

const { values: given } = parseArgs({
  options: {
    url: { type: 'string', default: 'http://127.0.0.1:3000' },
    mqtt: { type: 'string', default: 'mqtt://127.0.0.1:1883' },
    account: { type: 'string', default: '' },
    devices: { type: 'string', default: 'devices.ndjson' },
    'topic-root': { type: 'string', default: 'slipway/v1' },
    'control-root': { type: 'string', default: 'slipway/ctrl/v1' },
    fail: { type: 'boolean', default: false },
    slow: { type: 'boolean', default: false },
    'lose-power-at': { type: 'string' },
  },
});
const encoder = new Encoder({ useRecords: false, tagUint8Array: false });
const decoder = new Decoder({ useRecords: false });
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

class PowerLost extends Error {}

/** Bytes of a URL, with what the device suffers on the way. */
async function download(url, device) {
  const response = await fetch(url);
  if (response.status === 429) {
    await pause(200 + Math.random() * 300);
    return download(url, device);
  }
  if (!response.ok) throw new Error(`a download answered ${response.status}`);
  const total = Number(response.headers.get('content-length'));
  const parts = [];
  let bytes = 0;
  for await (const part of response.body) {
    parts.push(part);
    bytes += part.length;
    if (device.slow) await pause(20);
    losePower(device, bytes / total);
  }
  return Buffer.concat(parts);
}

function losePower(device, share) {
  if (device.losePowerAt === undefined || share * 100 < device.losePowerAt) return;
  device.losePowerAt = undefined;
  throw new PowerLost();
}

/** What the device says at last: the hash decides. */
function outcome(device, bytes, sha256, firmwareVersion) {
  if (!device.fail && hash(bytes) === sha256) return { state: 'succeeded', firmwareVersion };
  return { state: 'failed', firmwareVersion, code: -1, message: 'wrong hash' };
}

async function overHttp(device) {
  const authorization = `Basic ${Buffer.from(`${device.id}:${device.secret}`).toString('base64')}`;
  const call = async (path, body) => {
    const headers = { authorization, 'content-type': 'application/json' };
    const request = body ? { method: 'POST', headers, body: JSON.stringify(body) } : { headers };
    const response = await fetch(`${given.url}/api/v1/firmware/${path}`, request);
    if (response.status === 410) return { gone: true };
    if (!response.ok) throw new Error(`${path} answered ${response.status}`);
    return response.json();
  };
  for (;;) {
    const { files, firmwareVersion } = await call('offer');
    if (files.length > 0) {
      const [file] = files;
      const said = outcome(device, await download(file.url, device), file.sha256, firmwareVersion);
      device.said = said.state;
      const answer = await call('status', said);
      return answer.gone ? 'gone' : said.state;
    }
    // The answer to what it has said was lost.
    if (files.length === 0 && device.said) return device.said;
    await pause(300);
  }
}

/** A connection of a device, that breaks with its power. */
async function connected(device, topics, work) {
  const client = await mqtt.connectAsync(given.mqtt, {
    ...{ username: device.id, password: device.secret, reconnectPeriod: 0, connectTimeout: 5000 },
  });
  try {
    const messages = [];
    let wake = () => {};
    client.on('message', (_, payload) => {
      messages.push(payload);
      wake();
    });
    client.on('close', () => wake());
    client.on('error', () => {});
    await client.subscribeAsync(topics, { qos: 1 });
    const next = async (patience = 0) => {
      const until = Date.now() + patience;
      while (messages.length === 0) {
        if (!client.connected) throw new Error('the connection has ended');
        if (patience > 0 && Date.now() > until) return undefined;
        await new Promise((resolve) => {
          wake = resolve;
          setTimeout(resolve, 1000);
        });
      }
      return messages.shift();
    };
    const lost = new Promise((_, reject) => client.once('close', () => reject(new Error('the connection has ended'))));
    return await Promise.race([work(client, next), lost]);
  } finally {
    client.end(true);
  }
}

function overJson(device) {
  const root = `${given['topic-root']}/${given.account}/d/${device.id}`;
  return connected(device, `${root}/_firmware`, async (client, next) => {
    for (;;) {
      const { files, firmwareVersion } = JSON.parse(await next());
      // The acknowledgement of what it has said was lost.
      if (files.length === 0 && device.said) return device.said;
      if (files.length === 0) continue;
      const said = outcome(device, await download(files[0].url, device), files[0].sha256, firmwareVersion);
      device.said = said.state;
      await client.publishAsync(`${root}/_firmware/status`, JSON.stringify(said), { qos: 1 });
      return said.state;
    }
  });
}

function overCbor(device) {
  const root = `${given['control-root']}/${device.id}`;
  return connected(device, `${root}/cln`, async (client, next) => {
    const send = (message) => client.publishAsync(`${root}/svc`, encoder.encode({ msgver: 1, ...message }), { qos: 1 });
    await send({ msgtype: 0, list: [], L: false });
    for (;;) {
      const offer = await next(device.said ? 3000 : 0);
      // Silence: the acknowledgement of what it has said was lost.
      if (!offer) return device.said;
      const { msgtype, list } = decoder.decode(offer);
      if (msgtype !== 1) continue;
      const { N, R, S: size, F } = list[0];
      const parts = [];
      for (let O = 0; O < size; ) {
        await send({ msgtype: 2, N, R, O, L: 1024 });
        const payload = await next(2000);
        const chunk = payload && decoder.decode(payload);
        if (chunk?.msgtype !== 3 || chunk.O !== O) continue;
        if (chunk.S !== 0) return 'gone';
        parts.push(chunk.C);
        O += chunk.L;
        losePower(device, O / size);
      }
      const isRight = !device.fail && hash(Buffer.concat(parts)) === Buffer.from(F).toString('hex');
      device.said = isRight ? 'succeeded' : 'failed';
      await send({ msgtype: 4, N, R, P: isRight ? 5 : 3, S: isRight ? 0 : -1 });
      return isRight ? 'succeeded' : 'failed';
    }
  });
}

const ways = { http: overHttp, json: overJson, cbor: overCbor };

/** A device goes on until it has an end, whatever breaks. */
async function play(device) {
  for (;;) {
    try {
      return await ways[device.way](device);
    } catch {
      await pause(100 + Math.random() * 400);
    }
  }
}

const forAll = {
  ...(given.fail && { fail: true }),
  ...(given.slow && { slow: true }),
  ...(given['lose-power-at'] && { losePowerAt: Number.parseInt(given['lose-power-at'], 10) }),
};
const devices = readFileSync(given.devices, 'utf8')
  .trim()
  .split('\n')
  .map((line) => ({ ...JSON.parse(line), ...forAll }));
await Promise.all(
  devices.map(async (device) => {
    const state = await play(device);
    process.stdout.write(`${JSON.stringify({ id: device.id, state })}\n`);
  }),
);
