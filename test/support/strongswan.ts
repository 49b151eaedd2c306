/** strongSwan's `pki`, a client of EST: Debian's packages unpacked into a folder of our own. */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** The program, its library, its plugins, and the library of TLS that comes with others. */
const packages = [
  ...['strongswan-pki', 'libstrongswan', 'libstrongswan-standard-plugins', 'libstrongswan-extra-plugins'],
  'libcharon-extra-plugins',
];
const plugins = [
  ...['random', 'nonce', 'x509', 'revocation', 'constraints', 'pubkey', 'pkcs1', 'pkcs7', 'pkcs8', 'pem', 'openssl'],
  ...['sha1', 'sha2', 'hmac', 'gcm', 'aes', 'kdf'],
];
const cache = fileURLToPath(new URL('../../node_modules/.cache/strongswan', import.meta.url));
/** Milliseconds that the download may take. */
const patience = 60_000;
const configuration = join(cache, 'strongswan.conf');

/** Its plugins are looked for in a folder of the system: those that are loaded before are found by their names. */
function environment(): Record<string, string> {
  const libraries = join(cache, 'usr/lib/ipsec');
  return {
    STRONGSWAN_CONF: configuration,
    LD_LIBRARY_PATH: libraries,
    LD_PRELOAD: plugins.map((name) => join(libraries, 'plugins', `libstrongswan-${name}.so`)).join(' '),
  };
}

function unpack(): void {
  const parent = join(cache, '..');
  mkdirSync(parent, { recursive: true });
  const partial = mkdtempSync(join(parent, 'strongswan-'));
  const { status } = spawnSync('apt-get', ['download', ...packages], { cwd: partial, timeout: patience });
  const files = status === 0 ? readdirSync(partial).filter((name) => name.endsWith('.deb')) : [];
  const isUnpacked = files.map((file) => spawnSync('dpkg', ['-x', join(partial, file), partial]).status === 0);
  writeFileSync(join(partial, 'strongswan.conf'), `pki {\n  load = ${plugins.join(' ')}\n}\n`);
  if (files.length === packages.length && isUnpacked.every(Boolean) && !existsSync(cache)) renameSync(partial, cache);
  else rmSync(partial, { recursive: true, force: true });
}

/** Runs `pki` in a directory: what it prints. @throws Error with what it says. */
export async function pki(cwd: string, ...args: string[]): Promise<string> {
  const env = { PATH: process.env.PATH, ...environment() };
  const { stdout } = await promisify(execFile)(join(cache, 'usr/bin/pki'), args, { cwd, env, encoding: 'latin1' });
  return stdout;
}

function isUsable(): boolean {
  if (!existsSync(cache)) unpack();
  const { status, stderr } = spawnSync(join(cache, 'usr/bin/pki'), ['--help'], { env: environment() });
  return status === 0 && !/failed to load/.test(String(stderr));
}

/** Options of a test: it says so when there is no such client. */
export const withStrongswan = isUsable() ? {} : { skip: 'strongSwan’s pki is not there' };
