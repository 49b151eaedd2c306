/** The server as a process of its own, as a demo starts it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export interface Running {
  server: ChildProcess;
  url: string;
  port: number;
  accountId: string;
}

/** Resolves when the server listens; its addresses are read from what it prints. */
export async function startServer({
  directory,
  password,
  env,
}: {
  directory: string;
  password: string;
  env: Record<string, string>;
}): Promise<Running> {
  const server = spawn(process.execPath, [fileURLToPath(new URL('../src/main.js', import.meta.url))], {
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
  let said = '';
  for await (const line of createInterface({ input: server.stdout })) {
    said += `${line}\n`;
    const [, url] = /API (http\S+)\/api\/v1/.exec(said) ?? [];
    const [, port] = /^MQTT \S+:(\d+)/m.exec(said) ?? [];
    const [, accountId] = /account\s+(\S{36})/.exec(said) ?? [];
    if (url && port && accountId) return { server, url, port: Number(port), accountId };
  }
  throw new Error(`the server did not start: ${said}`);
}
