/** The target of a bridge, and a peer that stores what it acknowledges: a NATS server with JetStream, if one is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';

const stream = 'messages';

/** The version of what is installed, or undefined. */
export function natsVersion(): string | undefined {
  const { stdout, error } = spawnSync('nats-server', ['--version'], { encoding: 'utf8' });
  return error ? undefined : /v(\d\S+)/.exec(stdout)?.[1];
}

/** Starts it with its files in `directory`; with `mqttPort` it takes MQTT as well. @throws Error when it ends before it is ready. */
export async function startNats(port: number, directory: string, mqttPort?: number): Promise<ChildProcess> {
  const file = join(directory, 'nats.conf');
  const mqtt = mqttPort === undefined ? '' : `mqtt { host: "127.0.0.1", port: ${mqttPort} }\n`;
  writeFileSync(file, `server_name: "bench"\njetstream { store_dir: "${directory}" }\n${mqtt}`);
  const child = spawn('nats-server', ['-a', '127.0.0.1', '-p', String(port), '-c', file], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  const ready = new Promise<void>((resolve) => {
    child.stderr.on('data', (chunk) => {
      if (log.includes('Server is ready')) return;
      log += chunk;
      if (log.includes('Server is ready')) resolve();
    });
  });
  const ended = once(child, 'exit').then(() => {
    throw new Error(`nats-server ended: ${log}`);
  });
  await Promise.race([ready, ended]);
  // It ends later, when the bench stops it.
  ended.catch(() => {});
  return child;
}

/** Creates a stream on disk that takes what bridges send. */
export async function makeStream(port: number): Promise<{ count(): Promise<number>; close(): Promise<void> }> {
  const connection = await connect({ servers: `127.0.0.1:${port}` });
  const { streams } = await jetstreamManager(connection);
  await streams.add({ name: stream, subjects: ['slipway.>'] });
  return {
    count: async () => (await streams.info(stream)).state.messages,
    close: () => connection.close(),
  };
}
