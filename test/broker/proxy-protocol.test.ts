import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import mqtt from 'mqtt';
import mqttPacket from 'mqtt-packet';
import type { Test } from 'tap';
import { readProxyHeader } from '../../broker/connections/proxy-protocol.ts';
import { part } from '../support/part.ts';
import { unlessBehindProxy } from '../support/service.ts';
import { until } from '../support/until.ts';
import { certificate } from './certificate.ts';
import { type Fixture, fixture, rawConnected } from './fixture.ts';
import { hits } from './metrics.ts';
import { connectPacket, rawClient, speak } from './raw.ts';

const t = await part(import.meta);

const trusting = { SLIPWAY_TRUSTED_PROXIES: '127.0.0.0/8' };
const line = (address: string) => Buffer.from(`PROXY TCP4 ${address} 192.0.2.1 56324 1883\r\n`);
const signature = '0d0a0d0a000d0a515549540a';

/** A header of version 2; `rest` is what follows its length, in hexadecimal. */
function binary(command: string, protocol: string, rest: string): Buffer {
  const length = (rest.length / 2).toString(16).padStart(4, '0');
  return Buffer.from(signature + command + protocol + length + rest, 'hex');
}

const [ports, addition] = ['dc04075b', '0400050102030405'];
const version6 = '20010db8000000000000000000000007';
const connects = ({ device, secret }: Fixture) =>
  mqttPacket.generate(connectPacket({ username: device.id, password: Buffer.from(secret) }));

/** Passes once the device is shown with this address. What the broker sees of devices is written at intervals, so a time is waited for. */
async function seenAs(t: Test, { service, device }: Fixture, expected: string, what: string): Promise<void> {
  await until(async () => (await service.ok('GET', `/api/v1/devices/${device.id}`)).device.externalIp === expected);
  t.pass(what);
}

async function eachByte(socket: Socket, bytes: Buffer): Promise<void> {
  socket.setNoDelay(true);
  for (const byte of bytes) {
    await new Promise((resolve) => socket.write(Buffer.from([byte]), resolve));
    await nextTurn();
  }
}

/** A proxy on a port of its own that puts a header right before the first bytes of each client. */
async function proxy(t: Test, port: number, header: Buffer): Promise<number> {
  const server = createServer((client) => {
    const up = connect(port, '127.0.0.1');
    client.once('data', (first) => {
      up.write(Buffer.concat([header, first as Buffer]));
      client.pipe(up);
      up.pipe(client);
    });
    for (const [one, other] of [
      [client, up],
      [up, client],
    ] as const) {
      one.on('error', () => {});
      one.once('close', () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

t.test('valid and invalid headers', async (t) => {
  for (const text of [
    'PROXY TCP4 1.2.3.4 5.6.7.8 1 65535\r\n',
    'PROXY TCP6 2001:db8::1 ::1 1 2\r\n',
    'PROXY UNKNOWN\r\n',
    'PROXY UNKNOWN x y\r\n',
  ])
    for (let length = 0; length <= text.length; length += 1)
      t.equal(
        readProxyHeader(Buffer.from(text).subarray(0, length)).is,
        length === text.length ? 'present' : 'incomplete',
      );
  for (const text of [
    'PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n',
    'PROXY TCP4 1.2.3.4 5.6.7.8 1 -1\r\n',
    'PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n',
    'PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n',
    'PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n',
    'PROXY TCP4 ::1 ::1 1 2\r\n',
    'PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n',
    'PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n',
    'PROXY TCP6 ::1 fe80::1%<script> 1 2\r\n',
    'PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n',
    'PROXY \r\n',
    `PROXY ${'x'.repeat(101)}`,
    `PROXY UNKNOWN ${'x'.repeat(100)}\r\n`,
  ])
    t.equal(readProxyHeader(Buffer.from(text)).is, 'malformed', text);
  for (const text of ['', 'P', 'PRO', '\r\n\r\n']) t.equal(readProxyHeader(Buffer.from(text)).is, 'incomplete');
  for (const text of ['\x10', '\x16', 'GET ', 'POST', 'PRI * HTTP/2', 'PROPFIND', '\r\n\r\n\0\r\nQUIX', 'proxy '])
    t.equal(readProxyHeader(Buffer.from(text)).is, 'absent', text);
  const four = `01020304c0000201${ports}`;
  for (const [command, protocol, rest, is] of [
    ['21', '11', four, 'present'],
    ['21', '11', four.slice(2), 'malformed'],
    ['21', '21', four, 'malformed'],
    ['31', '11', four, 'malformed'],
    ['22', '11', four, 'malformed'],
    ['20', '00', '', 'present'],
    ['21', '31', '00'.repeat(216), 'present'],
    ['21', '11', '00'.repeat(4096), 'present'],
    ['21', '11', '00'.repeat(4097), 'malformed'],
  ] as const)
    t.equal(readProxyHeader(binary(command, protocol, rest)).is, is, `${command} ${protocol} ${rest.length / 2}`);
  for (let length = 0; length < 28; length += 1)
    t.equal(readProxyHeader(binary('21', '11', four).subarray(0, length)).is, 'incomplete');
});

const asProxy = unlessBehindProxy('the test is the proxy in front of the cell, and gives the addresses itself');
t.test('from a trusted sender', asProxy, async (t) => {
  const f = await fixture(t, { ...certificate(t), ...trusting });
  const { mqttPort } = f.service.server;
  const tlsPort = f.service.mqttsPort;
  const plain = async (...chunks: Buffer[]) => {
    const client = await rawClient(t, mqttPort);
    for (const chunk of chunks) client.send(chunk);
    t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
  };

  await t.test('the header says where a device comes from, in both versions', async (t) => {
    await plain(line('203.0.113.1'), connects(f));
    await seenAs(t, f, '203.0.113.1', 'version 1');
    await plain(Buffer.concat([binary('21', '11', `cb007102c0000201${ports}${addition}`), connects(f)]));
    await seenAs(t, f, '203.0.113.2', 'version 2, with more than addresses, in one piece with the CONNECT');
    await plain(binary('21', '21', version6 + version6 + ports), connects(f));
    await seenAs(t, f, '2001:db8::7', 'version 2, IPv6');
    await plain(Buffer.from('PROXY TCP6 2001:DB8:0::8 ::1 1 2\r\n'), connects(f));
    await seenAs(t, f, '2001:db8::8', 'version 1, IPv6, in one form');
    await plain(Buffer.from('PROXY TCP6 ::ffff:203.0.113.4 ::1 1 2\r\n'), connects(f));
    await seenAs(t, f, '203.0.113.4', 'IPv4 over IPv6');
  });

  await t.test('without an address, or without a header, it is the peer', async (t) => {
    const spellings = [
      binary('20', '00', ''),
      Buffer.from('PROXY UNKNOWN\r\n'),
      binary('21', '31', '00'.repeat(216)),
      Buffer.alloc(0),
    ];
    for (const header of spellings) {
      await plain(line('203.0.113.1'), connects(f));
      await seenAs(t, f, '203.0.113.1', 'elsewhere');
      await plain(header, connects(f));
      await seenAs(t, f, '127.0.0.1', `${header.toString('latin1').trim() || 'none'}`);
    }
  });

  await t.test('byte by byte, on TCP and before a TLS handshake', async (t) => {
    const client = await rawClient(t, mqttPort);
    await eachByte(client.socket, Buffer.concat([line('203.0.113.11'), connects(f)]));
    t.match(await client.next(), { cmd: 'connack', returnCode: 0 });
    await seenAs(t, f, '203.0.113.11', 'TCP');
    const socket = connect(tlsPort, '127.0.0.1');
    t.teardown(() => socket.destroy());
    await eachByte(socket, binary('21', '11', `cb00710cc0000201${ports}`));
    const secure = speak(connectTls({ socket }));
    secure.send(connects(f));
    t.match(await secure.next(), { cmd: 'connack', returnCode: 0 });
    await seenAs(t, f, '203.0.113.12', 'TLS');
  });

  await t.test(
    'in one piece with the handshake, for MQTT and WebSocket on the TLS port; without one too',
    async (t) => {
      const options = { username: f.device.id, password: f.secret, rejectUnauthorized: false, reconnectPeriod: 0 };
      const more = { wsOptions: { rejectUnauthorized: false } };
      for (const [scheme, path, last] of [
        ['mqtts', '', 13],
        ['wss', '/mqtt', 14],
      ] as const) {
        const port = await proxy(t, tlsPort, line(`203.0.113.${last}`));
        const client = await mqtt.connectAsync(`${scheme}://127.0.0.1:${port}${path}`, { ...options, ...more });
        await seenAs(t, f, `203.0.113.${last}`, scheme);
        await client.endAsync(true);
      }
      const direct = await mqtt.connectAsync(`mqtts://127.0.0.1:${tlsPort}`, options);
      await seenAs(t, f, '127.0.0.1', 'directly');
      await direct.endAsync(true);
    },
  );

  await t.test('a WebSocket comes from where X-Forwarded-For says, as over HTTP', async (t) => {
    const open = (forwarded: string) =>
      mqtt.connectAsync(`${f.service.server.url.replace('http', 'ws')}/mqtt`, {
        username: f.device.id,
        password: f.secret,
        reconnectPeriod: 0,
        wsOptions: { rejectUnauthorized: false, headers: { 'x-forwarded-for': forwarded } },
      });
    for (const [forwarded, expected] of [
      ['203.0.113.20', '203.0.113.20'],
      ['198.51.100.9, 203.0.113.21, 127.0.0.9', '203.0.113.21'],
      ['203.0.113.20, nonsense', '127.0.0.1'],
      ['::ffff:cb00:7116', '203.0.113.22'],
      ['2001:DB8:0::9', '2001:db8::9'],
      ['203.0.113.23:55', '203.0.113.23'],
    ] as const) {
      const client = await open(forwarded);
      await seenAs(t, f, expected, forwarded);
      await client.endAsync(true);
    }
  });

  await t.test('an invalid header ends the connection', async (t) => {
    for (const port of [mqttPort, tlsPort]) {
      for (const bytes of [
        Buffer.from('PROXY nonsense\r\n'),
        binary('21', '11', '00'),
        Buffer.from(`PROXY ${'x'.repeat(200)}`),
      ]) {
        const client = await rawClient(t, port);
        client.send(bytes);
        await client.closed;
      }
      const leaving = await rawClient(t, port);
      leaving.send(Buffer.from('PROXY '));
      leaving.socket.end();
      await leaving.closed;
    }
    t.equal(await hits(f, 'connect_timeout_seconds'), 0, 'all of that at once');
    await rawConnected(t, f);
  });
});

t.test('a header that never ends meets the deadline', asProxy, async (t) => {
  const f = await fixture(t, { ...certificate(t), ...trusting, SLIPWAY_MQTT_CONNECT_TIMEOUT_SECONDS: '1' });
  const endless = await rawClient(t, f.service.server.mqttPort);
  const trickling = await rawClient(t, f.service.mqttsPort);
  trickling.send(Buffer.from(`${signature}2111`, 'hex'));
  endless.send(Buffer.from('PROXY TCP4 '));
  await Promise.all([endless.closed, trickling.closed]);
  t.equal(await hits(f, 'connect_timeout_seconds'), 2);
});

t.test('from anybody else a header is an error, and X-Forwarded-For is ignored', asProxy, async (t) => {
  const f = await fixture(t, { ...certificate(t), SLIPWAY_TRUSTED_PROXIES: '192.0.2.0/24' });
  for (const port of [f.service.server.mqttPort, f.service.mqttsPort])
    for (const header of [line('192.0.2.9'), binary('21', '11', `c0000209c0000201${ports}`)]) {
      const client = await rawClient(t, port);
      client.send(header, connects(f));
      await t.rejects(client.next());
      await client.closed;
    }
  const client = await mqtt.connectAsync(`${f.service.server.url.replace('http', 'ws')}/mqtt`, {
    username: f.device.id,
    password: f.secret,
    reconnectPeriod: 0,
    wsOptions: { rejectUnauthorized: false, headers: { 'x-forwarded-for': '203.0.113.20' } },
  });
  await seenAs(t, f, '127.0.0.1', 'the peer');
  await client.endAsync(true);
});

t.end();
