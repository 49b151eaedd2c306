import { createPrivateKey, X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { parseEnv } from 'node:util';
import { type Limits, limits as limitTable, readLimits } from './limits/table.ts';
import { commandSettings, readSettings, readText, type Settings, settings } from './settings.ts';

/** The whole configuration. Durations are milliseconds, sizes are bytes, 0 switches a limit off. */
export interface Config {
  host: string;
  httpPort: number;
  mqttPort: number;
  mqttsPort: number;
  /** PEM; `chain` is the certificate with what is to be sent along with it. */
  tls: (TlsFiles & { files: string[]; keyFile: string; read(): TlsFiles }) | undefined;
  dataDir: string;
  topicRoot: string;
  controlRoot: string;
  headerPrefix: string;
  /** Whether an unknown parameter of a query is an error; otherwise it is named and has no effect. */
  strictQueries: boolean;
  strictBodies: boolean;
  firstAccount: {
    id: string | undefined;
    name: string;
    adminEmail: string | undefined;
    adminPassword: string | undefined;
    /** Read when the account is made: later it may be gone. */
    adminPasswordFile: string | undefined;
  };
  /** The slots that new accounts may get. */
  slots: readonly string[];
  logLevel: string;
  /** Every limit by its name in src/core/limits/table.ts. What stands elsewhere here repeats some of them. */
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
  /** The broker address for units, as mqtt://host:port; undefined means the host of publicUrl and the broker's port. */
  mqttPublicUrl: string | undefined;
  /** Where anyone who holds a unit claims it; undefined is /claim of publicUrl. */
  claimUrl: string | undefined;
  smtpUrl: string | undefined;
  mailFrom: string;
  smsWebhookUrl: string | undefined;
  /** MMDB file that says where an address is. */
  geoipDatabase: string | undefined;
  /** Where names of addresses are asked for, as address or address:port; the system's servers when empty. */
  dnsServers: string[];
  /** The bearer token of the metrics; undefined if they are open. */
  metricsToken: string | undefined;
  /** The bearer token of the endpoints that move accounts between cells; undefined if they are closed. */
  moveToken: string | undefined;
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
    maxPropertyBytes: number;
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
    /** Bytes that stay free on the disk; below that, nothing more is stored. */
    diskReserveBytes: number;
  };
  /** Files of the configuration that nobody else may read: the key of the certificate, `.env`; they need not be there. */
  secretFiles: string[];
  /** Variables that look like settings and that this version does not know. */
  unknown: string[];
  /** Variables whose value is in quotes. */
  quoted: string[];
}

/** A wrong setting; the sentence names the variable. It stops the start. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

type Environment = Record<string, string | undefined>;

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
  const quoted = Object.keys(environment).filter((name) => isQuoted(name, environment[name]));
  const fail = (name: string, sentence: string): never => {
    throw new ConfigError(`${name} ${sentence}${quoted.includes(name) ? ` ${aboutQuotes}` : ''}`);
  };
  const limits = readLimits(({ variable, default: fallback, min, max, off }) => {
    const value = environment[variable]?.trim();
    if (!value) return fallback;
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if ((number >= min || (number === 0 && off)) && number <= max) return number;
    return fail(variable, `must be ${off && min > 0 ? '0 or ' : ''}a whole number from ${min} to ${max}.`);
  });
  const given = readSettings(environment, directory, fail);
  const tls = readTls(given, fail);
  demandDifferentPorts(given, tls !== undefined, fail);
  const { dataDir, accountId, accountName, adminEmail, adminPassword, adminPasswordFile, allowPrivateTargets } = given;
  const config = {
    host: given.host,
    httpPort: given.httpPort,
    mqttPort: given.mqttPort,
    mqttsPort: given.mqttsPort,
    tls,
    dataDir,
    secretFiles: [given.tlsKey?.path ?? [], resolve(directory, '.env')].flat(),
    topicRoot: given.topicRoot,
    controlRoot: given.controlRoot,
    headerPrefix: given.headerPrefix,
    strictQueries: given.strictQueries,
    strictBodies: given.strictBodies,
    firstAccount: { id: accountId, name: accountName, adminEmail, adminPassword, adminPasswordFile },
    slots: given.slots,
    logLevel: given.logLevel,
    limits,
    httpBodyBytes: limits.httpBodyBytes,
    httpRatePerCaller: limits.httpRate,
    trustedProxies: given.trustedProxies,
    publicUrl: given.publicUrl,
    mqttPublicUrl: given.mqttPublicUrl,
    claimUrl: given.claimUrl,
    loginFailures: {
      perIdentity: limits.loginFailuresPerIdentity,
      perAddress: limits.loginFailuresPerAddress,
    },
    smtpUrl: given.smtpUrl,
    mailFrom: given.mailFrom,
    smsWebhookUrl: given.smsWebhookUrl,
    geoipDatabase: given.geoipDatabase,
    dnsServers: given.dnsServers,
    metricsToken: given.metricsToken,
    moveToken: given.moveToken,
    shutdownDelay: given.shutdownDelay,
    targets: { allowPrivate: allowPrivateTargets },
    bridges: {
      allowPrivate: given.bridgeAllowPrivate || allowPrivateTargets,
      timeout: given.bridgeTimeout,
      retryAge: given.bridgeRetryAge,
      deliveredAge: given.bridgeDeliveredAge,
      deadAge: given.bridgeDeadAge,
    },
    mqtt: mqttConfig(limits),
    messages: {
      retentionDays: given.retentionDays,
      maxBytes: limits.messagesBytes,
      diskReserveBytes: given.diskReserveBytes,
    },
  };
  const known = new Set(
    [...Object.values(settings), ...limitTable, ...commandSettings].map(({ variable }) => variable),
  );
  const unknown = Object.keys(environment).filter((name) => name.startsWith('SLIPWAY_') && !known.has(name));
  return { ...config, unknown, quoted };
}

/** Of a value that begins and ends with the same quote. */
export const aboutQuotes = 'Its value is in quotes, which belong to it: `docker --env-file` does not take them off.';

function isQuoted(name: string, value = ''): boolean {
  return name.startsWith('SLIPWAY_') && /^(["']).*\1$/.test(value.trim());
}

function mqttConfig(limits: Limits) {
  return {
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
    maxPropertyBytes: limits.mqttPropertyBytes,
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
  };
}

type Fail = (name: string, sentence: string) => never;

/** Contents of PEM files; `chain` is the certificate and what is sent with it. */
interface TlsFiles {
  cert: string;
  ca: string | undefined;
  chain: string;
  key: string;
}

/** @throws Error if the key belongs to another certificate or has a passphrase, or one of them cannot be parsed. */
function fitting(cert: string, key: string, ca: string | undefined): TlsFiles {
  const chain = ca ? `${cert}\n${ca}` : cert;
  if (/BEGIN ENCRYPTED PRIVATE KEY|Proc-Type: 4,ENCRYPTED/.test(key))
    throw new Error('it has a passphrase, which a service cannot be asked for. `openssl pkey` writes it without one.');
  createSecureContext({ cert: chain, key });
  // OpenSSL keeps one pair for each kind of key, and compares only within a kind.
  if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
    throw new Error('it is the key of another certificate.');
  return { cert, ca, chain, key };
}

function readTls({ tlsCert, tlsKey, tlsCa }: Settings, fail: Fail): Config['tls'] {
  const [cert, key, ca] = [tlsCert?.content, tlsKey?.content, tlsCa?.content];
  if (cert && key) {
    const [certPath = '', keyPath = '', caPath] = [tlsCert?.path, tlsKey?.path, tlsCa?.path];
    const read = () =>
      fitting(readText(certPath), readText(keyPath), caPath === undefined ? undefined : readText(caPath));
    try {
      const files = [certPath, keyPath, ...(caPath === undefined ? [] : [caPath])];
      return { ...fitting(cert, key, ca), files, keyFile: keyPath, read };
    } catch (error) {
      return fail('SLIPWAY_TLS_KEY', `does not go with SLIPWAY_TLS_CERT: ${(error as Error).message}`);
    }
  }
  if (cert) return fail('SLIPWAY_TLS_KEY', 'is needed next to SLIPWAY_TLS_CERT.');
  if (key) return fail('SLIPWAY_TLS_CERT', 'is needed next to SLIPWAY_TLS_KEY.');
  return ca ? fail('SLIPWAY_TLS_CERT', 'is needed next to SLIPWAY_TLS_CA.') : undefined;
}

function demandDifferentPorts({ httpPort, mqttPort, mqttsPort }: Settings, hasTls: boolean, fail: Fail): void {
  const ports: Array<[string, number]> = [
    ['SLIPWAY_HTTP_PORT', httpPort],
    ['SLIPWAY_MQTT_PORT', mqttPort],
    ...(hasTls ? ([['SLIPWAY_MQTTS_PORT', mqttsPort]] as Array<[string, number]>) : []),
  ];
  const taken = new Map<number, string>();
  for (const [name, number] of ports) {
    const other = taken.get(number);
    if (number !== 0 && other) fail(name, `is the same port as ${other}.`);
    taken.set(number, name);
  }
}

/** Settings of a command that calls a server. */
const usualUrl = 'http://127.0.0.1:3000';

/** What `slipway login` keeps: the server, and a JWT for it. */
export interface SavedLogin {
  url: string;
  token: string;
}

/** Where `slipway login` keeps it, readable for its owner alone. */
export function loginFile(environment: Environment = process.env): string {
  return join(environment.XDG_CONFIG_HOME?.trim() || join(homedir(), '.config'), 'slipway', 'login.json');
}

export interface ClientConfig {
  /** Without a slash at the end. */
  url: string;
  /** A JWT, or the appToken of the application `appId`. */
  token: string;
  appId: string | undefined;
  accountId: string | undefined;
}

/**
 * Where a command finds its server and its rights: what was given on the command line, over the environment, over `.env`, over
 * the login that is kept. @throws ConfigError naming the variable that is missing or wrong.
 */
export function loadClientConfig(
  given: { url?: string | undefined; token?: string | undefined; saved?: SavedLogin | undefined },
  environment: Environment = process.env,
  directory = process.cwd(),
): ClientConfig {
  const text = textsOf(environment, directory);
  const url = readServerUrl(given.url ?? text('SLIPWAY_URL') ?? given.saved?.url ?? usualUrl);
  const token = given.token ?? text('SLIPWAY_TOKEN') ?? (given.saved?.url === url ? given.saved.token : undefined);
  if (!token)
    throw new ConfigError(
      'SLIPWAY_TOKEN (or --token) is missing: a JWT, or the appToken of a station. People log in with slipway login.',
    );
  return {
    url,
    token,
    appId: text('SLIPWAY_APP_ID'),
    accountId: text('SLIPWAY_ACCOUNT_ID'),
  };
}

/** What a command that plays a device needs, from the same places. @throws ConfigError. */
export function loadDeviceConfig(
  given: { url?: string | undefined; secret?: string | undefined },
  environment: Environment = process.env,
  directory = process.cwd(),
): { url: string; secret: string | undefined; topicRoot: string } {
  const text = textsOf(environment, directory);
  const url = readServerUrl(given.url ?? text('SLIPWAY_URL') ?? usualUrl);
  const topicRoot = text('SLIPWAY_TOPIC_ROOT') ?? 'slipway/v1';
  return { url, secret: given.secret ?? text('SLIPWAY_ENROLL_SECRET'), topicRoot };
}

/** Reads variables of the environment, over those of `.env`. */
function textsOf(environment: Environment, directory: string): (name: string) => string | undefined {
  const variables = { ...readVariables(resolve(directory, '.env')), ...environment };
  return (name) => variables[name]?.trim() || undefined;
}

/** Without a slash at the end. @throws ConfigError for what is no address of a server. */
export function readServerUrl(given: string): string {
  if (!/^https?:\/\/[^/?#]+[^?#]*$/.test(given) || !URL.canParse(given))
    throw new ConfigError('SLIPWAY_URL (or --url) must be an address such as https://things.example.com.');
  return given.replace(/\/+$/, '');
}

/** @throws ConfigError for a file that cannot be read, or is not text. */
function readVariables(file: string): Environment {
  if (!existsSync(file)) return {};
  let text: string;
  try {
    text = readText(file);
  } catch (error) {
    throw new ConfigError(`${file} cannot be read: ${(error as Error).message}`);
  }
  if (text.includes('\0')) throw new ConfigError(`${file} cannot be read: it must be text in UTF-8.`);
  return parseEnv(text);
}
