/** `slipway tail` and `slipway device tail`: messages as they come, of an account or of a device. */
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { boundedCache } from '../db/sqlite/cache.ts';
import { findDeviceId, findTopic, type Page, readConnectivity } from './find-device.ts';
import type { Client } from './line/client.ts';
import { type Connection, printError } from './line/options.ts';
import { withClient } from './line/work.ts';
import { inOneLine, printJson } from './printed.ts';
import { UsageError } from './usage.ts';

interface TailFlags extends Connection {
  channel: string | undefined;
  /** It ends after so many; 0 is for ever. */
  count: number;
}

/** A message, as the stream has it. */
interface Message {
  topic: string;
  payload?: string;
  payloadBase64?: string;
  time: string;
}

/** Serial numbers that are remembered. */
const maxKnown = 10_000;
/** Milliseconds before a stream that has broken is opened again. */
const pause = 1000;

export async function tail(flags: TailFlags): Promise<void> {
  await withClient(flags, printError, async (client) =>
    follow(client, flags, await accountFilter(client, flags.channel)),
  );
}

export async function deviceTail(flags: TailFlags, [device = '']: readonly string[]): Promise<void> {
  await withClient(flags, printError, async (client) => {
    const id = await findDeviceId(client, device);
    const { topics } = await readConnectivity(client, id);
    const [any] = topics;
    if (!any) throw new UsageError('The device has no channels.');
    const all = `${any.topic.slice(0, -any.channel.length)}#`;
    await follow(client, flags, flags.channel === undefined ? all : await findTopic(client, id, flags.channel));
  });
}

/** Topics begin alike for all devices of an account; any of them says how. */
async function accountFilter(client: Client, channel: string | undefined): Promise<string> {
  const query = new URLSearchParams({ accountId: client.accountId, pageSize: '1', fields: 'serialNumber' });
  const { devices } = await client.ok<{ devices: Page<{ id: string }> }>('GET', `/devices?${query}`);
  const [device] = devices.results;
  if (!device) throw new UsageError('There is no device yet. slipway device new makes one.');
  const { topics } = await readConnectivity(client, device.id);
  const [root] = topics[0]?.topic.split(`/d/${device.id}/`) ?? [];
  return `${root}/d/+/${channel ?? '#'}`;
}

/** Prints messages until `count` have come; a stream that breaks goes on where it was. */
async function follow(client: Client, { count, json }: TailFlags, filter: string): Promise<void> {
  const path = `/stream?${new URLSearchParams({ topics: filter })}`;
  const state = { last: '', left: count };
  const serials = new Serials(client);
  for (;;) {
    const headers: Record<string, string> = state.last ? { 'last-event-id': state.last } : {};
    const response = await client.stream(path, headers);
    if (state.last === '') printError(`Listening to ${filter}. Ctrl-C ends it.`);
    const lines = createInterface({ input: response });
    const event = { name: '', data: '' };
    try {
      for await (const line of lines) {
        if (line.startsWith('id: ')) state.last = line.slice(4);
        else if (line.startsWith('event: ')) event.name = line.slice(7);
        else if (line.startsWith('data: ')) event.data = line.slice(6);
        else if (line === '' && event.data !== '') {
          if (event.name === 'gap') printError('Some messages were missed.');
          else if (event.name === 'message') {
            await print(JSON.parse(event.data) as Message, json ? undefined : serials);
            state.left -= 1;
            if (state.left === 0) return;
          }
          event.name = event.data = '';
        }
      }
    } catch (error) {
      printError(`The stream has broken (${(error as Error).message}); trying again.`);
    } finally {
      lines.close();
      response.destroy();
    }
    await delay(pause);
  }
}

/** A reader that is slower than the messages holds them up, and not our memory. */
async function print(message: Message, serials: Serials | undefined): Promise<void> {
  if (!serials) printJson(message);
  else {
    const { topic, payload, payloadBase64, time } = message;
    const [, place = topic] = topic.split('/d/', 2);
    const serialNumber = await serials.of(place.split('/', 1)[0] ?? '');
    const clock = new Date(time).toLocaleTimeString(undefined, { hourCycle: 'h23' });
    const before = [clock, serialNumber, place].filter(Boolean).map(inOneLine).join('  ');
    const lines = (payload ?? `(base64) ${payloadBase64 ?? ''}`).replace(/\r?\n$/, '').split(/\r?\n/);
    process.stdout.write(lines.map((line) => `${before}  ${inOneLine(line)}\n`).join(''));
  }
  if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain');
}

/** The serial numbers of devices by their id, which topics have; empty where the caller may not read the device. */
class Serials {
  readonly #client: Client;
  readonly #known = boundedCache<string, string>(maxKnown);

  constructor(client: Client) {
    this.#client = client;
  }

  async of(deviceId: string): Promise<string> {
    const known = this.#known.get(deviceId);
    if (known !== undefined) return known;
    const { status, text } = await this.#client.call('GET', `/devices/${encodeURIComponent(deviceId)}`);
    const serialNumber =
      status === 200 ? (JSON.parse(text) as { device: { serialNumber: string } }).device.serialNumber : '';
    this.#known.set(deviceId, serialNumber);
    return serialNumber;
  }
}
