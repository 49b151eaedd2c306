/** The peer: Mosquitto, with its dynamic security plugin where there is one, so that it checks who connects and what it may. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { pbkdf2Sync, randomBytes } from 'node:crypto';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Equipped } from './equip.ts';

const plugin = 'mosquitto_dynamic_security.so';
/** What `mosquitto_ctrl` uses. */
const iterations = 101;

/** The version of what is installed, or undefined. */
export function mosquittoVersion(): string | undefined {
  const { stdout, error } = spawnSync('mosquitto', ['-h'], { encoding: 'utf8' });
  return error ? undefined : /version (\S+)/.exec(stdout)?.[1];
}

/** Starts it on `port`; `directory` is for its files. */
export function startMosquitto(port: number, directory: string, devices: readonly Equipped[]): ChildProcess {
  const security = join(directory, 'dynamic-security.json');
  const found = ['/usr/lib', ...readdirSync('/usr/lib').map((name) => join('/usr/lib', name))]
    .map((place) => join(place, plugin))
    .find((path) => existsSync(path));
  if (!found) console.log('(Its dynamic security plugin is not installed: it lets everybody in.)');
  const lines = [`listener ${port} 127.0.0.1`, 'user root', 'set_tcp_nodelay true', 'max_queued_messages 0'];
  if (found) lines.push('allow_anonymous false', `plugin ${found}`, `plugin_opt_config_file ${security}`);
  else lines.push('allow_anonymous true');
  writeFileSync(security, JSON.stringify(rights(devices)));
  const file = join(directory, 'mosquitto.conf');
  writeFileSync(file, `${lines.join('\n')}\n`);
  return spawn('mosquitto', ['-c', file], { stdio: 'ignore' });
}

/** Each device may publish and subscribe below its own topic, and nobody anywhere else. */
function rights(devices: readonly Equipped[]): object {
  const acl = (acltype: string, topic: string) => ({ acltype, topic, priority: 0, allow: true });
  return {
    defaultACLAccess: {
      publishClientSend: false,
      publishClientReceive: false,
      subscribe: false,
      unsubscribe: true,
    },
    clients: devices.map(({ id, secret }) => {
      const salt = randomBytes(12);
      const password = pbkdf2Sync(secret, salt, iterations, 64, 'sha512').toString('base64');
      return { username: id, password, salt: salt.toString('base64'), iterations, roles: [{ rolename: id }] };
    }),
    roles: devices.map(({ id, root }) => ({
      rolename: id,
      acls: ['publishClientSend', 'publishClientReceive', 'subscribePattern'].map((type) => acl(type, `${root}/#`)),
    })),
  };
}
