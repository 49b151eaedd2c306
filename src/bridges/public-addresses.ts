/** Which addresses a bridge may connect to: none of this machine's, of its networks or of its cloud (decisions 7). */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import os from 'node:os';
import ipaddr from 'ipaddr.js';

/** A name or an address leads to where bridges may not go. */
export class NotPublic extends Error {
  override name = 'NotPublic';

  constructor() {
    super('not a public address, which only SLIPWAY_BRIDGE_ALLOW_PRIVATE=true allows');
  }
}

/** In public ranges, and yet a machine's own: where Azure tells its machines about themselves. */
const metadata = ['168.63.129.16'];

/** Whether this address is elsewhere on the internet, not one of this machine's now; false for what is no address. */
export function isPublic(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  // An IPv4 address in the clothes of IPv6 is what it is; other translations are in no range of their own here.
  const parsed = ipaddr.process(address);
  if (parsed.range() !== 'unicast') return false;
  if (parsed.kind() === 'ipv6' && !(parsed as ipaddr.IPv6).match(globalUnicast)) return false;
  const text = parsed.toString();
  return !metadata.includes(text) && !isOwn(text);
}

function isOwn(address: string): boolean {
  const own = Object.values(os.networkInterfaces()).flatMap((addresses = []) => addresses.map((one) => one.address));
  // An address of one link has its zone behind it.
  return own.some((one) => ipaddr.isValid(one) && ipaddr.process(one).toString() === address);
}

const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3');

/** The host of a URL when it is an address and none to go to: nobody is asked for its name then. */
export function namesPrivateAddress({ hostname }: URL): boolean {
  const address = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(address) !== 0 && !isPublic(address);
}

/**
 * For `lookup` of a connection: only public addresses of a name. The one that is connected to is one of these, so a
 * name that leads elsewhere the next time it is asked for gains nothing.
 */
export const lookupPublic: LookupFunction = (hostname, options, done) => {
  lookup(hostname, { ...(options as LookupOptions), all: true }, (error, found) => {
    if (error) return done(error, []);
    const addresses = found.filter(({ address }) => isPublic(address));
    const [first] = addresses as [LookupAddress?];
    if (!first) return done(new NotPublic(), []);
    if (options.all) return done(null, addresses);
    return done(null, first.address, first.family);
  });
};
