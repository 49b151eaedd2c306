/** A real NATS server with JetStream, if it is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { freePort } from './free-port.ts';
import { soon } from './until.ts';

/** Options of a test: it says so when there is no server to test with. */
export const withNats =
  spawnSync('nats-server', ['--version']).status === 0 ? {} : { skip: 'nats-server is not installed' };

/** Messages that are read from the stream at once. */
const readAtOnce = 5000;

export interface NatsServer {
  url: string;
  servers: string;
  /** Starts it, the first time or again on the same files. Resolves when it is ready. */
  start(): Promise<void>;
  /** Kills it. */
  stop(): Promise<void>;
}

export interface StreamMessage {
  subject: string;
  id: string;
  data: Buffer;
  headers: Record<string, string>;
}

/** A server that keeps its files in `directory`; the caller starts it and kills it. `lines` are of its configuration. */
export async function natsServer(directory: string, lines: string[] = []): Promise<NatsServer> {
  const port = await freePort();
  mkdirSync(directory, { recursive: true });
  const file = join(directory, 'nats.conf');
  writeFileSync(file, lines.join('\n'));
  let child: ChildProcess | undefined;
  const start = async () => {
    const started = spawn('nats-server', ['-c', file, '-a', '127.0.0.1', '-p', String(port), '-js', '-sd', directory], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    child = started;
    let log = '';
    const ready = new Promise<void>((resolve, reject) => {
      started.stderr.on('data', (chunk) => {
        log += chunk;
        if (log.includes('Server is ready')) resolve();
      });
      started.once('exit', () => reject(new Error(log)));
    });
    await soon('nats-server', ready, () => log);
  };
  const stop = async () => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  return { url: `nats://127.0.0.1:${port}`, servers: `127.0.0.1:${port}`, start, stop };
}

/** Creates the stream `messages`, which takes everything that bridges send. */
export async function makeStream(servers: string, more: object = {}): Promise<void> {
  const nc = await connect({ servers });
  await (await jetstreamManager(nc)).streams.add({ name: 'messages', subjects: ['slipway.>'], ...more });
  await nc.close();
}

/** How many messages the stream holds. */
export async function countStream(servers: string): Promise<number> {
  const nc = await connect({ servers });
  const { state } = await (await jetstreamManager(nc)).streams.info('messages');
  await nc.close();
  return state.messages;
}

/** What the stream holds, in its order. */
export async function readStream(servers: string): Promise<StreamMessage[]> {
  const nc = await connect({ servers });
  const manager = await jetstreamManager(nc);
  const { state } = await manager.streams.info('messages');
  const found: StreamMessage[] = [];
  if (state.messages > 0) {
    await manager.consumers.add('messages', { durable_name: 'reader', ack_policy: AckPolicy.None });
    const consumer = await jetstream(nc).consumers.get('messages', 'reader');
    while (found.length < state.messages) {
      const max_messages = Math.min(readAtOnce, state.messages - found.length);
      for await (const { subject, data, headers: given } of await consumer.fetch({ max_messages })) {
        const headers = Object.fromEntries((given?.keys() ?? []).map((name) => [name, given?.get(name) ?? '']));
        found.push({ subject, id: headers['Nats-Msg-Id'] ?? '', data: Buffer.from(data), headers });
      }
    }
    await manager.consumers.delete('messages', 'reader');
  }
  await nc.close();
  return found;
}
