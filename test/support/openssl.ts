/** OpenSSL's command line, as a device and a company's CA use it. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { get as httpGet } from 'node:http';
import { get } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import type { Test } from 'tap';
import { connectPacket, type RawClient, speak } from '../broker/raw.ts';
import { temporaryDirectory } from './directory.ts';

/** Options of `openssl req -newkey` by kind of key. */
const keyKinds = {
  'P-256': ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'],
  'P-384': ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384'],
  'P-521': ['ec', '-pkeyopt', 'ec_paramgen_curve:P-521'],
  Ed25519: ['ed25519'],
  'RSA-1024': ['rsa:1024'],
  'RSA-2048': ['rsa:2048'],
} as const;
export type KeyKind = keyof typeof keyKinds;

export interface Openssl {
  directory: string;
  /** The output of a command; files are named as they are in the directory. */
  run(...args: string[]): string;
  write(name: string, content: string | Uint8Array): string;
  read(name: string): Buffer;
  /** A key and a request for a certificate, PEM; with `keyOf` another request of a key. */
  request(options?: { kind?: KeyKind; subject?: string; keyOf?: Requested; more?: string[] }): Requested;
}
export interface Requested {
  key: string;
  csr: string;
}

export function openssl(t: Test): Openssl {
  const directory = temporaryDirectory(t);
  let made = 0;
  const run = (...args: string[]) =>
    execFileSync('openssl', args, { cwd: directory, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const write = (name: string, content: string | Uint8Array) => {
    writeFileSync(join(directory, name), content);
    return name;
  };
  const read = (name: string) => readFileSync(join(directory, name));
  return {
    ...{ directory, run, write, read },
    request({ kind = 'P-256', subject = '/CN=a device', keyOf, more = [] } = {}) {
      made += 1;
      const [key, csr] = [`${made}.key`, `${made}.csr`];
      const source = keyOf ? ['-key', write(key, keyOf.key)] : ['-newkey', ...keyKinds[kind], '-nodes', '-keyout', key];
      run('req', '-new', ...source, '-subj', subject, '-out', csr, ...more);
      return { key: read(key).toString(), csr: read(csr).toString() };
    },
  };
}

/** The bytes of an answer of a URL, whatever certificate the server has. */
export function download(url: string): Promise<{ status: number; type: string | undefined; bytes: Buffer }> {
  return new Promise((resolve, reject) => {
    const ask = url.startsWith('https:') ? get : httpGet;
    ask(url, { rejectUnauthorized: false }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        const { statusCode: status = 0, headers } = answer;
        resolve({ status, type: headers['content-type'], bytes: Buffer.concat(chunks) });
      });
    }).on('error', reject);
  });
}

export interface Joined extends RawClient {
  returnCode: number;
  closed: Promise<void>;
}

/** A CONNECT with a client certificate, of level 4 unless `packet` says so, and its CONNACK. */
export async function joinWith(
  t: Test,
  port: number,
  identity: { cert: string; key: string },
  packet: { protocolVersion?: 4 | 5; [property: string]: unknown } = {},
): Promise<Joined> {
  const tls = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false, ...identity });
  t.teardown(() => tls.destroy());
  const closed = new Promise<void>((resolve) => tls.once('close', () => resolve()));
  const client = speak(tls, packet.protocolVersion);
  client.send(connectPacket(packet));
  const { returnCode, reasonCode = returnCode } = (await client.next()) as { returnCode?: number; reasonCode?: number };
  return { ...client, closed, returnCode: reasonCode ?? -1 };
}
