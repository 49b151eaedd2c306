/** The header with which a proxy says on whose behalf it connects, versions 1 and 2 of the PROXY protocol. */
import type { Socket } from 'node:net';
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { plainAddress } from '../../src/core/network/addresses.ts';

/** The result of the first bytes. Without an address (`UNKNOWN`, `LOCAL`, no IP) the peer's own counts. */
export type ProxyHeader =
  | { is: 'incomplete' | 'absent' | 'malformed' }
  | { is: 'present'; length: number; address: string | undefined };

const start = Buffer.from('PROXY ');
const signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n');
/** Bytes of a line of version 1, its end included. */
const maxLineLength = 107;
/** Bytes of version 2 before its addresses, and the most that may follow: addresses and what a proxy adds to them. */
const headLength = 16;
const maxRestLength = 4096;
const malformed = { is: 'malformed' } as const;
const incomplete = { is: 'incomplete' } as const;

/** Reads a header at the begin of `bytes`; neither form can begin MQTT, TLS or HTTP. */
export function readProxyHeader(bytes: Buffer): ProxyHeader {
  if (begins(bytes, start)) return readLine(bytes);
  if (begins(bytes, signature)) return readBinary(bytes);
  return { is: 'absent' };
}

/** Takes a header off a socket that is not read yet. `done` is called with its content, or with `malformed`. */
export function takeProxyHeader(socket: Socket, done: (header: ProxyHeader) => void): void {
  let bytes = Buffer.alloc(0);
  const look = () => {
    for (;;) {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) {
        socket.once('readable', look);
        return;
      }
      bytes = Buffer.concat([bytes, chunk]);
      const header = readProxyHeader(bytes);
      if (header.is === 'incomplete') continue;
      const rest = bytes.subarray(header.is === 'present' ? header.length : 0);
      if (rest.length > 0) socket.unshift(rest);
      socket.off('end', ended);
      done(header);
      return;
    }
  };
  const ended = () => {
    socket.off('readable', look);
    done(malformed);
  };
  socket.once('end', ended);
  socket.once('readable', look);
}

/** Whether as much as there is of both is the same. */
function begins(bytes: Buffer, by: Buffer): boolean {
  const length = Math.min(bytes.length, by.length);
  return bytes.subarray(0, length).equals(by.subarray(0, length));
}

function readLine(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, maxLineLength).indexOf('\r\n');
  if (end < 0) return bytes.length < maxLineLength ? incomplete : malformed;
  const length = end + 2;
  const [, family, from = '', to = '', ...ports] = bytes.toString('latin1', 0, end).split(' ');
  if (family === 'UNKNOWN') return { is: 'present', length, address: undefined };
  const version = family === 'TCP4' ? 4 : family === 'TCP6' ? 6 : undefined;
  if (version === undefined || isIP(from) !== version || isIP(to) !== version) return malformed;
  const address = plainAddress(from);
  // A zone, which may be any text, is of no use to another machine.
  if (address === undefined || plainAddress(to) === undefined) return malformed;
  if (ports.length !== 2 || !ports.every(isPort)) return malformed;
  return { is: 'present', length, address };
}

function isPort(text: string): boolean {
  return /^(0|[1-9]\d{0,4})$/.test(text) && Number(text) <= 65_535;
}

function readBinary(bytes: Buffer): ProxyHeader {
  if (bytes.length < headLength) return incomplete;
  const [versionAndCommand, protocol] = [bytes.readUInt8(12), bytes.readUInt8(13)];
  const rest = bytes.readUInt16BE(14);
  // The upper half is the version; of commands there are LOCAL and PROXY.
  if ((versionAndCommand !== 0x20 && versionAndCommand !== 0x21) || rest > maxRestLength) return malformed;
  const length = headLength + rest;
  const addressLength = versionAndCommand === 0x21 ? addressLengthOf(protocol) : 0;
  if (addressLength * 2 + 4 > rest && addressLength > 0) return malformed;
  if (bytes.length < length) return incomplete;
  if (addressLength === 0) return { is: 'present', length, address: undefined };
  const address = bytes.subarray(headLength, headLength + addressLength);
  return { is: 'present', length, address: plainAddress(ipaddr.fromByteArray([...address]).toString()) };
}

/** Bytes of one address of TCP over IPv4 or IPv6; 0 for what is neither. */
function addressLengthOf(protocol: number): number {
  if (protocol === 0x11) return 4;
  return protocol === 0x21 ? 16 : 0;
}
