/** Commands to devices that are offline, a server that is killed twice, and what the devices get. */
import mqtt from 'mqtt';
import type { Test } from 'tap';
import { readConfig } from '../../../src/core/config.ts';
import type { Device } from '../fleet.ts';
import type { Ground, Group, Killable } from './played.ts';

const names = ['first', 'second'];
/** Requests, and devices that connect, at a time. */
const atOnce = 50;

/** Proves that each device gets each of its commands once, or with its attempt number, in order. */
export async function proveCommands(t: Test, { server, accountId }: Ground, { devices: made }: Group) {
  const count = made.length;
  const root = `${readConfig({}).topicRoot}/${accountId}/d`;
  const ids = new Map<string, string[]>();
  await inParts(made, async ({ id }) => {
    const own: string[] = [];
    for (const name of names) own.push((await server.call('POST', `/devices/${id}/commands`, { name })).command.id);
    ids.set(id, own);
  });
  // They are acknowledged, so they are on disk.
  await server.kill();
  const got = new Map<string, Told[]>(made.map(({ id }) => [id, []]));
  let seen = 0;
  let half = () => {};
  const halfSeen = new Promise<void>((resolve) => {
    half = resolve;
  });
  const heard = (device: Device, command: Told) => {
    got.get(device.id)?.push(command);
    seen += 1;
    if (seen >= count) half();
  };
  const all = inParts(made, (device) => obey(server, root, device, heard));
  await halfSeen;
  await server.kill();
  await all;
  const wrong = made.filter(({ id }) => {
    const own = got.get(id) ?? [];
    const order = own.map((command) => command.id);
    const attempts = (commandId?: string) => own.filter((one) => one.id === commandId).map(({ attempt }) => attempt);
    const [first, second] = ids.get(id) ?? [];
    const isEachOnce = [first, second].every((one) => {
      const numbers = attempts(one);
      return numbers.length > 0 && numbers.every((number, n) => number > (numbers[n - 1] ?? 0));
    });
    return !isEachOnce || order.lastIndexOf(first ?? '') > order.indexOf(second ?? '');
  });
  t.same(wrong, [], 'each command came once, or with another attempt, and in order');
  const open: string[] = [];
  await inParts(made, async ({ id }) => {
    const { commands } = await server.call('GET', `/devices/${id}/commands`);
    for (const { state } of commands.results) if (state !== 'succeeded') open.push(state);
  });
  t.same(open, [], 'each has succeeded');
}

/** A command as its device gets it. */
interface Told {
  id: string;
  attempt: number;
}

/** A device that connects, again and again, until it has answered all of its commands. */
async function obey(server: Killable, root: string, device: Device, heard: (device: Device, command: Told) => void) {
  const done = new Set<string>();
  while (done.size < names.length) {
    const client = mqtt.connect(`mqtt://127.0.0.1:${server.running().mqttPort}`, {
      ...{ username: device.id, password: device.secret, reconnectPeriod: 0, connectTimeout: 5000 },
    });
    client.on('error', () => {});
    const over = new Promise<void>((resolve) => client.once('close', () => resolve()));
    client.on('message', (_, payload) => {
      const command = JSON.parse(payload.toString());
      heard(device, command);
      const reply = JSON.stringify({ id: command.id, status: 'succeeded' });
      client.publish(`${root}/${device.id}/_commands/replies`, reply, { qos: 1 }, (error) => {
        if (error) return;
        done.add(command.name);
        if (done.size === names.length) client.end(true);
      });
    });
    // A reply whose acknowledgement the kill took is not asked for again.
    const learn = async () => {
      const { commands } = await server.call('GET', `/devices/${device.id}/commands`);
      for (const { name, state } of commands.results) if (state === 'succeeded') done.add(name);
      if (done.size === names.length) client.end(true);
    };
    client.once('connect', () =>
      client.subscribe(`${root}/${device.id}/_commands`, { qos: 1 }, (error) => {
        if (!error) learn().catch(() => client.end(true));
      }),
    );
    await over;
    client.end(true);
    // The pause of a device before it connects again, while the service is away.
    if (done.size < names.length) await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function inParts(devices: readonly Device[], work: (device: Device) => Promise<void>): Promise<void> {
  const waiting = [...devices];
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await work(next);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
