/** Says that a board or a phone cannot use an address, wherever the page shows lines or makes files with it. */
import { isLoopback, isUnspecified } from '../../../src/core/network/own-machine.ts';
import { api, unwrap } from '../../app/api.ts';
import { can } from '../../app/session.ts';
import { texts } from '../../texts.ts';
import { useLoad } from '../data/load.ts';

const isUnusable = (host: string) => isLoopback(host) || isUnspecified(host);

export function BrokerWarning({ host }: { host: string }) {
  return isUnusable(host) ? <Warning says={texts.broker.unusable(host)} mend={texts.broker.mend} /> : null;
}

/** For the link of labels. */
export function LinkWarning({ url }: { url: string }) {
  const { hostname } = new URL(url);
  return isUnusable(hostname) ? (
    <Warning says={texts.broker.unusableLink(hostname)} mend={texts.broker.mendLink} />
  ) : null;
}

/** For files of units and answers to enrollments, which have the addresses that the service knows of itself. */
export function UnitsWarning() {
  const { data } = useLoad(
    async () =>
      can('create', 'associationCode') && (await unwrap(api.GET('/api/v1/provisioning/addresses'))).provisioning,
    [],
  );
  const host = data && new URL(data.broker).hostname;
  return host && isUnusable(host) ? <Warning says={texts.broker.unusable(host)} mend={texts.broker.mendUnits} /> : null;
}

function Warning({ says, mend }: { says: string; mend: string }) {
  return (
    <div class="note warn" role="note">
      <p>{says}</p>
      <p class="small">{mend}</p>
    </div>
  );
}
