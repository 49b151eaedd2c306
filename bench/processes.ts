/** The service and its peers as processes of their own, so that the load generator takes nothing from them but the machine. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { openLink } from './link.js';
import { seedAdmin } from './seed.js';

/** The clock of /proc, on every Linux that Node runs on. */
const ticksPerSecond = 100;

export interface Serving {
  mqttPort: number;
  /** Megabytes that the process holds of memory now. */
  rss(): number;
  /** Seconds of CPU time that it has taken so far: a busy machine changes it less than any other time. */
  cpu(): number;
  /** Ends it with SIGTERM. */
  stop(): Promise<void>;
}

export interface ServingService extends Serving {
  /** Of the HTTP API. */
  url: string;
}

/** The service on `directory`, with no limit on what one client may send unless `env` has one. */
export async function serve(directory: string, env: Record<string, string> = {}): Promise<ServingService> {
  const child = start('../src/main.js', {
    SLIPWAY_DATA_DIR: directory,
    SLIPWAY_HTTP_PORT: '0',
    SLIPWAY_MQTT_PORT: '0',
    SLIPWAY_LOG_LEVEL: 'error',
    ...env,
  });
  const output = await printed(child, /MQTT \S+:\d+ /);
  const [, url = ''] = /API (http\S+\/api\/v1)/.exec(output) ?? [];
  const [, port] = /MQTT \S+:(\d+) /.exec(output) ?? [];
  return { ...serving(child, Number(port)), url };
}

/** Aedes alone: no rights, no store but its memory. */
export async function serveBareAedes(): Promise<Serving> {
  const child = start('./bare-aedes.js', {});
  const [port] = /\d+/.exec(await printed(child, /\d+\n/)) ?? [];
  return serving(child, Number(port));
}

/** Mosquitto, which stores nothing either, when it is installed; says so when it is not. */
export async function serveMosquitto(): Promise<Serving | undefined> {
  if (spawnSync('mosquitto', ['-h']).error) {
    console.log('(Mosquitto is not installed: it is not measured.)');
    return undefined;
  }
  const port = await freePort();
  const child = spawn('mosquitto', ['-p', String(port)], { stdio: 'ignore' });
  const login = { username: '', password: '', clientId: 'ready' };
  for (;;) {
    const link = await openLink({ port }, login).catch(() => undefined);
    link?.socket.destroy();
    if (link) return serving(child, port);
  }
}

/** Logs the admin of a seeded registry in. */
export async function adminToken({ url }: ServingService, accountId: string): Promise<string> {
  const { email: emailAddress, password } = seedAdmin;
  const response = await fetch(`${url}/auth/login-user`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ accountId, emailAddress, password }),
  });
  return ((await response.json()) as { jwt: string }).jwt;
}

function start(file: string, env: Record<string, string>): ChildProcess {
  return spawn(process.execPath, [fileURLToPath(new URL(file, import.meta.url))], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

function serving(child: ChildProcess, mqttPort: number): Serving {
  return {
    mqttPort,
    rss: () => {
      const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
      return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024);
    },
    cpu: () => {
      const [, fields = ''] = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ');
      const [user, system] = fields.split(' ').slice(11, 13).map(Number) as [number, number];
      return (user + system) / ticksPerSecond;
    },
    stop: async () => {
      const ended = once(child, 'exit');
      if (child.kill('SIGTERM')) await ended;
    },
  };
}

function printed({ stdout }: ChildProcess, pattern: RegExp): Promise<string> {
  let output = '';
  return new Promise((resolve, reject) => {
    stdout?.on('data', (chunk) => {
      output += chunk;
      if (pattern.test(output)) resolve(output);
    });
    stdout?.once('end', () => reject(new Error(`it did not start: ${output}`)));
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
