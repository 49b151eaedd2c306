/** Starts that cannot be: each says one sentence that names the file or the variable, and leaves the directory as it was. */
import { spawnSync } from 'node:child_process';
import { createHash, generateKeyPairSync } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { openSqlite } from '../../db/sqlite/open.ts';
import { readConfig } from '../../src/core/config.ts';
import { readPasswordFile } from '../../src/core/formats/password-file.ts';
import { certificate } from '../broker/certificate.ts';
import { runCommand } from '../support/command.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';
import { inherited, mainFile, runToEnd, startProcess } from '../support/process.ts';
import { refusedStart } from '../support/refused-start.ts';
import { adminEmail, adminPassword, present } from '../support/service.ts';
import { until } from '../support/until.ts';

const t = await part(import.meta);

const used = temporaryDirectory(t);
const tls = certificate(t);

type Env = Record<string, string>;
/** What makes the start wrong, in a directory that was in use, and what it says. */
type Wrong = readonly [what: string, spoil: (directory: string) => Env | undefined, said: RegExp];

const write = (directory: string, name: string, content: string | Uint8Array): string => {
  const path = join(directory, name);
  rmSync(path, { recursive: true, force: true });
  writeFileSync(path, content, { mode: 0o600 });
  return path;
};
const asDirectory = (directory: string, name: string): void => {
  rmSync(join(directory, name), { recursive: true, force: true });
  mkdirSync(join(directory, name), { mode: 0o700 });
};
const done = (work: (directory: string) => unknown) => (directory: string) => {
  work(directory);
  return undefined;
};
const env = (variables: Env) => () => variables;
const damage = (directory: string, name: string): void => {
  const bytes = readFileSync(join(directory, name));
  write(directory, name, bytes.fill(7, 4096));
};
const outdate = (directory: string, name: string): void => {
  const file = openSqlite(join(directory, name));
  file.exec(`UPDATE "migrations" SET "name" = '9999-later' WHERE "name" = (SELECT max("name") FROM "migrations")`);
  file.close();
};
const signingKey = (directory: string): string =>
  join('keys', readdirSync(join(directory, 'keys')).find((name) => name.endsWith('.json')) ?? '');
const number = (name: string, most: string) => new RegExp(`^${name} must be .*whole number from \\d+ to ${most}`);

const wrong: readonly Wrong[] = [
  // Files of the data directory
  [
    'no database',
    done((d) => write(d, 'registry.db', 'x'.repeat(9000))),
    /registry\.db cannot be read: .*not a database.*Restore a backup/,
  ],
  [
    'no store of messages',
    done((d) => write(d, 'messages.db', 'x'.repeat(9000))),
    /messages\.db cannot be read: .*not a database.*Restore a backup/,
  ],
  [
    'a registry cut off',
    done((d) => truncateSync(join(d, 'registry.db'), 8192)),
    /registry\.db cannot be read: .*malformed/,
  ],
  [
    'messages cut off',
    done((d) => truncateSync(join(d, 'messages.db'), 8192)),
    /messages\.db cannot be read: .*malformed/,
  ],
  ['damaged pages', done((d) => damage(d, 'registry.db')), /registry\.db cannot be read: .*malformed/],
  ['a folder as the registry', done((d) => asDirectory(d, 'registry.db')), /registry\.db cannot be read: /],
  ['a folder as the messages', done((d) => asDirectory(d, 'messages.db')), /messages\.db cannot be read: /],
  [
    'a newer registry',
    done((d) => outdate(d, 'registry.db')),
    /registry\.db was made by a newer version: .*9999-later.*slipway rollback/,
  ],
  [
    'newer messages',
    done((d) => outdate(d, 'messages.db')),
    /messages\.db was made by a newer version: .*9999-later.*slipway rollback/,
  ],
  ['a file as the keys', done((d) => write(d, 'keys', 'x')), /keys/],
  ['a folder as the sealing key', done((d) => asDirectory(d, 'keys/sealing.key')), /keys\/sealing\.key is not the key/],
  ['half a sealing key', done((d) => write(d, 'keys/sealing.key', 'YWJj')), /keys\/sealing\.key is not the key/],
  ['no signing key', done((d) => write(d, signingKey(d), 'x')), /keys\/.*\.json is not a signing key/],
  ['an empty signing key', done((d) => write(d, signingKey(d), '{}')), /keys\/.*\.json is not a signing key/],
  ['a file as the snapshots', done((d) => write(d, 'snapshots', 'x')), /snapshots/],
  ['a file as the firmware', done((d) => write(d, 'firmware', 'x')), /firmware/],
  ['a folder as the holder', done((d) => asDirectory(d, 'server.holder')), /EISDIR/],
  ['a folder as the lock', done((d) => asDirectory(d, 'server.lock')), /unable to open database file/],
  ['a directory for all', done((d) => chmodSync(d, 0o755)), /other users can open .*chmod -R go-rwx/],
  // .env
  ['a folder .env', done((d) => asDirectory(d, '.env')), /\.env cannot be read: EISDIR/],
  [
    'an .env in UTF-16',
    done((d) => write(d, '.env', Buffer.from('SLIPWAY_HTTP_PORT=0\n', 'utf16le'))),
    /\.env cannot be read: it must be text in UTF-8/,
  ],
  // Paths
  ['NUL in a path', env({ SLIPWAY_DATA_DIR: 'a\0b' }), /^SLIPWAY_DATA_DIR must be a path without/],
  ['a long path', env({ SLIPWAY_DATA_DIR: 'a'.repeat(300) }), /^SLIPWAY_DATA_DIR cannot be used: ENAMETOOLONG/],
  // TLS
  [
    'no certificate there',
    env({ ...tls, SLIPWAY_TLS_CERT: 'nowhere.pem' }),
    /^SLIPWAY_TLS_CERT names a file that cannot be read: ENOENT.*nowhere\.pem/,
  ],
  [
    'a folder as certificate',
    env({ ...tls, SLIPWAY_TLS_CERT: '.' }),
    /^SLIPWAY_TLS_CERT names a file that cannot be read: EISDIR/,
  ],
  [
    'a folder as key',
    env({ ...tls, SLIPWAY_TLS_KEY: '.' }),
    /^SLIPWAY_TLS_KEY names a file that cannot be read: EISDIR/,
  ],
  [
    'text in place of a certificate',
    (d) => ({ ...tls, SLIPWAY_TLS_CERT: write(d, 'c.pem', 'x') }),
    /^SLIPWAY_TLS_CERT must name a PEM file/,
  ],
  ['a certificate without a key', env({ SLIPWAY_TLS_CERT: tls.SLIPWAY_TLS_CERT ?? '' }), /^SLIPWAY_TLS_KEY is needed/],
  [
    "another certificate's key",
    (d) => {
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      return {
        ...tls,
        SLIPWAY_TLS_KEY: write(d, 'k.pem', privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()),
      };
    },
    /^SLIPWAY_TLS_KEY does not go with SLIPWAY_TLS_CERT/,
  ],
  [
    'a key with a passphrase',
    (d) => {
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const form = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' } as const;
      return { ...tls, SLIPWAY_TLS_KEY: write(d, 'k.pem', privateKey.export(form).toString()) };
    },
    /^SLIPWAY_TLS_KEY does not go with SLIPWAY_TLS_CERT: it has a passphrase.*openssl pkey/,
  ],
  [
    'no chain there',
    env({ ...tls, SLIPWAY_TLS_CA: 'nowhere.pem' }),
    /^SLIPWAY_TLS_CA names a file that cannot be read/,
  ],
  // Values
  ['a word as port', env({ SLIPWAY_HTTP_PORT: 'http' }), number('SLIPWAY_HTTP_PORT', '65535')],
  ['a port too high', env({ SLIPWAY_MQTT_PORT: '65536' }), number('SLIPWAY_MQTT_PORT', '65535')],
  [
    'a port twice',
    env({ SLIPWAY_HTTP_PORT: '4000', SLIPWAY_MQTT_PORT: '4000' }),
    /^SLIPWAY_MQTT_PORT is the same port as SLIPWAY_HTTP_PORT/,
  ],
  ['a quoted port', env({ SLIPWAY_HTTP_PORT: '"3000"' }), /^SLIPWAY_HTTP_PORT must be .*in quotes.*--env-file/],
  ['brackets', env({ SLIPWAY_HOST: '[::1]' }), /^SLIPWAY_HOST must be an address or a host name, without brackets/],
  [
    'an address with a port',
    env({ SLIPWAY_HOST: '127.0.0.1:3000' }),
    /^SLIPWAY_HOST must be .*without brackets and port/,
  ],
  [
    'a host that is nowhere',
    env({ SLIPWAY_HOST: 'nowhere.invalid' }),
    /^SLIPWAY_HOST cannot be used: .*nowhere\.invalid/,
  ],
  [
    'a path in the public URL',
    env({ SLIPWAY_PUBLIC_URL: 'https://example.com/slipway' }),
    /^SLIPWAY_PUBLIC_URL must be a host alone, without a path/,
  ],
  [
    'a public URL of another kind',
    env({ SLIPWAY_PUBLIC_URL: 'ftp://example.com' }),
    /^SLIPWAY_PUBLIC_URL must be an address beginning with http/,
  ],
  [
    'a public broker that is no broker',
    env({ SLIPWAY_MQTT_PUBLIC_URL: 'https://example.com' }),
    /^SLIPWAY_MQTT_PUBLIC_URL must be an address beginning with mqtt/,
  ],
  ['a mail server without smtp://', env({ SLIPWAY_SMTP_URL: 'mail.example.com' }), /^SLIPWAY_SMTP_URL must be/],
  ['a loud log', env({ SLIPWAY_LOG_LEVEL: 'loud' }), /^SLIPWAY_LOG_LEVEL must be one of/],
  ['no network', env({ SLIPWAY_TRUSTED_PROXIES: '10.0.0.0/33' }), /^SLIPWAY_TRUSTED_PROXIES must be/],
  ['no name server', env({ SLIPWAY_DNS_SERVERS: 'localhost' }), /^SLIPWAY_DNS_SERVERS must be/],
  [
    'no places there',
    env({ SLIPWAY_GEOIP_DATABASE: 'nowhere.mmdb' }),
    /^SLIPWAY_GEOIP_DATABASE cannot be used: .*ENOENT/,
  ],
  [
    'places that are none',
    (d) => ({ SLIPWAY_GEOIP_DATABASE: write(d, 'places', 'x') }),
    /^SLIPWAY_GEOIP_DATABASE cannot be used/,
  ],
  ['a limit beyond', env({ SLIPWAY_MQTT_MAX_QUEUE: '1e9' }), /^SLIPWAY_MQTT_MAX_QUEUE must be/],
  ['neither true nor false', env({ SLIPWAY_STRICT_QUERIES: 'yes' }), /^SLIPWAY_STRICT_QUERIES must be true or false/],
];

/** Names, modes and contents below a directory, but for the files of locks and of logs that SQLite makes anew. */
function contentOf(directory: string): string {
  const names = readdirSync(directory, { recursive: true, encoding: 'utf8' }).sort();
  const kept = names.filter((name) => !/^server\.|-(wal|shm|journal)$/.test(name));
  const hash = createHash('sha256');
  for (const name of kept) {
    const { mode } = statSync(join(directory, name));
    hash.update(`${name}\0${mode}\0`);
    if (statSync(join(directory, name)).isFile()) hash.update(readFileSync(join(directory, name)));
  }
  return `${kept.join(' ')} ${hash.digest('hex')}`;
}

/** A copy of the directory that was in use. */
function copy(t: Test): string {
  const directory = temporaryDirectory(t);
  cpSync(used, directory, { recursive: true });
  chmodSync(directory, 0o700);
  return directory;
}

t.test('a start that cannot be says one sentence, and changes nothing', async (t) => {
  t.equal(await refusedStart(used, {}), 'it has started');
  for (const [what, spoil, said] of wrong) {
    const directory = copy(t);
    const variables = spoil(directory) ?? {};
    const before = contentOf(directory);
    const sentence = await refusedStart(directory, variables);
    t.match(sentence, said, what);
    t.notMatch(sentence, /\n|an error that nobody expected/, `${what}: one sentence`);
    t.equal(contentOf(directory), before, `${what}: the directory is as it was`);
    rmSync(directory, { recursive: true });
  }
});

t.test('as a process it ends with 1, and prints that sentence alone', async (t) => {
  const kinds = ['no store of messages', 'a key with a passphrase', 'a quoted port', 'a host that is nowhere'];
  const rows = wrong.filter(([what]) => [...kinds, 'half a sealing key', 'places that are none'].includes(what));
  t.equal(rows.length, 6);
  const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0', SLIPWAY_MQTTS_PORT: '0' };
  const ends = rows.map(async ([what, spoil, said]) => {
    const directory = copy(t);
    const variables = spoil(directory) ?? {};
    const ended = await runToEnd(mainFile, [], { ...ports, SLIPWAY_DATA_DIR: directory, ...variables });
    t.match(ended, { code: 1, stdout: '', stderr: /^slipway cannot start: [^\n]+\n$/ }, what);
    t.match(ended.stderr.slice('slipway cannot start: '.length), said, what);
  });
  await Promise.all(ends);
});

/** Mounts a small disk; whether it may. */
const mountSmall = (directory: string, size: number) =>
  spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=700`, 'tmpfs', directory]).status === 0;
const unmount = (directory: string) => spawnSync('umount', [directory]);
const tried = temporaryDirectory(t);
const mayMount = mountSmall(tried, 4096);
if (mayMount) unmount(tried);

t.test(
  'no room for the copy before a step',
  mayMount ? {} : { skip: 'a small disk cannot be mounted here' },
  async (t) => {
    const directory = join(temporaryDirectory(t), 'small');
    mkdirSync(directory, { mode: 0o700 });
    const size = statSync(join(used, 'registry.db')).size + statSync(join(used, 'messages.db')).size + 512 * 1024;
    t.ok(mountSmall(directory, size));
    t.teardown(() => unmount(directory));
    cpSync(used, directory, { recursive: true });
    const file = openSqlite(join(directory, 'messages.db'));
    file.exec(`DELETE FROM "migrations" WHERE "name" = (SELECT max("name") FROM "migrations")`);
    file.close();
    const before = contentOf(directory);
    const sentence = await refusedStart(directory, {});
    t.match(sentence, /^SLIPWAY_DATA_DIR cannot be used: .*(ENOSPC|full)/);
    t.equal(contentOf(directory), before);
  },
);

const asNobody = ['--reuid', '65534', '--clear-groups', '--', process.execPath];
/** Why it cannot be tried here that files are another user's. */
const othersFiles =
  process.getuid?.() !== 0
    ? { skip: 'only root can give files away' }
    : spawnSync('setpriv', [...asNobody, '--check', mainFile]).status !== 0
      ? { skip: 'another user cannot read the checkout' }
      : {};

/** A start in its directory as a user who owns that, but not what is named `theirs` in it. */
function startAsNobody(t: Test, theirs: string, variables: (directory: string) => Env = () => ({})) {
  const directory = copy(t);
  const env = variables(directory);
  for (const name of readdirSync(directory)) if (name !== theirs) chownSync(join(directory, name), 65534, 65534);
  chownSync(directory, 65534, 65534);
  const ports = { SLIPWAY_HTTP_PORT: '0', SLIPWAY_MQTT_PORT: '0' };
  return spawnSync('setpriv', [...asNobody, mainFile], {
    env: { ...inherited, ...ports, SLIPWAY_DATA_DIR: directory, ...env },
    cwd: directory,
    encoding: 'utf8',
  });
}

t.test('keys of another user are named', othersFiles, async (t) => {
  const ended = startAsNobody(t, 'keys');
  t.equal(ended.status, 1);
  t.match(ended.stderr, /^slipway cannot start: SLIPWAY_DATA_DIR cannot be used: EACCES: [^\n]*keys[^\n]*\n$/);
});

t.test('an .env of another user is named', othersFiles, async (t) => {
  const ended = startAsNobody(t, '.env', (directory) => {
    write(directory, '.env', 'SLIPWAY_LOG_LEVEL=warn\n');
    return {};
  });
  t.equal(ended.status, 1);
  t.match(ended.stderr, /^slipway cannot start: [^\n]*\.env cannot be read: EACCES[^\n]*\n$/);
});

t.test('a TLS key of another user is named', othersFiles, async (t) => {
  const ended = startAsNobody(t, 'key.pem', (directory) => {
    const copied = (name: 'SLIPWAY_TLS_CERT' | 'SLIPWAY_TLS_KEY', to: string) =>
      write(directory, to, readFileSync(tls[name] ?? ''));
    return {
      SLIPWAY_TLS_CERT: copied('SLIPWAY_TLS_CERT', 'cert.pem'),
      SLIPWAY_TLS_KEY: copied('SLIPWAY_TLS_KEY', 'key.pem'),
    };
  });
  t.equal(ended.status, 1);
  const said =
    /^slipway cannot start: SLIPWAY_TLS_KEY names a file that cannot be read: EACCES: [^\n]*key\.pem[^\n]*\n$/;
  t.match(ended.stderr, said);
});

t.test('quotes around a value are warned of, and a byte order mark is no part of one', async (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'password');
  writeFileSync(file, `\uFEFF${adminPassword}\r\n`, { mode: 0o600 });
  t.equal(readPasswordFile(file), adminPassword);
  const pem = write(directory, 'cert.pem', `\uFEFF${readFileSync(tls.SLIPWAY_TLS_CERT ?? '', 'utf8')}`);
  const config = readConfig({ ...tls, SLIPWAY_TLS_CERT: pem, SLIPWAY_ACCOUNT_NAME: "'Acme'" });
  t.match(config.tls?.cert, /^-----BEGIN/);
  t.strictSame(config.quoted, ['SLIPWAY_ACCOUNT_NAME']);
  const { stdout } = await runCommand(['doctor', '--skip-integrity', '--data-dir', used], {
    SLIPWAY_ACCOUNT_NAME: "'Acme'",
  });
  t.match(stdout, /SLIPWAY_ACCOUNT_NAME: Its value is in quotes/);

  const server = await startProcess(t, temporaryDirectory(t), {
    ...{ SLIPWAY_ACCOUNT_NAME: '"Acme"', SLIPWAY_ADMIN_PASSWORD: undefined, SLIPWAY_ADMIN_PASSWORD_FILE: file },
  });
  await until(() => server.output().includes('Its value is in quotes'));
  const warned = server
    .output()
    .split('\n')
    .find((line) => line.includes('Its value is in quotes'));
  t.match(JSON.parse(present(warned)), { level: 40, variable: 'SLIPWAY_ACCOUNT_NAME' });
  const [, accountId = ''] = /account\s+(\S{36})/.exec(server.output()) ?? [];
  const answer = await fetch(`${server.url}/api/v1/auth/login-user`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accountId, emailAddress: adminEmail, password: adminPassword }),
  });
  t.equal(answer.status, 200, 'the mark is no part of the password');
  await server.stop('SIGTERM');
});

t.end();
