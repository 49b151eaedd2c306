/** Every environment variable that is no limit, in one table: src/core/config.ts reads it, docs/configuration.md shows it. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { maxRetentionDays } from '../../db/registry/records/account.ts';
import { readSlots } from './ids.ts';

/** Tools to read a value: the directory of relative paths, and `fail` for an invalid value. */
interface Reading {
  directory: string;
  /** @throws with a sentence that the name of the variable is the subject of. */
  fail(sentence: string): never;
}

/** A type of values: its name in the documentation, and how it is read from text. */
interface Type<T> {
  name: string;
  read(text: string, reading: Reading): T;
  /** Whether blanks at the ends are part of the value. */
  isRaw?: true;
}

/** One variable. A row of the table below is all that a new one needs, besides the code that uses it. */
export interface Setting<T> {
  variable: string;
  type: Type<T>;
  /** As it would be given; undefined where absence is no value. */
  default: string | undefined;
  /** The default in words, where there is none. */
  usually?: string;
  meaning: string;
}

const text: Type<string> = { name: 'text', read: (value) => value };

const flag: Type<boolean> = {
  name: '`true` or `false`',
  read: (value, { fail }) =>
    value === 'true' || value === 'false' ? value === 'true' : fail('must be true or false.'),
};

/** A whole number, multiplied by `factor`: 1000 makes milliseconds of seconds. */
const whole = (min: number, max: number, factor = 1): Type<number> => ({
  name: `${min} to ${max}`,
  read(value, { fail }) {
    const number = /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= min && number <= max) return number * factor;
    return fail(`must be a whole number from ${min} to ${max}.`);
  },
});

const port = { ...whole(0, 65_535), name: 'port' };

const host: Type<string> = {
  name: 'address or host name',
  read: (value, { fail }) =>
    isIP(value) || /^[a-zA-Z0-9.-]{1,253}$/.test(value)
      ? value
      : fail('must be an address or a host name, without brackets and port.'),
};

/** A file, by its path. */
const path: Type<string> = {
  name: 'path',
  read: (value, { directory, fail }) =>
    value.includes('\0') ? fail('must be a path without the character NUL.') : resolve(directory, value),
};

/** The content of a PEM file. */
const pem: Type<{ path: string; content: string }> = {
  name: 'path of a PEM file',
  read(value, { directory, fail }) {
    let content: string;
    try {
      content = readText(resolve(directory, value));
    } catch (error) {
      return fail(`names a file that cannot be read: ${(error as Error).message}`);
    }
    return content.includes('-----BEGIN ')
      ? { path: resolve(directory, value), content }
      : fail('must name a PEM file.');
  },
};

/** A text in UTF-8, without the byte order mark that some editors begin it with. @throws Error when it cannot be read. */
export function readText(file: string): string {
  return readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
}

/** A URL with one of the protocols, without a slash at its end. `refusal` says what else is wrong with it. */
const url = (protocols: readonly string[], refusal?: (value: string) => string | undefined): Type<string> => ({
  name: protocols.map((one) => `\`${one}//\``).join(' or '),
  read(value, { fail }) {
    const parsed = URL.canParse(value) ? new URL(value) : undefined;
    const beginnings = protocols.map((one) => `${one}//`).join(' or ');
    if (!parsed?.hostname || !protocols.includes(parsed.protocol))
      return fail(`must be an address beginning with ${beginnings}, special characters percent-encoded.`);
    const refused = refusal?.(value);
    return refused === undefined ? value.replace(/\/+$/, '') : fail(refused);
  },
});

/** A text that matches, lower-cased before if `lower`. */
const matching = (name: string, pattern: RegExp, refusal: string, { lower = false } = {}): Type<string> => ({
  name,
  read(given, { fail }) {
    const value = lower ? given.toLowerCase() : given;
    return pattern.test(value) ? value : fail(refusal);
  },
});

const topicLevels = matching(
  'topic levels',
  /^[A-Za-z0-9_.-]+(\/[A-Za-z0-9_.-]+){0,5}$/,
  'must be one to six topic levels of letters, digits, dot, dash and underscore.',
);

const emailRefusal = 'must be an email address.';

/** Comma-separated texts. */
const list = (name: string, isOne: (one: string) => boolean, refusal: string): Type<string[]> => ({
  name,
  read(value, { fail }) {
    const all = value.split(',').flatMap((one) => one.trim() || []);
    return all.every(isOne) ? all : fail(refusal);
  },
});

const oneOf = (...values: readonly string[]): Type<string> => ({
  name: values.map((one) => `\`${one}\``).join(', '),
  read: (value, { fail }) => (values.includes(value) ? value : fail(`must be one of ${values.join(', ')}.`)),
});

const slotsType: Type<readonly string[]> = {
  name: 'slots',
  read: (value, { fail }) =>
    readSlots(value) ?? fail('must be ranges of three hexadecimal digits such as 000-3ff,7c1.'),
};

/** A text in which blanks at the ends count. */
const secret: Type<string> = { name: 'text', isRaw: true, read: (value) => value };

/** An address, with a port or without. */
function isServer(value: string): boolean {
  if (isIP(value)) return true;
  const [, six, four = '', number] = /^(?:\[(.+)\]|([\d.]+))(?::(\d{1,5}))?$/.exec(value) ?? [];
  return (six === undefined ? isIP(four) === 4 : isIP(six) === 6) && Number(number ?? 53) <= 65_535;
}

/** An address, or one with the length of a prefix. */
function isNetwork(value: string): boolean {
  const [address = '', prefix, more] = value.split('/');
  const family = isIP(address);
  if (family === 0 || more !== undefined) return false;
  return prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128));
}

/** Days that a retention may be given as: a hundred years. */
const maxHours = 876_000;
const [second, hour] = [1000, 3_600_000];

const row = <T>(variable: string, type: Type<T>, usual: string, meaning: string): Setting<T> => ({
  variable,
  type,
  default: usual,
  meaning,
});
/** A variable whose absence is no value; `usually` says what it means. */
const optional = <T>(variable: string, type: Type<T>, meaning: string, usually = 'none'): Setting<T | undefined> => ({
  variable,
  type,
  default: undefined,
  usually,
  meaning,
});

export const settings = {
  host: row(
    'SLIPWAY_HOST',
    host,
    '127.0.0.1',
    'Address to listen on. `0.0.0.0` lets devices on the local network connect',
  ),
  httpPort: row(
    'SLIPWAY_HTTP_PORT',
    port,
    '3000',
    'HTTP, and MQTT over WebSocket at `/mqtt` and `/`. Port 0 takes a free one',
  ),
  mqttPort: row('SLIPWAY_MQTT_PORT', port, '1883', 'MQTT over TCP, without TLS'),
  tlsCert: optional(
    'SLIPWAY_TLS_CERT',
    pem,
    'The certificate. With it and its key, HTTP becomes HTTPS and the MQTT TLS port opens',
  ),
  tlsKey: optional(
    'SLIPWAY_TLS_KEY',
    pem,
    'The key of the certificate. Other users of the machine must not be able to read it',
  ),
  tlsCa: optional('SLIPWAY_TLS_CA', pem, 'The chain that is sent with the certificate'),
  mqttsPort: row('SLIPWAY_MQTTS_PORT', port, '8883', 'MQTT over TLS, and MQTT over WebSocket on TLS'),
  dataDir: row('SLIPWAY_DATA_DIR', path, './data', 'Databases and keys'),
  slots: row(
    'SLIPWAY_SLOTS',
    slotsType,
    '000-fff',
    'The slots of new accounts, if this server is one of several. See [Scaling](scaling.md)',
  ),
  topicRoot: row('SLIPWAY_TOPIC_ROOT', topicLevels, 'slipway/v1', 'First levels of every topic'),
  controlRoot: row(
    'SLIPWAY_CONTROL_ROOT',
    topicLevels,
    'slipway/ctrl/v1',
    'First levels of the control topics of devices',
  ),
  headerPrefix: row(
    'SLIPWAY_HEADER_PREFIX',
    matching('header name', /^[a-z][a-z0-9-]{0,31}$/, 'must be a header name of letters, digits and dashes.', {
      lower: true,
    }),
    'platform',
    'Prefix of the headers `<prefix>-access-token` (also a cookie), `<prefix>-csrf-token`, `<prefix>-session`, `<prefix>-mfa-token`, `<prefix>-ignored-properties`, `<prefix>-revocation`, `<prefix>-idempotency`',
  ),
  accountId: optional(
    'SLIPWAY_ACCOUNT_ID',
    matching('UUID', /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, 'must be a UUID.', {
      lower: true,
    }),
    'The id of the first account. Used only by the first start, while there is no account',
    'generated',
  ),
  accountName: row('SLIPWAY_ACCOUNT_NAME', text, 'My company', 'The name of the first account'),
  adminEmail: optional(
    'SLIPWAY_ADMIN_EMAIL',
    matching('email address', /^[^\s@]+@[^\s@]+$/, emailRefusal),
    'The email address of the first admin. Used only by the first start',
    '`admin@slipway.local`',
  ),
  adminPassword: optional(
    'SLIPWAY_ADMIN_PASSWORD',
    secret,
    'The password of the first admin. Used only by the first start',
    'generated and printed',
  ),
  adminPasswordFile: optional(
    'SLIPWAY_ADMIN_PASSWORD_FILE',
    path,
    'A file that holds that password in one line, instead of `SLIPWAY_ADMIN_PASSWORD`. Read only by the first start',
  ),
  logLevel: row(
    'SLIPWAY_LOG_LEVEL',
    oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
    'info',
    'What is logged: this level and those before it',
  ),
  strictQueries: row(
    'SLIPWAY_STRICT_QUERIES',
    flag,
    'false',
    '`true` answers 400 to unknown query parameters. `false` ignores them and names them in `meta.ignored`',
  ),
  strictBodies: row(
    'SLIPWAY_STRICT_BODIES',
    flag,
    'false',
    '`true` answers 400 to unknown properties of bodies, and to unknown query parameters as `SLIPWAY_STRICT_QUERIES` does. `false` ignores them and names them in a response header. Read-only properties are never errors',
  ),
  trustedProxies: row(
    'SLIPWAY_TRUSTED_PROXIES',
    list('addresses and networks', isNetwork, 'must be addresses or networks such as 10.0.0.0/8.'),
    '',
    'Addresses and networks whose `X-Forwarded-For` and PROXY protocol are believed, comma-separated',
  ),
  publicUrl: optional(
    'SLIPWAY_PUBLIC_URL',
    // Console, cookies and redirects are at the root of their host.
    url(['http:', 'https:'], (value) =>
      /^[^/]+\/\/[^/?#]+\/*$/.test(value) ? undefined : 'must be a host alone, without a path, a query and a fragment.',
    ),
    'The URL of the service for browsers and for devices that download firmware, such as `https://things.example.com`, without a path. If it is set, emails link to pages there; otherwise they say what to paste at `/set-password` or `/confirm-email`',
    'where it listens',
  ),
  mqttPublicUrl: optional(
    'SLIPWAY_MQTT_PUBLIC_URL',
    url(['mqtt:', 'mqtts:'], (value) => (new URL(value).username ? 'must have no user in it.' : undefined)),
    'Where provisioned units connect, such as `mqtts://things.example.com:8883`',
    "`mqtts://` or `mqtt://`, the host of `SLIPWAY_PUBLIC_URL` or `SLIPWAY_HOST`, the broker's port",
  ),
  claimUrl: optional(
    'SLIPWAY_CLAIM_URL',
    url(['http:', 'https:']),
    'Target of the QR code of a label. `code` (the association code) and `account` are added to it',
    '`/claim` at `SLIPWAY_PUBLIC_URL`',
  ),
  smtpUrl: optional(
    'SLIPWAY_SMTP_URL',
    url(['smtp:', 'smtps:']),
    'Mail server, as `smtp://user:password@host:587`. Without it, emails are written to `outbox.ndjson` in the data directory',
  ),
  mailFrom: row(
    'SLIPWAY_MAIL_FROM',
    matching('email address', /^[^\r\n]*[^\s@]+@[^\s@]+$/, emailRefusal),
    'slipway@localhost',
    'The sender of emails',
  ),
  smsWebhookUrl: optional(
    'SLIPWAY_SMS_WEBHOOK_URL',
    url(['http:', 'https:'], (value) =>
      // Nothing would be sent there, and each failure would put the password into the log.
      /:\/\/[^/?#]*@/.test(value) ? 'must have no user and no password in it.' : undefined,
    ),
    'Receives `{"to","text"}` by POST for each text message. It has no user and password. Without it, text messages are written to `outbox.ndjson`',
  ),
  geoipDatabase: optional(
    'SLIPWAY_GEOIP_DATABASE',
    path,
    'MMDB file (such as GeoLite2 City) for `geoIpLatitude` and `geoIpLongitude`. It is read again when it is replaced',
  ),
  dnsServers: row(
    'SLIPWAY_DNS_SERVERS',
    list('addresses', isServer, 'must be addresses such as 10.0.0.1, 10.0.0.1:5353 or [fd00::1]:5353.'),
    '',
    'Servers for `reverseDns`, comma-separated, as `10.0.0.1` or `10.0.0.1:5353`',
  ),
  allowPrivateTargets: row(
    'SLIPWAY_ALLOW_PRIVATE_TARGETS',
    flag,
    'false',
    '`true` lets bridges and OpenID providers use private addresses, and lets bridges use plain HTTP',
  ),
  bridgeAllowPrivate: row('SLIPWAY_BRIDGE_ALLOW_PRIVATE', flag, 'false', 'Deprecated: the same, for bridges only'),
  bridgeTimeout: row(
    'SLIPWAY_BRIDGE_TIMEOUT_SECONDS',
    whole(1, 120, second),
    '10',
    "How long a bridge's target may take to answer",
  ),
  bridgeRetryAge: row(
    'SLIPWAY_BRIDGE_RETRY_HOURS',
    whole(1, maxHours, hour),
    '72',
    'How long a guaranteed message is retried before it becomes a dead letter. At least 1',
  ),
  bridgeDeliveredAge: row(
    'SLIPWAY_BRIDGE_KEEP_HOURS',
    whole(0, maxHours, hour),
    '24',
    'How long delivered messages are kept for a replay. 0 keeps none',
  ),
  bridgeDeadAge: row(
    'SLIPWAY_BRIDGE_DEAD_LETTER_HOURS',
    whole(1, maxHours, hour),
    '720',
    'How long dead letters are kept. At least 1',
  ),
  metricsToken: optional(
    'SLIPWAY_METRICS_TOKEN',
    matching('visible ASCII', /^[!-~]+$/, 'must be of visible ASCII characters, without blanks.'),
    'If it is set, `/metrics` and `/health/…` require it as `Authorization: Bearer`. Otherwise they are open',
  ),
  moveToken: optional(
    'SLIPWAY_MOVE_TOKEN',
    matching(
      '32 to 200 characters of visible ASCII',
      /^[!-~]{32,200}$/,
      'must be of 32 to 200 visible ASCII characters, without blanks.',
    ),
    'Lets `slipway account move --config` read and write whole accounts at `/cell/move/…`, see scaling.md. The same in every cell. Without it, these endpoints are closed',
  ),
  shutdownDelay: row(
    'SLIPWAY_SHUTDOWN_DELAY_SECONDS',
    whole(0, 600, second),
    '0',
    'How long the service keeps working after a signal while `/health/ready` answers 503, so that a load balancer notices. A second signal ends the delay',
  ),
  retentionDays: row(
    'SLIPWAY_RETENTION_DAYS',
    whole(0, maxRetentionDays),
    '0',
    'Days that points and log entries are kept if neither their channel nor their account says it. 0 keeps them for ever',
  ),
  diskReserveBytes: row(
    'SLIPWAY_DISK_RESERVE_BYTES',
    whole(0, 999_999_999_999_999),
    '536870912',
    'Disk space that stays free. Below it, whatever makes a database grow is refused with 507: messages, new entities, changes, jobs. Reading, login, deletion and new secrets still work',
  ),
};

export type Settings = { [K in keyof typeof settings]: (typeof settings)[K] extends Setting<infer T> ? T : never };

/** Variables of the command only, when it speaks to a server. A server does not take them for typing errors. */
export const commandSettings = [
  { variable: 'SLIPWAY_URL', meaning: 'The server' },
  { variable: 'SLIPWAY_ENROLL_SECRET', meaning: 'The proof of `slipway enroll`: a claim secret, or a derived key' },
  { variable: 'SLIPWAY_TOKEN', meaning: 'A token of a user, or the `appToken` of the application in `SLIPWAY_APP_ID`' },
  { variable: 'SLIPWAY_APP_ID', meaning: 'The id of an application' },
  { variable: 'SLIPWAY_ACCOUNT_ID', meaning: 'The account' },
];

/**
 * Every setting from `environment`. `directory` is where relative paths begin.
 * @throws what `fail` throws, for the first value that is wrong.
 */
export function readSettings(
  environment: Record<string, string | undefined>,
  directory: string,
  fail: (variable: string, sentence: string) => never,
): Settings {
  const read = ({ variable, type, default: usual }: Setting<unknown>): unknown => {
    const given = type.isRaw ? environment[variable] : environment[variable]?.trim();
    const value = given || usual;
    return value === undefined
      ? undefined
      : type.read(value, { directory, fail: (sentence) => fail(variable, sentence) });
  };
  return Object.fromEntries(
    Object.entries(settings).map(([name, setting]) => [name, read(setting as Setting<unknown>)]),
  ) as Settings;
}
