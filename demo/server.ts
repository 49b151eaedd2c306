/** The server as a process of its own, as a demo starts it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { extname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** Of the sources, or compiled: as this file is. */
const main = fileURLToPath(new URL(`../src/main${extname(import.meta.url)}`, import.meta.url));

export interface Running {
  url: string;
  port: number;
  accountId: string;
  /** Resolves with the exit code, or the signal, when the server has ended. */
  ended: Promise<number | string>;
  /** Sends SIGTERM, and waits for the end. */
  stop(): Promise<number | string>;
}

export interface ServerOptions {
  directory: string;
  password: string;
  env: Record<string, string>;
  /** Ends the server. */
  signal?: AbortSignal;
}

/** Resolves when the server listens; its addresses are read from what it prints. */
export async function startServer({ directory, password, env, signal }: ServerOptions): Promise<Running> {
  const server = spawn(process.execPath, [main], {
    cwd: directory,
    env: {
      ...process.env,
      SLIPWAY_HOST: '127.0.0.1',
      SLIPWAY_ADMIN_EMAIL: 'admin@demo.example',
      SLIPWAY_ADMIN_PASSWORD: password,
      SLIPWAY_LOG_LEVEL: 'error',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(server, 'exit').then(([code, by]) => code ?? by);
  const stop = () => {
    server.kill('SIGTERM');
    return ended;
  };
  signal?.addEventListener('abort', stop, { once: true });
  let said = '';
  for await (const line of createInterface({ input: server.stdout })) {
    said += `${line}\n`;
    const [, url] = /API (http\S+)\/api\/v1/.exec(said) ?? [];
    const [, port] = /^MQTT \S+:(\d+)/m.exec(said) ?? [];
    const [, accountId] = /account\s+(\S{36})/.exec(said) ?? [];
    if (url && port && accountId) return { url, port: Number(port), accountId, ended, stop };
  }
  throw new Error(`the server ended with ${await ended} before it listened. Its reason is above.`);
}

/** Waits for work that needs the server. @throws Error when the server ends first. */
export function whileRunning<T>({ ended }: Running, work: Promise<T>): Promise<T> {
  const died = ended.then((code): never => {
    throw new Error(`the server ended with ${code}`);
  });
  return Promise.race([work, died]);
}
