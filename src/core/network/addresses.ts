/** Where a connection comes from when proxies are between: whose word about it is taken, and what results. */
import { isIP, isIPv4, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Whether the word of this address about others is taken. */
export type Trust = (address: string) => boolean;

export const trustsNobody: Trust = () => false;

/** By addresses and networks such as `10.0.0.0/8`. */
export function trustOf(networks: readonly string[]): Trust {
  if (networks.length === 0) return trustsNobody;
  const ranges = networks.map((network) => {
    const [address = '', prefix] = network.split('/');
    const parsed = ipaddr.parse(address);
    return [parsed, prefix === undefined ? parsed.toByteArray().length * 8 : Number(prefix)] as const;
  });
  return (address) => {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return ranges.some(([network, bits]) => parsed.kind() === network.kind() && parsed.match(network, bits));
  };
}

/**
 * The one form of an address, by which limits count it; IPv4 over IPv6 as IPv4. Returns undefined if the text is not an IP address: for zones,
 * which are of one machine only, and for spellings such as `0x7f.1` that `ipaddr.js` would take.
 */
export function plainAddress(text: string): string | undefined {
  if (isIPv4(text)) return text;
  return isIP(text) && !text.includes('%') ? ipaddr.process(text).toString() : undefined;
}

/** Where a socket comes from; the zone of a link-local address says how it came here, and is left out. */
export function peerAddress({ remoteAddress = '' }: Pick<Socket, 'remoteAddress'>): string | undefined {
  // Asked for each request: what a socket that listens on both families says of IPv4 is not parsed.
  const four = remoteAddress.startsWith('::ffff:') ? remoteAddress.slice(7) : remoteAddress;
  if (isIPv4(four)) return four;
  return plainAddress(remoteAddress.replace(/%.*$/, ''));
}

/**
 * The address behind the proxies that are trusted, by `X-Forwarded-For`: each of them has added at its end whom it has
 * got the request from, some with the port. What is no address ends the walk.
 */
export function forwardedAddress(peer: string | undefined, header: string | string[] | undefined, trusts: Trust) {
  if (header === undefined) return peer;
  let address = peer;
  for (const entry of header.toString().split(',').reverse()) {
    if (address === undefined || !trusts(address)) break;
    const before = plainAddress(withoutPort(entry.trim()));
    if (before === undefined) break;
    address = before;
  }
  return address;
}

/** Whether a request came over TLS: to here, or to a trusted proxy that says so with `X-Forwarded-Proto`. */
export function isOverTls(socket: Socket, proto: string | string[] | undefined, trusts: Trust): boolean {
  if ('encrypted' in socket && socket.encrypted === true) return true;
  const peer = peerAddress(socket);
  return proto === 'https' && peer !== undefined && trusts(peer);
}

/** `192.0.2.1:55`, `[2001:db8::1]:55` and `[2001:db8::1]` without the port and the brackets; everything else as it is. */
function withoutPort(entry: string): string {
  const [, six, four] = /^(?:\[([^\]]*:[^\]]*)\](?::\d{1,5})?|([\d.]+):\d{1,5})$/.exec(entry) ?? [];
  return six ?? four ?? entry;
}
