/** The service and its peers as processes of their own, so that the load generator takes nothing from them but the machine. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Equipped } from './equip.ts';
import { openLink } from './link.ts';
import { mosquittoVersion, startMosquitto } from './mosquitto.ts';
import { natsVersion, startNats } from './nats.ts';

/** The clock of /proc, on every Linux that Node runs on. */
const ticksPerSecond = 100;
/** Of the package. */
const root = new URL('../', import.meta.url);

export interface Serving {
  mqttPort: number;
  /** Megabytes that the process holds of memory now. */
  rss(): number;
  /** Megabytes that it has held at most. */
  peak(): number;
  /** Seconds of CPU time that it has taken so far: a busy machine changes it less than any other time. */
  cpu(): number;
  /** Ends it with SIGTERM. */
  stop(): Promise<void>;
  /** Ends it with SIGKILL. */
  kill(): Promise<void>;
}

export interface ServingService extends Serving {
  /** Of the HTTP API. */
  url: string;
}

/** What `npm start` runs, so that whatever it tells Node holds here too. */
function startCommand(): string[] {
  const { scripts } = JSON.parse(readFileSync(fileURLToPath(new URL('package.json', root)), 'utf8'));
  return (scripts.start as string).split(' ').slice(1);
}

/** Seconds of CPU time of those that have ended. */
let cpuOfEnded = 0;

/** Starts them. */
export interface Processes {
  /** The service on `directory`, as `npm start` runs it. */
  serve(directory: string, env?: Record<string, string>): Promise<ServingService>;
  /** Aedes alone: no rights, no store but its memory. */
  serveBareAedes(): Promise<Serving>;
  /** A Fastify route, `/devices/:id`, that answers with `body` and asks nobody. */
  serveBareFastify(body: string): Promise<Serving & { httpPort: number }>;
  /** Mosquitto, which stores nothing either and lets these devices in; where it is not installed it says so. */
  serveMosquitto(devices: readonly Equipped[]): Promise<Serving | undefined>;
  /** A NATS server with JetStream and MQTT, empty; where it is not installed it says so. */
  serveNats(): Promise<(Serving & { natsPort: number }) | undefined>;
}

/** `endAll` ends those that have not been stopped: what a scenario that failed has left. */
export function processes(): Processes & { endAll(): Promise<void>; cpuSoFar(): number } {
  const begun: Serving[] = [];
  const kept = async <S extends Serving | undefined>(starting: Promise<S>): Promise<S> => {
    const serving = await starting;
    if (serving) begun.push(serving);
    return serving;
  };
  return {
    serve: (directory, env) => kept(serve(directory, env)),
    serveBareAedes: () => kept(serveBareAedes()),
    serveBareFastify: (body) => kept(serveBareFastify(body)),
    serveMosquitto: (devices) => kept(serveMosquitto(devices)),
    serveNats: () => kept(serveNats()),
    endAll: async () => {
      for (const serving of begun.splice(0)) await serving.stop();
    },
    cpuSoFar: () => cpuOfEnded + begun.reduce((sum, serving) => sum + serving.cpu(), 0),
  };
}

async function serve(directory: string, env: Record<string, string> = {}): Promise<ServingService> {
  const child = start(startCommand(), {
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

async function serveBareAedes(): Promise<Serving> {
  const child = start([fileURLToPath(new URL('bare-aedes.ts', import.meta.url))], {});
  return serving(child, await printedPort(child));
}

async function serveBareFastify(body: string): Promise<Serving & { httpPort: number }> {
  const child = start([fileURLToPath(new URL('bare-fastify.ts', import.meta.url)), body], {});
  return { ...serving(child, 0), httpPort: await printedPort(child) };
}

async function serveMosquitto(devices: readonly Equipped[]): Promise<Serving | undefined> {
  if (mosquittoVersion() === undefined) {
    console.log('(Mosquitto is not installed: it is not measured.)');
    return undefined;
  }
  const port = await freePort();
  const directory = mkdtempSync(join(tmpdir(), 'slipway-bench-mosquitto-'));
  const child = startMosquitto(port, directory, devices);
  child.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  const login = { username: 'nobody', password: '', clientId: 'ready' };
  while (child.exitCode === null) {
    const link = await openLink({ port }, login).catch(() => undefined);
    link?.socket.destroy();
    if (link) return serving(child, port);
  }
  throw new Error(`mosquitto ended with ${child.exitCode}`);
}

async function serveNats(): Promise<(Serving & { natsPort: number }) | undefined> {
  if (natsVersion() === undefined) {
    console.log('(nats-server is not installed: it is not measured.)');
    return undefined;
  }
  const [natsPort, mqttPort] = [await freePort(), await freePort()];
  const directory = mkdtempSync(join(tmpdir(), 'slipway-bench-nats-'));
  const child = await startNats(natsPort, directory, mqttPort);
  child.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  return { ...serving(child, mqttPort), natsPort };
}

function start(args: string[], env: Record<string, string>): ChildProcess {
  // For profiles: BENCH_NODE_OPTIONS="--cpu-prof --cpu-prof-dir=profiles".
  const { PATH, BENCH_NODE_OPTIONS: options } = process.env;
  return spawn(process.execPath, args, {
    cwd: fileURLToPath(root),
    env: { PATH, ...(options && { NODE_OPTIONS: options }), ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

async function printedPort(child: ChildProcess): Promise<number> {
  return Number(/\d+/.exec(await printed(child, /\d+\n/))?.[0]);
}

function serving(child: ChildProcess, mqttPort: number): Serving {
  const megabytes = (line: string) => {
    const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
    return Math.round(Number(new RegExp(`${line}:\\s+(\\d+)`).exec(status)?.[1]) / 1024);
  };
  const cpu = () => {
    if (child.exitCode !== null || child.signalCode !== null) return 0;
    const [, fields = ''] = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ');
    const [user, system] = fields.split(' ').slice(11, 13).map(Number) as [number, number];
    return (user + system) / ticksPerSecond;
  };
  const end = async (signal: NodeJS.Signals) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    cpuOfEnded += cpu();
    const ended = once(child, 'exit');
    if (child.kill(signal)) await ended;
  };
  return {
    mqttPort,
    rss: () => megabytes('VmRSS'),
    peak: () => megabytes('VmHWM'),
    cpu,
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
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

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
