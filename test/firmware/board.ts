/** Boards that speak CBOR on their control topics. */
import { Decoder, Encoder } from 'cbor-x';
import { type List, nextMessage, type Service } from '../support/service.ts';
import type { Device } from './fleet.ts';

export const codec = new Encoder({ useRecords: false, tagUint8Array: false });
const decoder = new Decoder({ useRecords: false });

/** What the service says to a board: the files to install, or a part of one. */
interface Said {
  msgtype: number;
  list: List<{ F: Uint8Array; L: string }>;
  S: number;
  L: number;
  C: Uint8Array;
}

/** A board that listens. `heard` has what has come; `send` resolves when the service has finished with a message. */
export async function board(service: Service, device: Device) {
  const root = service.controlRoot;
  const client = await service.connect({ deviceId: device.id, secret: device.secret });
  const heard: Said[] = [];
  client.on('message', (_, payload) => heard.push(decoder.decode(payload)));
  await client.subscribeAsync(`${root}/${device.id}/cln`, { qos: 1 });
  const send = (message: object | Buffer, qos: 0 | 1 | 2 = 1) =>
    client.publishAsync(`${root}/${device.id}/svc`, Buffer.isBuffer(message) ? message : codec.encode(message), {
      qos,
    });
  const next = async (): Promise<Said> => decoder.decode((await nextMessage(client)).payload);
  return { client, heard, send, next };
}

/** FILE_INFO: the revision of each file that is installed. */
export const info = (files: Record<string, string>, links = false) => ({
  msgtype: 0,
  msgver: 1,
  list: Object.entries(files).map(([N, R]) => ({ N, R })),
  L: links,
});

/** FILE_GET_CHUNK. */
export const getChunk = (N: string, R: string, O: number, L = 1024) => ({ msgtype: 2, msgver: 1, N, R, O, L });
