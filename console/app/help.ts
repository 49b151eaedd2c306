/** Which page of the guide is about which place. */

/** By the beginning of an address of the console: the longest that fits. */
const pages: Readonly<Record<string, string>> = {
  '/': 'console',
  '/home': 'messages#the-overview',
  '/first-device': 'tutorial',
  '/devices': 'console#good-to-know',
  '/devices/:/live': 'messages#listening',
  '/devices/:/series': 'messages#reading-points',
  '/devices/:/commands': 'firmware#send-a-command',
  '/devices/:/log': 'messages#logs',
  '/devices/:/refusals': 'messages#what-was-refused',
  '/devices/:/access': 'factory#verification-new-secrets-replacement',
  '/devices/:/firmware': 'firmware#what-each-state-means',
  '/devices/:/history': 'identity#the-audit-record',
  '/fleets': 'filters#fleets',
  '/organizations': 'permissions',
  '/people': 'identity#invitations-and-admins',
  '/people/roles': 'permissions#roles',
  '/products': 'mqtt#channels',
  '/factory': 'factory',
  '/factory/verifications': 'factory#verification-new-secrets-replacement',
  '/station': 'console#a-station',
  '/enrollment': 'enrollment',
  '/enrollment/certificates': 'enrollment#certificates-that-slipway-issues',
  '/enrollment/authorities': 'enrollment#revocation-lists-of-your-cas',
  '/firmware': 'firmware#publish-a-package',
  '/firmware/rollouts': 'firmware#roll-it-out',
  '/programs': 'identity#programs',
  '/programs/identity-providers': 'identity#login-at-an-openid-provider',
  '/programs/bridges': 'bridges',
  '/trash': 'console#good-to-know',
  '/account': 'identity#sessions',
  '/account/tokens': 'identity#programs',
  '/account/branding': 'console#the-claim-page',
  '/account/usage': 'limits',
  '/account/audit': 'identity#the-audit-record',
  '/account/health': 'operations#health',
};

/** The address of the page of the guide for an address below /console. */
export function helpOf(path: string): string {
  const parts = path.replace(/^(\/devices)\/[^/]+/, '$1/:').split('/');
  for (let length = parts.length; length > 1; length -= 1) {
    const page = pages[parts.slice(0, length).join('/')];
    if (page !== undefined) return `/guide/${page}`;
  }
  return `/guide/${pages['/']}`;
}
