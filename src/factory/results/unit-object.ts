/** What a unit gets, as an object. It imports nothing of Node: a station in the browser makes it too. */
import type { Unit } from '../provisioning/unit.ts';

/** PEM texts that go onto the unit with its secret. */
export interface FlashExtra {
  /** Whom the unit trusts as the broker. */
  ca?: string | undefined;
  /** Of the unit itself, with its key. */
  certificate?: string | undefined;
  privateKey?: string | undefined;
}

/** Host and port of mqtt://host:port or mqtts://host:port; an IPv6 address is without its brackets. */
function brokerParts(broker: string): { host: string; port: number; tls: boolean } {
  const { protocol, hostname, port } = new URL(broker);
  if ((protocol !== 'mqtt:' && protocol !== 'mqtts:') || hostname === '') throw new Error(`no broker: ${broker}`);
  const tls = protocol === 'mqtts:';
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || (tls ? 8883 : 1883)), tls };
}

/** @throws Error for a broker that is no address. */
export function asObject(unit: Unit, extra: FlashExtra) {
  const { host, port, tls } = brokerParts(unit.broker);
  const { deviceId, secret, accountId, serialNumber, topics } = unit;
  const broker = { uri: unit.broker, host, port, tls };
  return { broker, username: deviceId, password: secret, accountId, serialNumber, topics, ...given(extra) };
}

function given({ ca, certificate, privateKey }: FlashExtra) {
  return { ...(ca && { ca }), ...(certificate && { certificate }), ...(privateKey && { privateKey }) };
}
