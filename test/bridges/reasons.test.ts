/** Each kind of target says of each fault what to do about it, to a caller who tests the bridge. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import tls, { createServer as createTlsServer } from 'node:tls';
import '../support/reflection.ts';
import * as x509 from '@peculiar/x509';
import type { Test } from 'tap';
import { type Fault, faults, sentences } from '../../src/bridges/reasons.ts';
import { makeAuthority, makeCertificate } from '../support/certificates.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { kafkaCluster, withKafkaCluster } from '../support/kafka-cluster.ts';
import { mosquitto, withMosquitto } from '../support/mosquitto.ts';
import { makeStream, natsServer, withNats } from '../support/nats-server.ts';
import { part } from '../support/part.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { startReceiver } from './receiver.ts';

const t = await part(import.meta);

type Kind = keyof typeof sentences;
const kinds = Object.keys(sentences) as Kind[];
/** Schemes of URLs with TLS and without. */
const schemes: Record<Kind, [secure: string, plain: string]> = {
  webhook: ['https', 'http'],
  nats: ['tls', 'nats'],
  kafka: ['kafkas', 'kafka'],
  kinesis: ['https', 'http'],
  mqtt: ['mqtts', 'mqtt'],
};
const extras: Partial<Record<Kind, object>> = {
  kafka: { settings: { topic: 'all' } },
  kinesis: {
    settings: { stream: 'messages', region: 'eu-west-1' },
    credentials: { accessKeyId: 'a', secretAccessKey: 'b' },
  },
};

/** Where a fault of a kind is met: its URL, and what else the bridge says. */
interface Place {
  url: string;
  more?: object;
}
type Provoke = (t: Test) => Promise<Place>;

async function listening(t: Test, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** A server that answers whatever comes, or the connection itself, with a few words. */
function startBabble(t: Test, isFirst = false): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    const say = () => socket.end('220 mail.example.com ESMTP ready\r\n');
    if (isFirst) say();
    else socket.once('data', say);
  });
  return listening(t, server);
}

/** A certificate of a CA, for a host and 127.0.0.1. */
async function certified(more: object, host = 'localhost') {
  const issuer = await makeAuthority();
  const names = new x509.SubjectAlternativeNameExtension([
    { type: 'dns', value: host },
    { type: 'ip', value: '127.0.0.1' },
  ]);
  return { issuer, ...(await makeCertificate({ subject: 'CN=localhost', issuer, more: [names], ...more })) };
}

/** A server with a certificate of its own; that of NATS is real, because TLS begins in the middle there. */
async function startTls(t: Test, kind: Kind, { cert, key }: { cert: string; key: string }): Promise<number> {
  if (kind !== 'nats') {
    const server = createTlsServer({ cert, key }, (socket) => socket.on('error', () => {}));
    server.on('tlsClientError', () => {});
    return listening(t, server);
  }
  const directory = temporaryDirectory(t);
  const [certFile, keyFile] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  writeFileSync(certFile, cert);
  writeFileSync(keyFile, key);
  const nats = await startNats(t, [`tls { cert_file: "${certFile}", key_file: "${keyFile}" }`]);
  return Number(nats.url.split(':').at(-1));
}

async function startNats(t: Test, lines: string[] = []) {
  const nats = await natsServer(temporaryDirectory(t), lines);
  t.teardown(() => nats.stop());
  await nats.start();
  return nats;
}

async function startMosquitto(t: Test, more: { more?: string[]; access?: string[] } = {}) {
  const broker = await mosquitto(temporaryDirectory(t), 'me', 'pass', more);
  t.teardown(() => broker.stop());
  await broker.start();
  return broker;
}

/** A Kinesis endpoint that answers every request with this error. */
async function startKinesis(t: Test, type: string): Promise<Place> {
  const server = createHttpServer((_request, response) => {
    response.writeHead(400, { 'content-type': 'application/x-amz-json-1.1' });
    response.end(JSON.stringify({ __type: type, message: 'no' }));
  });
  return { url: `http://127.0.0.1:${await listening(t, server)}` };
}

/** A broker of MQTT 5 that acknowledges every message with this reason. */
async function startBroker(t: Test, reason: number): Promise<Place> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    let isKnown = false;
    socket.on('data', (chunk) => {
      if (!isKnown) socket.write(Buffer.from('2003000000', 'hex'));
      isKnown = true;
      if (chunk[0] !== 0x32) return;
      const at = 2 + (chunk[1] && chunk[1] >= 0x80 ? 1 : 0);
      const id = at + 2 + chunk.readUInt16BE(at);
      socket.write(Buffer.from([0x40, 3, chunk[id] ?? 0, chunk[id + 1] ?? 0, reason]));
    });
  });
  return { url: `mqtt://127.0.0.1:${await listening(t, server)}` };
}

const answering =
  (status: number): Provoke =>
  async (t) => {
    const receiver = await startReceiver(t);
    receiver.behave = () => status;
    return { url: receiver.url };
  };
const naming =
  (type: string): Provoke =>
  (t) =>
    startKinesis(t, type);
/** Requests of a producer are refused with an error of Kafka; `api` is the number of the request. */
const failing =
  (api: number, code: number): Provoke =>
  async (t) => {
    const cluster = await kafkaCluster(t, 1);
    await cluster.tell('topic', 'all', 1);
    await cluster.tell('errors', api, code, 20);
    return { url: cluster.url };
  };
const faulty =
  (code: number): Provoke =>
  async (t) => {
    const cluster = await kafkaCluster(t, 1);
    await cluster.tell('fault', 'all', code);
    return { url: cluster.url };
  };
const login = { credentials: { username: 'me', password: 'pass' } };

/** What is not the same for every kind. */
const provoked: Record<Kind, Partial<Record<Fault, Provoke>>> = {
  webhook: {
    wrongPassword: answering(401),
    notPermitted: answering(403),
    noTopic: answering(404),
    tooLarge: answering(413),
    throttled: answering(429),
  },
  nats: {
    noTls: async (t) => ({ url: (await startNats(t)).url.replace('nats:', 'tls:') }),
    wrongPassword: async (t) => {
      const { url } = await startNats(t, ['authorization { user: me, password: pass }']);
      return { url, more: { credentials: { username: 'me', password: 'wrong' } } };
    },
    notPermitted: async (t) => {
      const may = 'permissions { publish: ["$JS.>"], subscribe: ">" }';
      const { url } = await startNats(t, [`authorization { users: [{ user: me, password: pass, ${may} }] }`]);
      return { url, more: login };
    },
    noTopic: async (t) => ({ url: (await startNats(t)).url }),
    tooLarge: async (t) => {
      const nats = await startNats(t);
      await makeStream(nats.servers, { max_msg_size: 100 });
      return { url: nats.url };
    },
    throttled: async (t) => {
      const nats = await startNats(t);
      await makeStream(nats.servers, { max_bytes: 100, discard: 'new' });
      return { url: nats.url };
    },
  },
  kafka: {
    notPermitted: faulty(29),
    noTopic: faulty(3),
    tooLarge: failing(0, 10),
    throttled: failing(0, 19),
    wrongPassword: failing(22, 58),
  },
  kinesis: {
    wrongPassword: naming('UnrecognizedClientException'),
    notPermitted: naming('AccessDeniedException'),
    noTopic: naming('ResourceNotFoundException'),
    tooLarge: naming('ValidationException'),
    throttled: naming('ProvisionedThroughputExceededException'),
  },
  mqtt: {
    wrongPassword: async (t) => {
      const { url } = await startMosquitto(t);
      return { url, more: { credentials: { username: 'me', password: 'wrong' } } };
    },
    notPermitted: async (t) => ({ url: (await startMosquitto(t, { access: ['topic read #'] })).url, more: login }),
    tooLarge: async (t) => ({
      url: (await startMosquitto(t, { more: ['message_size_limit 10'] })).url,
      more: login,
    }),
    noTopic: (t) => startBroker(t, 0x90),
    throttled: (t) => startBroker(t, 0x97),
  },
};

const programs = { nats: withNats, kafka: withKafkaCluster, mqtt: withMosquitto };

/** The same for every kind: what can be wrong before the protocol begins. */
function common(kind: Kind, fault: Fault): Provoke | undefined {
  const [secure, plain] = schemes[kind];
  const at = (scheme: string, port: number) => ({ url: `${scheme}://localhost:${port}` });
  if (fault === 'notThere') return async () => ({ url: `${plain}://nobody.invalid:1` });
  if (fault === 'wrongPort') return async () => ({ url: `${plain}://127.0.0.1:9` });
  if (fault === 'wrongProtocol') return async (t) => at(plain, await startBabble(t, kind === 'nats'));
  if (fault === 'noTls') return async (t) => at(secure, await startBabble(t));
  if (fault === 'unknownCa') return async (t) => at(secure, await startTls(t, kind, await certified({})));
  if (fault === 'wrongName')
    return async (t) => {
      const made = await certified({}, 'elsewhere.example.com');
      return { ...at(secure, await startTls(t, kind, made)), more: { ca: made.issuer.cert } };
    };
  if (fault === 'expired')
    return async (t) => {
      const made = await certified({ to: Date.now() - 1000 });
      const had = tls.getCACertificates('default');
      t.teardown(() => tls.setDefaultCACertificates(had));
      tls.setDefaultCACertificates([...had, made.issuer.cert]);
      return at(secure, await startTls(t, kind, made));
    };
  return undefined;
}

const tlsTrust = 'NODE_TLS_REJECT_UNAUTHORIZED';

let service: Service;
let strict: Service;
t.before(async () => {
  service = await startService(t, { env: { SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true' } });
  strict = await startService(t);
});

async function tested(at: Service, kind: Kind, { url, more }: Place) {
  const body = { name: at.unique(kind), kind, url, ...extras[kind], ...more };
  const bridge = await at.create('/bridges', 'bridge', body);
  const { test } = await at.ok('POST', `/api/v1/bridges/${bridge.id}/test`);
  await at.ok('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version } });
  return test;
}

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

for (const kind of kinds)
  for (const fault of faults) {
    const provoke = provoked[kind][fault] ?? common(kind, fault);
    const isNew = fault !== 'expired' || 'setDefaultCACertificates' in tls;
    const options = isNew
      ? kind === 'nats' || fault in provoked[kind]
        ? programs[kind as 'nats']
        : {}
      : { skip: 'needs a newer Node' };
    t.test(`${kind}: ${fault} is told with what to do`, options ?? {}, async (t) => {
      const { [tlsTrust]: trust } = process.env;
      delete process.env[tlsTrust];
      t.teardown(() => {
        if (trust !== undefined) process.env[tlsTrust] = trust;
      });
      const test = provoke
        ? await tested(service, kind, await provoke(t))
        : await tested(strict, kind, { url: `${schemes[kind][0]}://localhost:9` });
      t.match(test, { delivered: false, reason: new RegExp(`^${escaped(sentences[kind][fault])}`), note: null });
    });
  }

t.test('mqtt: a message whose format the broker refuses is a dead letter, which keeps no other waiting', async (t) => {
  const { url } = await startBroker(t, 0x99);
  const bridge = await service.create('/bridges', 'bridge', { name: service.unique('mqtt'), kind: 'mqtt', url });
  const template = await service.template({ channels: [{ name: 'sure', streamBridgeDelivery: 2 }] });
  const { device, secret } = await service.device({ deviceTemplateId: template.id });
  const client = await service.connect({ deviceId: device.id, secret });
  for (const text of ['one', 'other']) await client.publishAsync(service.topic(device.id, 'sure'), text, { qos: 1 });
  const deadLetters = async () => (await service.ok('GET', `/api/v1/bridges/${bridge.id}/dead-letters`)).deadLetters;
  const { results } = await until(deadLetters, ({ meta }) => meta.count === 2);
  t.match(results, [{ reason: 'answered 0x99' }, { reason: 'answered 0x99' }]);
  t.match((await service.ok('GET', `/api/v1/bridges/${bridge.id}`)).bridge.status, { pending: 0 });
  await service.ok('DELETE', `/api/v1/bridges/${bridge.id}`, { headers: { etag: bridge.version } });
});

t.end();
