/** A DNS server on loopback that knows the names of addresses a test gives it. */
import { createSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import type { Test } from 'tap';

const ptr = 12;
const noSuchName = 0x8183;
const answered = 0x8180;

export interface DnsServer {
  /** For SLIPWAY_DNS_SERVERS. */
  address: string;
  /** Names by IPv4 address; what is not here does not exist. */
  names: Map<string, string>;
  /** Addresses asked for, in order. */
  asked: string[];
  /** Leaves questions unanswered until the returned function is called. */
  hold(): () => void;
}

/** It closes with the test. */
export async function startDns(t: Test): Promise<DnsServer> {
  const socket = createSocket('udp4');
  const names = new Map<string, string>();
  const asked: string[] = [];
  let held: Array<() => void> | undefined;
  socket.on('message', (query, peer) => {
    const address = addressIn(query);
    asked.push(address);
    const answer = () => reply(query, names.get(address), peer);
    if (held) held.push(answer);
    else answer();
  });
  const reply = (query: Buffer, name: string | undefined, { port, address }: RemoteInfo) =>
    socket.send(response(query, name), port, address);
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  t.teardown(() => socket.close());
  const hold = () => {
    const waiting: Array<() => void> = [];
    held = waiting;
    return () => {
      held = undefined;
      for (const answer of waiting) answer();
    };
  };
  return { address: `127.0.0.1:${socket.address().port}`, names, asked, hold };
}

/** Where the question ends: its name, type and class. */
function questionEnd(query: Buffer): number {
  let at = 12;
  while (query[at]) at += (query[at] as number) + 1;
  return at + 5;
}

/** The address in `4.3.2.1.in-addr.arpa`. */
function addressIn(query: Buffer): string {
  const labels: string[] = [];
  for (let at = 12; query[at]; at += (query[at] as number) + 1)
    labels.push(query.subarray(at + 1, at + 1 + (query[at] as number)).toString());
  return labels.slice(0, 4).reverse().join('.');
}

function response(query: Buffer, name: string | undefined): Buffer {
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  head.writeUInt16BE(name === undefined ? noSuchName : answered, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(name === undefined ? 0 : 1, 6);
  const question = query.subarray(12, questionEnd(query));
  if (name === undefined) return Buffer.concat([head, question]);
  const labels = name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  const data = Buffer.concat([...labels, Buffer.from([0])]);
  const record = Buffer.alloc(12);
  record.writeUInt16BE(0xc00c, 0);
  record.writeUInt16BE(ptr, 2);
  record.writeUInt16BE(1, 4);
  record.writeUInt32BE(60, 6);
  record.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, question, record, data]);
}
