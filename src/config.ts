import { existsSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { parseEnv } from 'node:util';
import { type Limits, readLimits } from './limits.js';

/** The whole configuration. Durations are milliseconds, sizes are bytes, 0 switches a limit off. */
export interface Config {
  host: string;
  httpPort: number;
  mqttPort: number;
  mqttsPort: number;
  /** PEM; `chain` is the certificate with what is to be sent along with it. */
  tls: { cert: string; ca: string | undefined; chain: string; key: string } | undefined;
  dataDir: string;
  topicRoot: string;
  controlRoot: string;
  headerPrefix: string;
  /** Whether an unknown parameter of a query is an error; otherwise it is named and has no effect. */
  strictQueries: boolean;
  firstAccount: {
    id: string | undefined;
    name: string;
    adminEmail: string | undefined;
    adminPassword: string | undefined;
  };
  logLevel: string;
  /** Every limit by its name in src/limits.ts. What stands elsewhere here repeats some of them. */
  limits: Limits;
  httpBodyBytes: number;
  /** Requests of one caller in a second. */
  httpRatePerCaller: number;
  /** Addresses and networks whose word about the sender is taken (X-Forwarded-For, PROXY protocol). */
  trustedProxies: string[];
  /** Where browsers and mails find the service; undefined is where it listens. Without a slash at the end. */
  publicUrl: string | undefined;
  /** Wrong logins before more are refused: on one identity from one address in 15 minutes, from one address in an hour. */
  loginFailures: { perIdentity: number; perAddress: number };
  /** What units are told to connect to, as mqtt://host:port; undefined is the host of publicUrl and the broker's port. */
  mqttPublicUrl: string | undefined;
  /** Where whoever holds a unit claims it; undefined is /claim of publicUrl. */
  claimUrl: string | undefined;
  smtpUrl: string | undefined;
  mailFrom: string;
  smsWebhookUrl: string | undefined;
  /** MMDB file that says where an address is. */
  geoipDatabase: string | undefined;
  /** Where names of addresses are asked for, as address or address:port; the system's servers when empty. */
  dnsServers: string[];
  /** What reading the metrics takes as bearer token; undefined when they are open. */
  metricsToken: string | undefined;
  /** How long it goes on after a signal, not ready any more, before it closes its ports. */
  shutdownDelay: number;
  /** Where accounts may have the service connect to: OpenID providers and, with `bridges.allowPrivate`, bridges. */
  targets: { allowPrivate: boolean };
  bridges: {
    /** Whether they may lead to private addresses, and over plain http. */
    allowPrivate: boolean;
    /** How long a target may take to answer. */
    timeout: number;
    /** How long a guaranteed message is tried before it is a dead letter. */
    retryAge: number;
    /** How long what has been delivered, and what could not be, is kept for a replay. */
    deliveredAge: number;
    deadAge: number;
  };
  mqtt: {
    connectTimeout: number;
    maxConnections: number;
    maxConnectionsPerAddress: number;
    maxConnectionsPerPrincipal: number;
    maxConnectionsPerDevice: number;
    /** In a second. */
    connectRatePerAddress: number;
    /** In a minute, both; the second on one principal from one address. */
    failedConnectsPerAddress: number;
    failedConnectsPerPrincipal: number;
    maxPacketBytesBeforeConnect: number;
    maxPayloadBytes: number;
    /** Of one payload on a stored channel; 0 is no limit. */
    maxPoints: number;
    maxDepth: number;
    /** In a second: packets, bytes of payload, points. */
    publishRatePerClient: number;
    byteRatePerClient: number;
    pointRatePerClient: number;
    maxSubscriptions: number;
    maxTopicLevels: number;
    maxKeepaliveSeconds: number;
    refusalsPerMinute: number;
    /** Messages kept for one stored session; the oldest go first. */
    maxQueue: number;
    /** How long a stored session is kept while nobody is connected. */
    sessionExpiry: number;
  };
  messages: {
    /** How long points and log entries are kept when neither channel nor account say it; 0 is for ever. */
    retentionDays: number;
    /** Of messages.db in use: past it the oldest go. */
    maxBytes: number;
    /** What stays free on the disk: below it nothing more is taken. */
    diskReserveBytes: number;
  };
  /** Files of the configuration that nobody else may read: the key of the certificate, `.env`; they need not be there. */
  secretFiles: string[];
  /** Variables that look like settings and are none of this version. */
  unknown: string[];
}

/** A wrong setting; the sentence names the variable. It stops the start. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/** Days that a retention may be given as: a hundred years. */
export const maxRetentionDays = 36_500;

type Environment = Record<string, string | undefined>;

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * The environment over `.env` in `directory`, when that file is there.
 * @throws ConfigError naming the first variable that is wrong.
 */
export function loadConfig(environment: Environment = process.env, directory = process.cwd()): Config {
  const file = resolve(directory, '.env');
  return readConfig({ ...readVariables(file), ...environment }, directory);
}

/** As loadConfig, from the given variables alone. */
export function readConfig(environment: Environment, directory = process.cwd()): Config {
  const known = new Set(['SLIPWAY_ADMIN_PASSWORD', ...clientVariables]);
  const text = (name: string) => {
    known.add(name);
    return environment[name]?.trim() || undefined;
  };
  const fail = (name: string, sentence: string): never => {
    throw new ConfigError(`${name} ${sentence}`);
  };
  const whole = (name: string, fallback: number, min: number, max: number, minUnlessZero = min) => {
    const value = text(name);
    if (value === undefined) return fallback;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if ((number >= minUnlessZero || (number === 0 && min === 0)) && number <= max) return number;
    const orZero = minUnlessZero > min ? '0 or ' : '';
    return fail(name, `must be ${orZero}a whole number from ${minUnlessZero} to ${max}.`);
  };
  const limits = readLimits(({ variable, default: fallback, min, max, off }) =>
    whole(variable, fallback, off ? 0 : min, max, min),
  );
  const flag = (name: string) => {
    const value = text(name) ?? 'false';
    return value === 'true' || value === 'false' ? value === 'true' : fail(name, 'must be true or false.');
  };
  const port = (name: string, fallback: number) => whole(name, fallback, 0, 65535);
  const pem = (name: string) => {
    const path = text(name);
    if (path === undefined) return undefined;
    try {
      const content = readFileSync(resolve(directory, path), 'utf8');
      return content.includes('-----BEGIN ') ? content : fail(name, 'must name a PEM file.');
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      return fail(name, `names a file that cannot be read: ${path}`);
    }
  };

  const tls = (() => {
    const [cert, key, ca] = [pem('SLIPWAY_TLS_CERT'), pem('SLIPWAY_TLS_KEY'), pem('SLIPWAY_TLS_CA')];
    if (cert && key) {
      try {
        createSecureContext({ cert: ca ? `${cert}\n${ca}` : cert, key });
      } catch (error) {
        return fail('SLIPWAY_TLS_KEY', `does not go with SLIPWAY_TLS_CERT: ${(error as Error).message}`);
      }
      return { cert, ca, chain: ca ? `${cert}\n${ca}` : cert, key };
    }
    if (cert) return fail('SLIPWAY_TLS_KEY', 'is needed beside SLIPWAY_TLS_CERT.');
    if (key) return fail('SLIPWAY_TLS_CERT', 'is needed beside SLIPWAY_TLS_KEY.');
    return ca ? fail('SLIPWAY_TLS_CERT', 'is needed beside SLIPWAY_TLS_CA.') : undefined;
  })();

  const host = text('SLIPWAY_HOST') ?? '127.0.0.1';
  if (!isIP(host) && !/^[a-zA-Z0-9.-]{1,253}$/.test(host)) fail('SLIPWAY_HOST', 'must be an address or a host name.');
  const ports = {
    SLIPWAY_HTTP_PORT: port('SLIPWAY_HTTP_PORT', 3000),
    SLIPWAY_MQTT_PORT: port('SLIPWAY_MQTT_PORT', 1883),
    SLIPWAY_MQTTS_PORT: port('SLIPWAY_MQTTS_PORT', 8883),
  };
  const taken = new Map<number, string>();
  for (const [name, number] of Object.entries(ports)) {
    if (name === 'SLIPWAY_MQTTS_PORT' && !tls) continue;
    const other = taken.get(number);
    if (number !== 0 && other) fail(name, `is the same port as ${other}.`);
    taken.set(number, name);
  }

  const root = (name: string, usual: string) => {
    const value = text(name) ?? usual;
    if (!/^[A-Za-z0-9_.-]+(\/[A-Za-z0-9_.-]+){0,5}$/.test(value))
      fail(name, 'must be one to six topic levels of letters, digits, dot, dash and underscore.');
    return value;
  };
  const topicRoot = root('SLIPWAY_TOPIC_ROOT', 'slipway/v1');
  const controlRoot = root('SLIPWAY_CONTROL_ROOT', 'slipway/ctrl/v1');
  const headerPrefix = (text('SLIPWAY_HEADER_PREFIX') ?? 'platform').toLowerCase();
  if (!/^[a-z][a-z0-9-]{0,31}$/.test(headerPrefix))
    fail('SLIPWAY_HEADER_PREFIX', 'must be a header name of letters, digits and dashes.');
  const logLevel = text('SLIPWAY_LOG_LEVEL') ?? 'info';
  if (!logLevels.includes(logLevel)) fail('SLIPWAY_LOG_LEVEL', `must be one of ${logLevels.join(', ')}.`);

  const accountId = text('SLIPWAY_ACCOUNT_ID')?.toLowerCase();
  if (accountId && !uuid.test(accountId)) fail('SLIPWAY_ACCOUNT_ID', 'must be a UUID.');
  const adminEmail = text('SLIPWAY_ADMIN_EMAIL');
  if (adminEmail && !/^[^\s@]+@[^\s@]+$/.test(adminEmail)) fail('SLIPWAY_ADMIN_EMAIL', 'must be an email address.');

  const address = (name: string, ...protocols: string[]) => {
    const value = text(name);
    if (value === undefined) return undefined;
    const parsed = URL.canParse(value) ? new URL(value) : undefined;
    if (!parsed?.hostname || !protocols.includes(parsed.protocol))
      return fail(
        name,
        `must be an address beginning with ${protocols.map((one) => `${one}//`).join(' or ')}, special characters percent-encoded.`,
      );
    return value.replace(/\/+$/, '');
  };
  const publicUrl = address('SLIPWAY_PUBLIC_URL', 'http:', 'https:');
  if (publicUrl && /[?#]/.test(publicUrl)) fail('SLIPWAY_PUBLIC_URL', 'must have neither a query nor a fragment.');
  const mqttPublicUrl = address('SLIPWAY_MQTT_PUBLIC_URL', 'mqtt:', 'mqtts:');
  if (mqttPublicUrl && new URL(mqttPublicUrl).username) fail('SLIPWAY_MQTT_PUBLIC_URL', 'must have no user in it.');
  const claimUrl = address('SLIPWAY_CLAIM_URL', 'http:', 'https:');
  const smsWebhookUrl = address('SLIPWAY_SMS_WEBHOOK_URL', 'http:', 'https:');
  // Nothing would be sent there, and each failure would put the password into the log.
  if (smsWebhookUrl && /:\/\/[^/?#]*@/.test(smsWebhookUrl))
    fail('SLIPWAY_SMS_WEBHOOK_URL', 'must have no user and no password in it.');
  const mailFrom = text('SLIPWAY_MAIL_FROM') ?? 'slipway@localhost';
  if (!/^[^\r\n]*[^\s@]+@[^\s@]+$/.test(mailFrom)) fail('SLIPWAY_MAIL_FROM', 'must be an email address.');
  const trustedProxies = (text('SLIPWAY_TRUSTED_PROXIES') ?? '').split(',').flatMap((one) => one.trim() || []);
  for (const one of trustedProxies)
    if (!isNetwork(one)) fail('SLIPWAY_TRUSTED_PROXIES', 'must be addresses or networks such as 10.0.0.0/8.');

  const dnsServers = (text('SLIPWAY_DNS_SERVERS') ?? '').split(',').flatMap((one) => one.trim() || []);
  for (const one of dnsServers)
    if (!isServer(one))
      fail('SLIPWAY_DNS_SERVERS', 'must be addresses such as 10.0.0.1, 10.0.0.1:5353 or [fd00::1]:5353.');
  const geoip = text('SLIPWAY_GEOIP_DATABASE');
  const metricsToken = text('SLIPWAY_METRICS_TOKEN');
  // Nobody could send it: health checks would fail for ever.
  if (metricsToken && !/^[!-~]+$/.test(metricsToken))
    fail('SLIPWAY_METRICS_TOKEN', 'must be of visible ASCII characters, without blanks.');

  const allowPrivateTargets = flag('SLIPWAY_ALLOW_PRIVATE_TARGETS');
  const bridgeAllowPrivate = flag('SLIPWAY_BRIDGE_ALLOW_PRIVATE');
  const config = {
    host,
    httpPort: ports.SLIPWAY_HTTP_PORT,
    mqttPort: ports.SLIPWAY_MQTT_PORT,
    mqttsPort: ports.SLIPWAY_MQTTS_PORT,
    tls,
    dataDir: resolve(directory, text('SLIPWAY_DATA_DIR') ?? './data'),
    secretFiles: [text('SLIPWAY_TLS_KEY') ?? [], '.env'].flat().map((path) => resolve(directory, path)),
    topicRoot,
    controlRoot,
    headerPrefix,
    strictQueries: flag('SLIPWAY_STRICT_QUERIES'),
    firstAccount: {
      id: accountId,
      name: text('SLIPWAY_ACCOUNT_NAME') ?? 'My company',
      adminEmail,
      // A password may begin or end with a blank.
      adminPassword: environment.SLIPWAY_ADMIN_PASSWORD || undefined,
    },
    logLevel,
    limits,
    httpBodyBytes: limits.httpBodyBytes,
    httpRatePerCaller: limits.httpRate,
    trustedProxies,
    publicUrl,
    mqttPublicUrl,
    claimUrl,
    loginFailures: {
      perIdentity: limits.loginFailuresPerIdentity,
      perAddress: limits.loginFailuresPerAddress,
    },
    smtpUrl: address('SLIPWAY_SMTP_URL', 'smtp:', 'smtps:'),
    mailFrom,
    smsWebhookUrl,
    geoipDatabase: geoip && resolve(directory, geoip),
    dnsServers,
    metricsToken,
    shutdownDelay: 1000 * whole('SLIPWAY_SHUTDOWN_DELAY_SECONDS', 0, 0, 600),
    targets: { allowPrivate: allowPrivateTargets },
    bridges: {
      allowPrivate: bridgeAllowPrivate || allowPrivateTargets,
      timeout: 1000 * whole('SLIPWAY_BRIDGE_TIMEOUT_SECONDS', 10, 1, 120),
      retryAge: 3_600_000 * whole('SLIPWAY_BRIDGE_RETRY_HOURS', 72, 1, 876_000),
      deliveredAge: 3_600_000 * whole('SLIPWAY_BRIDGE_KEEP_HOURS', 24, 0, 876_000),
      deadAge: 3_600_000 * whole('SLIPWAY_BRIDGE_DEAD_LETTER_HOURS', 720, 1, 876_000),
    },
    mqtt: {
      connectTimeout: 1000 * limits.mqttConnectTimeout,
      maxConnections: limits.mqttConnections,
      maxConnectionsPerAddress: limits.mqttConnectionsPerAddress,
      maxConnectionsPerPrincipal: limits.mqttConnectionsPerPrincipal,
      maxConnectionsPerDevice: limits.mqttConnectionsPerDevice,
      connectRatePerAddress: limits.mqttConnectRate,
      failedConnectsPerAddress: limits.mqttFailedConnectsPerAddress,
      failedConnectsPerPrincipal: limits.mqttFailedConnectsPerPrincipal,
      maxPacketBytesBeforeConnect: limits.mqttPacketBytesBeforeConnect,
      maxPayloadBytes: limits.mqttPayloadBytes,
      maxPoints: limits.mqttPayloadPoints,
      maxDepth: limits.mqttPayloadDepth,
      publishRatePerClient: limits.mqttPublishRate,
      byteRatePerClient: limits.mqttByteRate,
      pointRatePerClient: limits.mqttPointRate,
      maxSubscriptions: limits.mqttSubscriptions,
      maxTopicLevels: limits.mqttTopicLevels,
      maxKeepaliveSeconds: limits.mqttKeepalive,
      refusalsPerMinute: limits.mqttRefusals,
      maxQueue: limits.mqttQueue,
      sessionExpiry: 3_600_000 * limits.mqttSessionExpiry,
    },
    messages: {
      retentionDays: whole('SLIPWAY_RETENTION_DAYS', 0, 0, maxRetentionDays),
      maxBytes: limits.messagesBytes,
      diskReserveBytes: whole('SLIPWAY_DISK_RESERVE_BYTES', 536_870_912, 0, 999_999_999_999_999),
    },
  };
  // Every variable has been read by now: what is left over is most likely mistyped.
  const unknown = Object.keys(environment).filter((name) => name.startsWith('SLIPWAY_') && !known.has(name));
  return { ...config, unknown };
}

/** What a command that calls a server needs to know. */
export interface ClientConfig {
  /** Without a slash at the end. */
  url: string;
  /** A JWT, or the appToken of the application `appId`. */
  token: string;
  appId: string | undefined;
  accountId: string | undefined;
}

/** Of the command only: a server that finds them in a shared `.env` does not take them for typing errors. */
const clientVariables = ['SLIPWAY_URL', 'SLIPWAY_TOKEN', 'SLIPWAY_APP_ID'];

/**
 * Where a command finds its server and its rights: what was given on the command line, over the environment, over `.env`.
 * @throws ConfigError naming the variable that is missing or wrong.
 */
export function loadClientConfig(
  given: { url?: string | undefined; token?: string | undefined },
  environment: Environment = process.env,
  directory = process.cwd(),
): ClientConfig {
  const file = resolve(directory, '.env');
  const variables = { ...readVariables(file), ...environment };
  const text = (name: string) => variables[name]?.trim() || undefined;
  const url = given.url ?? text('SLIPWAY_URL') ?? 'http://127.0.0.1:3000';
  if (!/^https?:\/\/[^/?#]+[^?#]*$/.test(url) || !URL.canParse(url))
    throw new ConfigError('SLIPWAY_URL (or --url) must be an address such as https://things.example.com.');
  const token = given.token ?? text('SLIPWAY_TOKEN');
  if (!token) throw new ConfigError('SLIPWAY_TOKEN (or --token) is missing: a JWT, or the appToken of a station.');
  return {
    url: url.replace(/\/+$/, ''),
    token,
    appId: text('SLIPWAY_APP_ID'),
    accountId: text('SLIPWAY_ACCOUNT_ID'),
  };
}

function readVariables(file: string): Environment {
  // Some editors begin a file with a byte order mark, which would become part of the first name.
  return existsSync(file) ? parseEnv(readFileSync(file, 'utf8').replace(/^\uFEFF/, '')) : {};
}

/** An address, with a port or without. */
function isServer(value: string): boolean {
  if (isIP(value)) return true;
  const [, six, four = '', port] = /^(?:\[(.+)\]|([\d.]+))(?::(\d{1,5}))?$/.exec(value) ?? [];
  return (six === undefined ? isIP(four) === 4 : isIP(six) === 6) && Number(port ?? 53) <= 65_535;
}

/** An address, or one with the length of a prefix. */
function isNetwork(value: string): boolean {
  const [address = '', prefix, more] = value.split('/');
  const family = isIP(address);
  if (family === 0 || more !== undefined) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128));
}
