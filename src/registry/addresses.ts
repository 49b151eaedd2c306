/** Where units connect and where they are claimed: the same for units of a job and for single ones. */
import type { Config } from '../core/config.ts';
import type { BrokerState } from '../ports/broker-state.ts';

/** The broker address for units. */
export function brokerUrl({ config, broker }: { config: Config; broker: Pick<BrokerState, 'addresses'> }): string {
  if (config.mqttPublicUrl) return config.mqttPublicUrl;
  const { mqtt, mqtts } = broker.addresses;
  const host = config.publicUrl ? new URL(config.publicUrl).hostname : ownHost(config);
  return mqtts === undefined ? `mqtt://${host}:${mqtt}` : `mqtts://${host}:${mqtts}`;
}

/** Where anyone who holds a unit claims it; withCode adds its code. */
export function claimUrl({ config }: { config: Config }): string {
  if (config.claimUrl) return config.claimUrl;
  const own = `${config.tls ? 'https' : 'http'}://${ownHost(config)}:${config.httpPort}`;
  return `${config.publicUrl ?? own}/claim`;
}

/** The claim URL with a code, as in the QR code of a label. */
export function withCode(claim: string, code: string, accountId: string): string {
  const url = new URL(claim);
  url.searchParams.set('code', code);
  url.searchParams.set('account', accountId);
  return url.href;
}

function ownHost({ host }: Config): string {
  return host.includes(':') ? `[${host}]` : host;
}
