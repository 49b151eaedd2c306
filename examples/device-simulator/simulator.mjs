/**
 * node simulator.mjs --url URL --mqtt URL --account ID --devices FILE [--fail] [--slow] [--lose-power-at 40%] [--disconnect-at 40%]
 * plays devices that update their firmware. README.md next to it says what FILE holds and what the flags do.
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
    'disconnect-at': { type: 'string' },
  },
});
const encoder = new Encoder({ useRecords: false, tagUint8Array: false });
const decoder = new Decoder({ useRecords: false });
const hash = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** The power or the connection is lost. */
class Lost extends Error {}

/** What a device has of a file: it stays over disconnections, and goes with the power. */
function keptOf(device, sha256) {
  if (device.kept?.sha256 !== sha256) device.kept = { sha256, parts: [], bytes: 0 };
  return device.kept;
}

async function keep(device, kept, part, total) {
  kept.parts.push(part);
  kept.bytes += part.length;
  const percent = (kept.bytes * 100) / total;
  if (device.slow) await pause(20);
  if (percent >= (device.losePowerAt ?? Number.POSITIVE_INFINITY)) {
    device.losePowerAt = undefined;
    device.kept = undefined;
    throw new Lost();
  }
  if (percent >= (device.disconnectAt ?? Number.POSITIVE_INFINITY)) {
    device.disconnectAt = undefined;
    throw new Lost();
  }
}

/** Bytes of an offered file, with what the device suffers on the way. */
async function download({ url, sha256, size }, device) {
  const kept = keptOf(device, sha256);
  if (kept.bytes < size) {
    const aborter = new AbortController();
    const response = await fetch(url, {
      signal: aborter.signal,
      ...(kept.bytes > 0 && { headers: { range: `bytes=${kept.bytes}-` } }),
    });
    if (response.status === 429) {
      await response.arrayBuffer();
      await pause(200 + Math.random() * 300);
      return download({ url, sha256, size }, device);
    }
    if (response.status !== (kept.bytes > 0 ? 206 : 200)) throw new Error(`a download answered ${response.status}`);
    try {
      for await (const part of response.body) await keep(device, kept, part, size);
    } finally {
      aborter.abort();
    }
  }
  device.kept = undefined;
  return Buffer.concat(kept.parts);
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
  for (let wait = 200; ; wait = Math.min(3000, wait * 1.5)) {
    const { files, firmwareVersion } = await call('offer');
    if (files.length > 0) {
      const [file] = files;
      const said = outcome(device, await download(file, device), file.sha256, firmwareVersion);
      device.said = said.state;
      const answer = await call('status', said);
      return answer.gone ? 'gone' : said.state;
    }
    // The answer to what it has said was lost.
    if (files.length === 0 && device.said) return device.said;
    await pause(wait * (0.5 + Math.random()));
  }
}

/** A connection of a device, that breaks with its power. */
async function connected(device, topics, work) {
  const client = mqtt.connect(given.mqtt, {
    ...{ username: device.id, password: device.secret, reconnectPeriod: 0, connectTimeout: 5000 },
  });
  client.on('error', () => {});
  const lost = new Promise((_, reject) => client.once('close', () => reject(new Error('the connection has ended'))));
  // Every promise of a client that has lost its connection may wait for ever.
  return Promise.race([talk(client, topics, work), lost]).finally(() => client.end(true));
}

async function talk(client, topics, work) {
  await new Promise((resolve) => client.once('connect', resolve));
  const messages = [];
  let wake = () => {};
  client.on('message', (_, payload) => {
    messages.push(payload);
    wake();
  });
  await client.subscribeAsync(topics, { qos: 1 });
  const next = async (patience = 0) => {
    const until = Date.now() + patience;
    while (messages.length === 0) {
      if (patience > 0 && Date.now() > until) return undefined;
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, 1000);
      });
      if (!client.connected) throw new Error('the connection has ended');
    }
    return messages.shift();
  };
  return work(client, next);
}

function overJson(device) {
  const root = `${given['topic-root']}/${given.account}/d/${device.id}`;
  return connected(device, `${root}/_firmware`, async (client, next) => {
    for (;;) {
      const { files, firmwareVersion } = JSON.parse(await next());
      // The acknowledgement of what it has said was lost.
      if (files.length === 0 && device.said) return device.said;
      if (files.length === 0) continue;
      const said = outcome(device, await download(files[0], device), files[0].sha256, firmwareVersion);
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
      const kept = keptOf(device, Buffer.from(F).toString('hex'));
      while (kept.bytes < size) {
        const O = kept.bytes;
        await send({ msgtype: 2, N, R, O, L: 1024 });
        const payload = await next(2000);
        const chunk = payload && decoder.decode(payload);
        if (chunk?.msgtype !== 3 || chunk.O !== O) continue;
        if (chunk.S !== 0) return 'gone';
        await keep(device, kept, chunk.C, size);
      }
      device.kept = undefined;
      const isRight = !device.fail && hash(Buffer.concat(kept.parts)) === kept.sha256;
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

/** What a caller must mend: the program would wait for ever. */
function refuse(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}

/** Percent of a download, as 40 or 40%. */
function percentOf(flag) {
  const text = given[flag];
  if (text === undefined) return undefined;
  if (/^\d{1,3}%?$/.test(text) && Number.parseInt(text, 10) <= 100) return Number.parseInt(text, 10);
  return refuse(`--${flag} must be a percentage, such as 40%.`);
}

const [losePowerAt, disconnectAt] = [percentOf('lose-power-at'), percentOf('disconnect-at')];
const forAll = {
  ...(given.fail && { fail: true }),
  ...(given.slow && { slow: true }),
  ...(losePowerAt !== undefined && { losePowerAt }),
  ...(disconnectAt !== undefined && { disconnectAt }),
};
const devices = readFileSync(given.devices, 'utf8')
  .trim()
  .split('\n')
  .map((line) => ({ ...JSON.parse(line), ...forAll }));
for (const { id, way } of devices)
  if (!Object.hasOwn(ways, way)) refuse(`The way of ${id} must be http, json or cbor.`);
await Promise.all(
  devices.map(async (device) => {
    const state = await play(device);
    process.stdout.write(`${JSON.stringify({ id: device.id, state })}\n`);
  }),
);
