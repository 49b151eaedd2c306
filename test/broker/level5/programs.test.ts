/** Clients of MQTT 5 as they are: mqtt.js and Paho over TCP, TLS and WebSocket, libmosquitto, and the programs of Mosquitto. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import mqtt, { type IClientOptions, type IPublishPacket, type MqttClient } from 'mqtt';
import type { Test } from 'tap';
import { pythons } from '../../docs/snippets/python.ts';
import { temporaryDirectory } from '../../support/directory.ts';
import { part } from '../../support/part.ts';
import { nextMessage } from '../../support/service.ts';
import { until } from '../../support/until.ts';
import { certificateFiles } from '../certificate.ts';
import { type Fixture, secureFixture } from '../fixture.ts';
import { ownDevice } from './client.ts';

const t = await part(import.meta);
const run = promisify(execFile);
const here = import.meta.dirname;

/** Connects over one of the ways of the listeners. */
async function joined(t: Test, f: Fixture, url: string, more: IClientOptions = {}): Promise<MqttClient> {
  const who = { username: f.device.id, password: f.secret, protocolVersion: 5 as const };
  const client = await mqtt.connectAsync(url, { ...who, reconnectPeriod: 0, rejectUnauthorized: false, ...more });
  t.teardown(() => client.endAsync(true));
  return client;
}

function next(client: MqttClient): Promise<IPublishPacket> {
  return new Promise((resolve) => client.once('message', (_topic, _payload, packet) => resolve(packet)));
}

t.test('mqtt.js speaks MQTT 5 over TCP, TLS and WebSocket', async (t) => {
  const f = await secureFixture(t);
  const { mqttsPort, server } = f.service;
  const ways = [
    `mqtt://127.0.0.1:${server.mqttPort}`,
    `mqtts://127.0.0.1:${mqttsPort}`,
    `wss://127.0.0.1:${mqttsPort}/mqtt`,
  ];
  const topic = f.topic('chat');
  for (const url of ways) {
    const topicAliasMaximum = 8;
    const client = await joined(t, f, url, { properties: { topicAliasMaximum }, autoAssignTopicAlias: true });
    await client.subscribeAsync(topic, { qos: 2, properties: { subscriptionIdentifier: 9 } });
    for (const qos of [0, 1, 2] as const) {
      const back = next(client);
      const properties = { responseTopic: topic, correlationData: Buffer.from('c'), userProperties: { a: ['1', '2'] } };
      await client.publishAsync(topic, `${qos}`, { qos, properties });
      t.match(await back, { qos, properties: { ...properties, subscriptionIdentifier: 9 } }, `${url} ${qos}`);
    }
  }
});

t.test('mqtt.js: a will with a delay, a stored session and a shared subscription', async (t) => {
  const f = await ownDevice(t);
  const url = `mqtt://127.0.0.1:${f.service.server.mqttPort}`;
  const topic = f.topic('chat');
  const kept = { clientId: 'kept', clean: false, properties: { sessionExpiryInterval: 60 } };
  const first = await joined(t, f, url, kept);
  await first.subscribeAsync(`$share/g/${topic}`, { qos: 1 });
  await first.endAsync();
  const will = {
    topic,
    payload: Buffer.from('gone'),
    qos: 1 as const,
    retain: false,
    properties: { willDelayInterval: 1 },
  };
  const leaving = await joined(t, f, url, { will, properties: { sessionExpiryInterval: 60 } });
  const since = performance.now();
  leaving.stream.destroy();
  const again = mqtt.connect(url, { username: f.device.id, password: f.secret, protocolVersion: 5, ...kept });
  t.teardown(() => again.endAsync(true));
  const connected = new Promise((resolve) => again.once('connect', resolve));
  const [heard, connack] = await Promise.all([next(again), connected]);
  t.match(connack, { sessionPresent: true });
  t.equal(heard.payload.toString(), 'gone');
  t.ok(performance.now() - since > 900, 'not before its delay');
});

t.test('mqtt.js uses topic aliases in both directions, and two share a subscription', async (t) => {
  const f = await ownDevice(t);
  const url = `mqtt://127.0.0.1:${f.service.server.mqttPort}`;
  const topic = f.topic('chat');
  const heard: string[][] = [[], []];
  const received: IPublishPacket[] = [];
  for (const own of heard) {
    const member = await joined(t, f, url, { properties: { topicAliasMaximum: 4 } });
    member.on('message', (_topic, payload) => own.push(payload.toString()));
    member.on('packetreceive', (packet) => packet.cmd === 'publish' && received.push({ ...packet }));
    await member.subscribeAsync(`$share/g/${topic}`, { qos: 1 });
  }
  const sender = await joined(t, f, url, { autoAssignTopicAlias: true });
  const sent: IPublishPacket[] = [];
  sender.on('packetsend', (packet) => packet.cmd === 'publish' && sent.push(packet));
  const texts = Array.from({ length: 8 }, (_, n) => `${n}`);
  for (const text of texts) await sender.publishAsync(topic, text, { qos: 1 });
  await until(() => heard.flat().length === texts.length);
  t.same(heard.flat().sort(), texts);
  t.same(
    heard.map(({ length }) => length),
    [4, 4],
    'in turns',
  );
  for (const [packets, named] of [
    [sent, 1],
    [received, 2],
  ] as const) {
    const [first, ...others] = packets.filter(({ properties }) => properties?.topicAlias === 1);
    t.equal(others.length, texts.length - 1, 'each has the alias');
    t.equal(first?.topic, topic);
    t.equal(others.filter(({ topic }) => topic !== '').length, named - 1, 'and each connection names the topic once');
  }
});

const withoutMosquitto = spawnSync('mosquitto_pub', ['--help']).error && { skip: 'mosquitto_pub is not installed' };
for (const way of ['TCP', 'TLS'] as const)
  t.test(`mosquitto_sub and mosquitto_pub with -V 5 over ${way}`, { ...withoutMosquitto }, async (t) => {
    const f = way === 'TLS' ? await secureFixture(t) : await ownDevice(t);
    const topic = f.topic('chat');
    const { mqttsPort, server } = f.service;
    const place =
      way === 'TLS'
        ? ['-p', `${mqttsPort}`, '--cafile', certificateFiles(t).SLIPWAY_TLS_CERT as string]
        : ['-p', `${server.mqttPort}`];
    const login = ['-V', '5', '-h', '127.0.0.1', ...place, '-u', f.device.id, '-P', f.secret];
    const format = '%q %p %C %D %R %P';
    const said = ['-C', '3', '-W', '20', '-F', format, '-d'];
    const listener = spawn('stdbuf', ['-oL', 'mosquitto_sub', ...login, ...said, '-q', '2', '-t', `$share/g/${topic}`]);
    t.teardown(() => listener.kill());
    let output = '';
    listener.stdout.on('data', (data) => {
      output += data;
    });
    await until(() => output.includes('Subscribed'));
    const properties = [
      ['content-type', 'text/plain'],
      ['correlation-data', 'c'],
      ['response-topic', topic],
      ['user-property', 'a', '1'],
    ].flatMap((one) => ['-D', 'publish', ...one]);
    const closed = once(listener, 'close');
    for (const qos of ['0', '1', '2'])
      await run('mosquitto_pub', [...login, '-q', qos, '-t', topic, '-m', 'x', ...properties]);
    await closed;
    for (const qos of [0, 1, 2]) t.match(output, new RegExp(`^${qos} x text/plain c ${topic} a:1`, 'm'));
  });

const script = `
import json, ssl, sys, queue
import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
port, transport, tls, user, password, topic = sys.argv[1:]
more = {} if mqtt.Client.__init__.__code__.co_varnames[1] == "client_id" else {"callback_api_version": mqtt.CallbackAPIVersion.VERSION2}
client = mqtt.Client(protocol=mqtt.MQTTv5, transport=transport, **more)
client.username_pw_set(user, password)
if tls == "tls":
    client.tls_set(cert_reqs=ssl.CERT_NONE)
    client.tls_insecure_set(True)
heard, ready = queue.Queue(), queue.Queue()
client.on_message = lambda client, userdata, message: heard.put(message)
client.on_subscribe = lambda *arguments: ready.put(1)
client.on_connect = lambda client, *arguments: client.subscribe("$share/g/" + topic, options=mqtt.SubscribeOptions(qos=2))
client.connect("127.0.0.1", int(port), clean_start=True)
client.loop_start()
ready.get(timeout=20)
for qos in range(3):
    said = Properties(PacketTypes.PUBLISH)
    said.ResponseTopic, said.CorrelationData, said.UserProperty = topic, b"c", [("a", "1"), ("a", "2")]
    client.publish(topic, "x", qos, properties=said)
    message = heard.get(timeout=20)
    back = message.properties
    print(json.dumps([message.qos, back.ResponseTopic, back.CorrelationData.decode(), back.UserProperty]))
client.disconnect()
client.loop_stop()
`;
for (const { file, paho, env } of pythons)
  t.test(`Paho ${paho} speaks MQTT 5 over TCP, TLS and WebSocket`, async (t) => {
    const f = await secureFixture(t);
    const topic = f.topic('chat');
    const { mqttsPort, server } = f.service;
    for (const [port, ...way] of [
      [server.mqttPort, 'tcp', 'plain'],
      [mqttsPort, 'tcp', 'tls'],
      [mqttsPort, 'websockets', 'tls'],
    ] as const) {
      const { stdout } = await run(file, ['-c', script, `${port}`, ...way, f.device.id, f.secret, topic], { env });
      const lines = [0, 1, 2].map((qos) => [
        qos,
        topic,
        'c',
        [
          ['a', '1'],
          ['a', '2'],
        ],
      ]);
      t.same(
        stdout
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line)),
        lines,
        `${way}`,
      );
    }
  });

/** A program that plays the roles of `programs/session.c` and `programs/session.py`. */
async function checkSession(t: Test, program: readonly string[], env?: NodeJS.ProcessEnv): Promise<void> {
  const f = await secureFixture(t);
  const topic = f.topic('chat');
  const place = [`${f.service.mqttsPort}`, certificateFiles(t).SLIPWAY_TLS_CERT as string];
  const [file = '', ...args] = program;
  const play = (role: string) => run(file, [...args, ...place, f.device.id, f.secret, topic, role], { env });
  await play('keep');
  const listener = await f.service.connect(f.who, { clientId: 'listener' });
  await listener.subscribeAsync(topic);
  const said = nextMessage(listener, (_, payload) => payload.toString() === 'while').then(() => performance.now());
  await play('leave');
  // Before the program has died: how late its end is noticed does not count.
  const left = await said;
  const { stdout } = await play('back');
  t.ok(performance.now() - left > 900, 'the will waits for its delay');
  const properties = `text/plain c ${topic} a=1`;
  t.same(stdout.trim().split('\n'), ['session 1', `2 while ${properties}`, `1 gone ${properties}`]);
}

const canCompile = spawnSync('sh', ['-c', 'echo "#include <mosquitto.h>" | cc -E -']).status === 0;
const withC = { ...(!canCompile && { skip: 'a C compiler with the headers of libmosquitto is not installed' }) };

/** Builds a program with libmosquitto. */
async function compiled(t: Test, source: string): Promise<string> {
  const program = join(temporaryDirectory(t), 'program');
  await run('cc', ['-Wall', '-Wextra', '-Werror', '-o', program, source, '-lmosquitto']);
  return program;
}

t.test('libmosquitto over TLS: a stored session, a will with a delay, and properties', withC, async (t) => {
  await checkSession(t, [await compiled(t, join(here, 'programs', 'session.c'))]);
});

for (const { file, paho, env } of pythons) {
  t.test(`Paho ${paho} over TLS: a stored session, a will with a delay, and properties`, async (t) => {
    await checkSession(t, [file, join(here, 'programs', 'session.py')], env);
  });

  const title = `Paho ${paho} answers what mosquitto_rr and a program with libmosquitto ask, over TLS`;
  t.test(title, { ...withC, ...withoutMosquitto }, async (t) => {
    const f = await secureFixture(t);
    const { service, device, secret } = f;
    for (const name of ['requests', 'responses'])
      await service.channel(device.deviceTemplateId, { name, persistenceType: 'simple' });
    const ca = certificateFiles(t).SLIPWAY_TLS_CERT as string;
    const [host, port] = ['127.0.0.1', `${service.mqttsPort}`];
    const place = { SLIPWAY_HOST: host, SLIPWAY_PORT: port, SLIPWAY_CA: ca };
    const who = { SLIPWAY_ACCOUNT: service.accountId, SLIPWAY_DEVICE: device.id, SLIPWAY_SECRET: secret };
    const settings = { ...process.env, ...place, ...who };
    const answering = spawn(file, ['examples/python/request.py', 'answer'], { env: { ...settings, ...env } });
    t.teardown(() => answering.kill());
    await once(answering.stdout, 'data');
    const login = ['-h', host, '-p', port, '--cafile', ca, '-u', device.id, '-P', secret, '-W', '20', '-q', '1'];
    const topics = ['-t', f.topic('requests'), '-e', f.topic('responses')];
    const said = ['-m', '{}', '-D', 'publish', 'correlation-data', 'mine', '-F', '%D %C %p'];
    const asked = await run('mosquitto_rr', [...login, ...topics, ...said]);
    t.match(asked.stdout, /^mine application\/json \{"temperature": [\d.]+\}$/m);
    const program = await compiled(t, 'examples/c/request.c');
    const { stdout } = await run(program, ['ask'], { env: { ...settings, SLIPWAY_TOKEN: service.admin } });
    t.match(stdout, /^\{"temperature": [\d.]+\}$/m);
  });
}

t.end();
