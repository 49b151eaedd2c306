/** A real MQTT broker that is not ours, if it is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort } from './free-port.ts';

/** Options of a test: it says so when there is no broker to test with. */
export const withMosquitto = spawnSync('mosquitto', ['-h']).error ? { skip: 'mosquitto is not installed' } : {};

/**
 * Mosquitto with one user; its sessions are kept in `directory`. `more` are lines of its configuration, `access` those of
 * its access list. `start` resolves when it accepts connections.
 */
export async function mosquitto(
  directory: string,
  username: string,
  password: string,
  { more = [], access }: { more?: string[]; access?: string[] } = {},
) {
  const port = await freePort();
  const file = join(directory, 'mosquitto.conf');
  const users = join(directory, 'users');
  spawnSync('mosquitto_passwd', ['-b', '-c', users, username, password]);
  const lines = [`listener ${port} 127.0.0.1`, 'user root', 'allow_anonymous false', `password_file ${users}`, ...more];
  if (access) {
    lines.push(`acl_file ${join(directory, 'access')}`);
    writeFileSync(join(directory, 'access'), [`user ${username}`, ...access, ''].join('\n'));
  }
  writeFileSync(file, `${lines.join('\n')}\n`);
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
