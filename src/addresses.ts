/** Where a connection comes from when proxies stand between: whose word about it is taken, and what results. */
import ipaddr from 'ipaddr.js';

/** Whether the word of this address about others is taken. */
export type Trust = (address: string) => boolean;

/** By addresses and networks such as `10.0.0.0/8`. */
export function trustOf(networks: readonly string[]): Trust {
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

/** An IPv4 address that came in over IPv6 is written as IPv4. */
export function plainAddress(address: string | undefined): string | undefined {
  return address?.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address;
}

/**
 * The address behind the proxies that are trusted, by `X-Forwarded-For`: each of them has added at its end whom it has
 * got the request from. What is no address ends the walk.
 */
export function forwardedAddress(peer: string | undefined, header: string | undefined, trusts: Trust) {
  let address = peer;
  for (const before of (header ?? '').split(',').reverse()) {
    const candidate = before.trim();
    if (address === undefined || !trusts(address) || !ipaddr.isValid(candidate)) break;
    address = plainAddress(candidate);
  }
  return address;
}
