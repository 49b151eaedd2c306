/** Certificates that are renewed while the service runs: their files are read again, and connections go on. */
import { statSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { openSecret } from '../../db/files/modes.ts';
import type { Config } from '../core/config.ts';

const openKey = 'other users can read the new TLS key: run chmod 600 on it, or the next start refuses it';

/** Milliseconds between two looks at the files. */
const interval = 1000;

export interface TlsReload {
  /** Reads the files now, whether they look changed or not. */
  now(): void;
  stop(): void;
}

/**
 * Looks at the files of `tls` and calls `apply` with a new certificate, which new connections get. Files that do not fit
 * each other, such as a certificate whose key is not there yet, change nothing until they do.
 */
export function reloadTls(
  tls: NonNullable<Config['tls']>,
  { log, apply }: { log: Pick<Logger, 'info' | 'warn' | 'error'>; apply(tls: NonNullable<Config['tls']>): void },
): TlsReload {
  const look = () => tls.files.map(identityOf);
  let seen = look();
  const now = () => {
    seen = look();
    try {
      const { cert, ca, chain, key } = tls.read();
      if (chain === tls.chain && key === tls.key) return;
      const open = openSecret(tls.keyFile);
      if (open) log.warn({ file: tls.keyFile, mode: open.mode }, openKey);
      apply({ ...tls, cert, ca, chain, key });
      // Others read it from the configuration, such as the greeting and readiness.
      Object.assign(tls, { cert, ca, chain, key });
      log.info('the TLS certificate has been read again');
    } catch (error) {
      log.error({ err: error }, 'the TLS certificate cannot be read again; the former one stays in use');
    }
  };
  const timer = setInterval(() => {
    if (!isDeepStrictEqual(look(), seen)) now();
  }, interval);
  timer.unref();
  return { now, stop: () => clearInterval(timer) };
}

/** The file's state, which changes when it is written, replaced, or given to another user: only then it may be readable. */
function identityOf(path: string): Array<number | undefined> {
  const stat = statSync(path, { throwIfNoEntry: false });
  return [stat?.ino, stat?.ctimeMs, stat?.size];
}
