/** By what addresses are counted: an IPv4 address by itself, an IPv6 address by its networks of 64 and of 48 bits. */
import ipaddr from 'ipaddr.js';

/** A network, and how many times as much as one address it may do. */
export interface Network {
  key: string;
  times: number;
}

/** A customer of a provider has a network of 64 bits, or one of 48 bits with 65,536 of those. */
const timesOfWide = 10;

/** The networks of an address, the narrowest first. */
export function networksOf(address: string): Network[] {
  const key = networkOf(address);
  if (!key.includes(':')) return [{ key, times: 1 }];
  return [
    { key, times: 1 },
    { key: `${key.split(':', 3).join(':')}/48`, times: timesOfWide },
  ];
}

/** The narrowest network of an address: of IPv6 the first 64 bits, all of which one customer of a provider has. */
export function networkOf(address: string): string {
  if (!ipaddr.IPv6.isValid(address)) return address;
  const parsed = ipaddr.IPv6.parse(address);
  if (parsed.isIPv4MappedAddress()) return parsed.toIPv4Address().toString();
  return parsed.parts.slice(0, 4).join(':');
}

/** How many of something each network has now. */
export class OpenPerNetwork {
  readonly #counts = new Map<string, number>();

  readonly limit: number;

  /** At most `limit` of an address; 0 for any number. */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** Counts one more; false, and nothing counted, when one of the address's networks has as many as it may have. */
  countOpened(address: string): boolean {
    const networks = networksOf(address);
    const isFull = ({ key, times }: Network) => (this.#counts.get(key) ?? 0) >= this.limit * times;
    if (this.limit > 0 && networks.some(isFull)) return false;
    for (const { key } of networks) this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    return true;
  }

  countClosed(address: string): void {
    for (const { key } of networksOf(address)) {
      const count = (this.#counts.get(key) ?? 1) - 1;
      if (count > 0) this.#counts.set(key, count);
      else this.#counts.delete(key);
    }
  }
}
