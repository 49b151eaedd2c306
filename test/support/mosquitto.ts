/** A real MQTT broker that is not ours, if it is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort } from './nats-server.ts';

/** Options of a test: it says so when there is no broker to test with. */
export const withMosquitto = spawnSync('mosquitto', ['-h']).error ? { skip: 'mosquitto is not installed' } : {};

/** Mosquitto with one user; its sessions are kept in `directory`. `start` resolves when it accepts connections. */
export async function mosquitto(directory: string, username: string, password: string) {
  const port = await freePort();
  const file = join(directory, 'mosquitto.conf');
  const users = join(directory, 'users');
  spawnSync('mosquitto_passwd', ['-b', '-c', users, username, password]);
  writeFileSync(file, `listener ${port} 127.0.0.1\nuser root\nallow_anonymous false\npassword_file ${users}\n`);
  let child: ChildProcess | undefined;
  const start = async () => {
    child = spawn('mosquitto', ['-c', file], { stdio: 'ignore' });
    const isOpen = () =>
      new Promise<boolean>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => resolve(true));
        socket.on('error', () => resolve(false));
        socket.on('connect', () => socket.end());
      });
    while (child.exitCode === null) if (await isOpen()) return;
    throw new Error(`mosquitto ended with ${child.exitCode}`);
  };
  const stop = async () => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  return { url: `mqtt://127.0.0.1:${port}`, start, stop };
}
