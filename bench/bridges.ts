/** What bridges cost publishers: acknowledged QoS 1 messages on a stored channel at each level. The server is a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { generate } from 'mqtt-packet';

const connections = 4;
const inFlight = 500;
const perRun = 60_000;
const rounds = 3;
/** Bytes of a PUBACK. */
const pubackSize = 4;
const payload = ',temperature,21.5,';
const admin = { emailAddress: 'bench@bench.example', password: 'a password of the bench' };

export async function measureBridges(directory: string): Promise<void> {
  const accountId = '00000000-0000-7000-8000-00000000b0b0';
  const server = spawn(process.execPath, [fileURLToPath(new URL('../src/main.js', import.meta.url))], {
    env: {
      PATH: process.env.PATH,
      SLIPWAY_DATA_DIR: directory,
      SLIPWAY_HTTP_PORT: '0',
      SLIPWAY_MQTT_PORT: '0',
      SLIPWAY_LOG_LEVEL: 'error',
      SLIPWAY_ACCOUNT_ID: accountId,
      SLIPWAY_ADMIN_EMAIL: admin.emailAddress,
      SLIPWAY_ADMIN_PASSWORD: admin.password,
      SLIPWAY_MQTT_PUBLISH_RATE_PER_CLIENT: '0',
      SLIPWAY_BRIDGE_ALLOW_PRIVATE: 'true',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let accepted = 0;
  let away = false;
  const target = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      if (!away) accepted += body.split('"id":').length - 1;
      response.writeHead(away ? 503 : 200).end();
    });
  });
  target.listen(0, '127.0.0.1');
  await once(target, 'listening');
  try {
    const { url, mqttPort } = await addressesOf(server.stdout);
    let token = '';
    const call = async (path: string, body: object) => {
      const response = await fetch(url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
        body: JSON.stringify({ accountId, ...body }),
      });
      // biome-ignore lint/suspicious/noExplicitAny: answers are read as a script would
      return (await response.json()) as any;
    };
    token = (await call('/auth/login-user', admin)).jwt;
    const { deviceTemplate } = await call('/devices/templates', { name: 'Bridged' });
    for (const streamBridgeDelivery of [0, 1, 2])
      await call('/channels/templates', {
        entityId: deviceTemplate.id,
        entityType: 'deviceTemplate',
        name: `level${streamBridgeDelivery}`,
        persistenceType: 'timeSeries',
        streamBridgeDelivery,
      });
    const { port } = target.address() as AddressInfo;
    await call('/bridges', { name: 'bench', kind: 'webhook', url: `http://127.0.0.1:${port}/` });
    const clients: Client[] = [];
    for (let n = 0; n < connections; n += 1) {
      const body = { serialNumber: `${n}`, deviceTemplateId: deviceTemplate.id };
      const { device } = await call('/devices', body);
      const about = { entityId: device.id, entityType: 'device' };
      const { mqttCredential } = await call('/access/mqtt-credentials', about);
      clients.push(
        await connected(mqttPort, device.id, mqttCredential.secret, `slipway/v1/${accountId}/d/${device.id}`),
      );
    }
    const scenarios = [
      { name: 'level 0', channel: 'level0', isAway: false },
      { name: 'level 1', channel: 'level1', isAway: false },
      { name: 'level 2', channel: 'level2', isAway: false },
      { name: 'level 1, target away', channel: 'level1', isAway: true },
      { name: 'level 2, target away', channel: 'level2', isAway: true },
    ];
    const rates = new Map<string, number[]>();
    for (let round = 0; round < rounds; round += 1)
      for (const { name, channel, isAway } of scenarios) {
        away = isAway;
        const before = accepted;
        const from = performance.now();
        await Promise.all(clients.map((client) => publish(client, channel, perRun / connections)));
        const seconds = (performance.now() - from) / 1000;
        rates.set(name, [...(rates.get(name) ?? []), perRun / seconds]);
        // What is still on its way must not burden the next run.
        if (channel !== 'level0' && !isAway) await settled(() => accepted, before);
      }
    const middle = (all: number[]) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)] ?? 0;
    const base = middle(rates.get('level 0') ?? []);
    for (const [name, all] of rates) {
      const rate = middle(all);
      console.log(`${name.padEnd(22)} ${Math.round(rate)} acknowledged msg/s, ${(rate / base).toFixed(2)} of level 0`);
    }
    for (const { socket } of clients) socket.destroy();
  } finally {
    server.kill('SIGTERM');
    await once(server, 'exit');
    target.close();
    target.closeAllConnections();
  }
}

interface Client {
  socket: Socket;
  root: string;
}

async function connected(port: number, username: string, password: string, root: string): Promise<Client> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  const credentials = { username, password: Buffer.from(password) };
  socket.write(
    generate({
      cmd: 'connect',
      protocolId: 'MQTT',
      protocolVersion: 4,
      clean: true,
      keepalive: 0,
      clientId: username,
      ...credentials,
    }),
  );
  const [connack] = (await once(socket, 'data')) as [Buffer];
  if (connack[3] !== 0) throw new Error(`CONNACK ${connack[3]}`);
  return { socket, root };
}

/** Keeps so many in flight until `count` have been acknowledged. */
function publish({ socket, root }: Client, channel: string, count: number): Promise<void> {
  let sent = 0;
  let bytes = 0;
  const send = (more: number) => {
    const packets: Buffer[] = [];
    for (const last = Math.min(sent + more, count); sent < last; ) {
      sent += 1;
      const messageId = (sent % 65_535) + 1;
      const about = { topic: `${root}/${channel}`, payload, qos: 1 as const, messageId, dup: false, retain: false };
      packets.push(generate({ cmd: 'publish', ...about }));
    }
    if (packets.length > 0) socket.write(Buffer.concat(packets));
  };
  return new Promise((resolve) => {
    const listen = (chunk: Buffer) => {
      const before = Math.floor(bytes / pubackSize);
      bytes += chunk.length;
      const acknowledged = Math.floor(bytes / pubackSize);
      if (acknowledged < count) {
        send(acknowledged - before);
        return;
      }
      socket.off('data', listen);
      resolve();
    };
    socket.on('data', listen);
    send(inFlight);
  });
}

/** When nothing more has arrived for a while. */
async function settled(read: () => number, before: number): Promise<void> {
  for (let last = before - 1; read() !== last; ) {
    last = read();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

function addressesOf(stdout: NodeJS.ReadableStream): Promise<{ url: string; mqttPort: number }> {
  let printed = '';
  return new Promise((resolve, reject) => {
    stdout.on('data', (chunk) => {
      printed += chunk;
      const [, url] = /API (http\S+\/api\/v1)/.exec(printed) ?? [];
      const [, port] = /^MQTT \S+:(\d+) .*\n/m.exec(printed) ?? [];
      if (url && port) resolve({ url, mqttPort: Number(port) });
    });
    stdout.once('end', () => reject(new Error(`the server did not start: ${printed}`)));
  });
}
