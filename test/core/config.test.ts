import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadConfig, readConfig } from '../../src/core/config.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('nothing set: the documented defaults', async (t) => {
  const config = readConfig({}, '/somewhere');
  t.match(config, {
    host: '127.0.0.1',
    httpPort: 3000,
    mqttPort: 1883,
    mqttsPort: 8883,
    tls: undefined,
    dataDir: '/somewhere/data',
    topicRoot: 'slipway/v1',
    controlRoot: 'slipway/ctrl/v1',
    headerPrefix: 'platform',
    logLevel: 'info',
    metricsToken: undefined,
    mqtt: {
      maxConnections: 0,
      maxConnectionsPerAddress: 0,
      maxConnectionsPerPrincipal: 200,
      maxConnectionsPerDevice: 20,
      connectRatePerAddress: 0,
      failedConnectsPerAddress: 600,
      failedConnectsPerPrincipal: 30,
      publishRatePerClient: 5000,
    },
  });
});

for (const [name, value] of [
  ['SLIPWAY_HTTP_PORT', '70000'],
  ['SLIPWAY_MQTT_PORT', '3000'],
  ['SLIPWAY_HOST', 'not a host'],
  ['SLIPWAY_TOPIC_ROOT', 'a//b'],
  ['SLIPWAY_TOPIC_ROOT', 'a/#'],
  ['SLIPWAY_CONTROL_ROOT', 'a//b'],
  ['SLIPWAY_HEADER_PREFIX', 'x y'],
  ['SLIPWAY_ACCOUNT_ID', '17'],
  ['SLIPWAY_ADMIN_EMAIL', 'nobody'],
  ['SLIPWAY_MQTT_MAX_PAYLOAD_BYTES', '-1'],
  ['SLIPWAY_PUBLIC_URL', 'things.example.com'],
  ['SLIPWAY_PUBLIC_URL', 'https://things.example.com/?q=1'],
  ['SLIPWAY_SMTP_URL', 'smtp://user:pa#ss@host:587'],
  ['SLIPWAY_MAIL_FROM', 'nobody'],
  ['SLIPWAY_SMS_WEBHOOK_URL', 'ftp://host'],
  ['SLIPWAY_SMS_WEBHOOK_URL', 'https://user:password@host/sms'],
  ['SLIPWAY_TRUSTED_PROXIES', '10.0.0.0/40'],
  ['SLIPWAY_TRUSTED_PROXIES', 'proxy'],
  ['SLIPWAY_DNS_SERVERS', 'dns.example.com'],
  ['SLIPWAY_METRICS_TOKEN', 'two words'],
  ['SLIPWAY_DNS_SERVERS', '10.0.0.1:99999'],
  ['SLIPWAY_DNS_SERVERS', '10.0.0.1,[fd00::1'],
] as const) {
  t.test(`${name}=${value} stops the start with a sentence that names it`, async (t) => {
    t.throws(() => readConfig({ [name]: value }), { name: 'ConfigError', message: new RegExp(`^${name} `) });
  });
}

t.test('DNS servers are addresses, with a port or without', async (t) => {
  const { dnsServers } = readConfig({ SLIPWAY_DNS_SERVERS: '10.0.0.1, 10.0.0.1:5353,fd00::1,[fd00::1]:5353' });
  t.same(dnsServers, ['10.0.0.1', '10.0.0.1:5353', 'fd00::1', '[fd00::1]:5353']);
});

t.test('a key without a certificate is a contradiction', async (t) => {
  const directory = temporaryDirectory(t);
  writeFileSync(join(directory, 'key.pem'), '-----BEGIN PRIVATE KEY-----\n');
  t.throws(() => readConfig({ SLIPWAY_TLS_KEY: 'key.pem' }, directory), /^SLIPWAY_TLS_CERT is needed/);
});

t.test('an unknown variable that looks like a setting is reported', async (t) => {
  t.same(readConfig({ SLIPWAY_HTTPPORT: '4000', SLIPWAY_HTTP_PORT: '4000', HOME: '/' }).unknown, ['SLIPWAY_HTTPPORT']);
});

t.test('.env is read, and the environment wins over it', async (t) => {
  const directory = temporaryDirectory(t);
  writeFileSync(join(directory, '.env'), '\uFEFFSLIPWAY_HTTP_PORT=4000\nSLIPWAY_TOPIC_ROOT="acme/v2" # ours\n');
  t.match(loadConfig({}, directory), { httpPort: 4000, topicRoot: 'acme/v2' });
  t.match(loadConfig({ SLIPWAY_HTTP_PORT: '5000' }, directory), { httpPort: 5000, topicRoot: 'acme/v2' });
});

t.end();
