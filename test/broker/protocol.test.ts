/** MQTT to the letter, over real sockets: what any client can meet. */
import mqtt from 'mqtt';
import t from 'tap';
import { certificate } from './certificate.js';
import { fixture, rawConnected } from './fixture.js';
import { subscribePacket } from './raw.js';

t.test('refused SUBSCRIBEs in one write are each answered', async (t) => {
  const f = await fixture(t);
  const client = await rawConnected(t, f);
  for (const [first, second, third] of [
    ['chat', 'nothing', 'chat'],
    ['nothing', 'chat', 'nothing'],
    ['nothing', 'nothing', 'nothing'],
  ] as const) {
    client.send(
      subscribePacket(1, [f.topic(first), 1]),
      subscribePacket(2, [f.topic(second), 1]),
      { cmd: 'pingreq' },
      subscribePacket(3, [f.topic(third), 1]),
    );
    const code = (name: string) => [name === 'chat' ? 1 : 128];
    t.match(await client.next(), { cmd: 'suback', messageId: 1, granted: code(first) });
    t.match(await client.next(), { cmd: 'suback', messageId: 2, granted: code(second) });
    t.match(await client.next(), { cmd: 'pingresp' });
    t.match(await client.next(), { cmd: 'suback', messageId: 3, granted: code(third) });
  }
});

t.test('MQTT over WebSocket is served at / beside /mqtt, on the HTTP port and on the TLS port', async (t) => {
  const f = await fixture(t, certificate(t));
  const { url, ctx } = f.service.server;
  const login = { username: f.device.id, password: f.secret, reconnectPeriod: 0 };
  const options = { ...login, rejectUnauthorized: false, wsOptions: { rejectUnauthorized: false } };
  const secure = `wss://127.0.0.1:${ctx.broker.addresses.mqtts}`;
  for (const at of [url.replace('http', 'ws'), secure].flatMap((base) => [
    `${base}/`,
    `${base}/?a=1`,
    `${base}/mqtt`,
  ])) {
    const client = await mqtt.connectAsync(at, options);
    t.equal((await client.subscribeAsync(f.topic('chat')))[0]?.qos, 0, at);
    await client.endAsync();
  }
});
