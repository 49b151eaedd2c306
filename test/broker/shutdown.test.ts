/** The end of the process with every kind of connection open. */
import { once } from 'node:events';
import { connect } from 'node:net';
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { WebSocket } from 'ws';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { type Running, startProcess } from '../support/process.ts';
import { adminEmail, adminPassword } from '../support/service.ts';
import { certificate } from './certificate.ts';

const t = await part(import.meta);

async function startedWith(
  t: Test,
  env: Record<string, string>,
): Promise<Running & { mqttsPort: number; jwt: string }> {
  const server = await startProcess(t, temporaryDirectory(t), { SLIPWAY_MQTTS_PORT: '0', ...env });
  const accountId = /account\s+(\S{36})/.exec(server.output())?.[1];
  const response = await fetch(`${server.url}/api/v1/auth/login-user`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accountId, emailAddress: adminEmail, password: adminPassword }),
  });
  const { jwt } = (await response.json()) as { jwt: string };
  return { ...server, jwt, mqttsPort: Number(/^MQTT over TLS \S+:(\d+)/m.exec(server.output())?.[1]) };
}

/** Closing what is open takes no time: what it waits for is cut off after a while, or ends the process with 1. */
async function endsQuickly(t: Test, server: Running): Promise<void> {
  t.equal(await server.stop('SIGTERM'), 0);
  t.notMatch(server.output(), 'cut off');
}

async function openMqtt(t: Test, url: string, password: string, clientId: string): Promise<void> {
  const login = { username: 'Auth:JWT', password, clientId, reconnectPeriod: 0 };
  const client = await mqtt.connectAsync(url, { ...login, rejectUnauthorized: false });
  client.on('error', () => {});
  t.teardown(() => client.end(true));
}

async function openIdle(t: Test, url: string): Promise<void> {
  const socket = new WebSocket(url, ['mqtt']);
  socket.on('error', () => {});
  t.teardown(() => socket.terminate());
  await once(socket, 'open');
}

t.test('SIGTERM with MQTT over WebSocket and idle WebSockets open ends quickly with exit 0', async (t) => {
  const server = await startedWith(t, {});
  const url = `${server.url.replace('http', 'ws')}/mqtt`;
  await openMqtt(t, url, server.jwt, 'a');
  await openMqtt(t, `mqtt://127.0.0.1:${server.mqttPort}`, server.jwt, 'b');
  await openIdle(t, url);
  await endsQuickly(t, server);
});

t.test('and so it does over TLS, on both ports', async (t) => {
  const server = await startedWith(t, certificate(t));
  const web = `${server.url.replace('http', 'ws')}/mqtt`;
  const native = `127.0.0.1:${server.mqttsPort}`;
  for (const [n, url] of [web, `wss://${native}/mqtt`].entries()) {
    await openMqtt(t, url, server.jwt, `client ${n}`);
    await openIdle(t, url);
  }
  await openMqtt(t, `mqtts://${native}`, server.jwt, 'native');
  await endsQuickly(t, server);
});

t.test('SIGTERM waits for nobody who has opened a TLS port and said nothing', async (t) => {
  const server = await startedWith(t, { ...certificate(t), SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '0' });
  for (const port of [server.mqttsPort, Number(new URL(server.url).port)]) {
    for (let n = 0; n < 40; n += 1) {
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
      t.teardown(() => socket.destroy());
      socket.on('error', () => {});
      await once(socket, 'connect');
    }
  }
  // What is served after them shows that the server has seen them all.
  await openMqtt(t, `mqtts://127.0.0.1:${server.mqttsPort}`, server.jwt, 'last');
  await openIdle(t, `${server.url.replace('http', 'ws')}/mqtt`);
  await endsQuickly(t, server);
});

t.end();
