/** Harm that is done with what devices say of firmware, of commands, and of themselves. */
import { randomBytes } from 'node:crypto';
import { Encoder } from 'cbor-x/encode';
import { type Attack, again, ask, demand, type Means } from './attack-tools.ts';
import { offerFirmware } from './attacks-http.ts';
import { pourPackets } from './attacks-mqtt.ts';
import { publishBytes } from './link.ts';

/** Devices that speak as fast as they are heard, and messages that each repeats. */
const speaking = 4;
const messages = 1000;
const kibibyte = 1024;

const cbor = new Encoder({ useRecords: false, variableMapSize: true });
const fileName = 'app.bin';

export const downlinkAttacks: Record<string, Attack> = {
  'file-reports': {
    shows: `the state of a firmware file on the control topics, from ${speaking} devices as fast as it is read`,
    run: async (means, begun) => {
      const { revision } = await offerFirmware(means, kibibyte);
      const said = { msgtype: 4, msgver: 1, N: fileName, R: revision, S: 0 };
      begun();
      await speak(
        means,
        ({ id }) => `slipway/ctrl/v1/${id}/svc`,
        (n) => cborOf({ ...said, P: 2 + (n % 3) }),
      );
    },
  },
  'firmware-status': {
    shows: `the progress of an update on _firmware/status, from ${speaking} devices as fast as it is read`,
    run: async (means, begun) => {
      await offerFirmware(means, kibibyte);
      begun();
      await speak(
        means,
        ({ root }) => `${root}/_firmware/status`,
        (n) => JSON.stringify({ state: 'downloading', bytes: n }),
      );
    },
  },
  'posted-status': {
    shows: 'the progress of an update with POST /firmware/status, 16 at once',
    run: async (means, begun) => {
      await offerFirmware(means, kibibyte);
      begun();
      await again(16, (n, bytes) =>
        ask(means, 'POST', '/firmware/status', {
          as: deviceOf(means, n % speaking),
          body: { state: 'downloading', bytes },
        }),
      );
    },
  },
  replies: {
    shows: `late replies to commands, all different, from ${speaking} devices as fast as they are read`,
    run: async (means, begun) => {
      const ids = new Map<string, string>();
      for (let n = 0; n < speaking; n += 1) {
        const { id } = deviceOf(means, n);
        const body = { name: 'blink' };
        const { command } = await demand<{ command: { id: string } }>(means, 'POST', `/devices/${id}/commands`, {
          body,
        });
        ids.set(id, command.id);
      }
      begun();
      await speak(
        means,
        ({ root }) => `${root}/_commands/replies`,
        (n, { id }) => JSON.stringify({ id: ids.get(id), status: 'succeeded', result: n }),
      );
    },
  },
  fields: {
    shows: `fields of devices with 64 KiB of values on _set/fields, from ${speaking} devices as fast as they are read`,
    run: async (means, begun) => {
      begun();
      await speak(
        means,
        ({ root }) => `${root}/_set/fields`,
        (n) => JSON.stringify({ state: { [`field${n % 100}`]: randomBytes(8).toString('hex') } }),
      );
    },
  },
  listeners: {
    shows: `${speaking} devices that subscribe to _commands and unsubscribe, as fast as it is read`,
    run: async (means, begun) => {
      for (let n = 0; n < speaking; n += 1)
        await demand(means, 'POST', `/devices/${deviceOf(means, n).id}/commands`, { body: { name: 'blink' } });
      begun();
      await Promise.all(
        Array.from({ length: speaking }, (_, n) => {
          const topic = `${deviceOf(means, n).root}/_commands`;
          return pourPackets(means, n, [
            { cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] },
            { cmd: 'unsubscribe', messageId: 2, unsubscriptions: [topic] },
          ]);
        }),
      );
    },
  },
};

type Speaking = Means['devices'][number];

export function cborOf(message: object): Buffer {
  return cbor.encode(message);
}

export function deviceOf({ devices }: Means, n: number): Speaking {
  return devices[n] as Speaking;
}

/** Devices publish their messages again and again, as fast as they are read. */
export async function speak(
  means: Means,
  topicOf: (device: Speaking) => string,
  payloadOf: (n: number, device: Speaking) => string | Buffer,
): Promise<void> {
  await Promise.all(
    Array.from({ length: speaking }, (_, place) => {
      const device = deviceOf(means, place);
      const topic = topicOf(device);
      return pourPackets(
        means,
        place,
        Array.from({ length: messages }, (_, n) =>
          publishBytes(topic, payloadOf(n, device), { qos: 1, messageId: n + 1 }),
        ),
      );
    }),
  );
}
