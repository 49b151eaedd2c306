/** URLs that an account names. A name is looked up, and its addresses are checked, when it is connected to. */
import { invalid } from '../errors.ts';
import { namesPrivateAddress } from './outbound.ts';

const onlyPrivate = 'only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows';

/** With `plain` it may be http, too. @throws PlatformError 400/106 naming `path` where the text is not such a URL. */
export function checkAccountUrl(path: string, text: string, { allowPrivate, plain }: Allowed): void {
  const url = /^https?:\/\/[!-~]+$/i.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  if (!url || url.hostname === '') throw invalid(path, `must be an address with ${plain ? 'http or https' : 'https'}`);
  if (url.protocol !== 'https:' && !plain && !allowPrivate)
    throw invalid(path, `must be an address with https; ${onlyPrivate} http`);
  if (url.username !== '' || url.password !== '' || url.hash !== '')
    throw invalid(path, 'must have no user, no password and no fragment');
  if (!allowPrivate && namesPrivateAddress(url))
    throw invalid(path, `must not name a private address; ${onlyPrivate} it`);
}

interface Allowed {
  allowPrivate: boolean;
  plain: boolean;
}
