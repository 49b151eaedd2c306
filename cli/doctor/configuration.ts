/** Settings that are understood and hardly meant. */
import { aboutQuotes, type Config } from '../../src/core/config.ts';
import { isLoopback } from '../../src/core/network/own-machine.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning } = findings('configuration');

/** `hasAccount`: the first start was made. */
export function lookAtConfiguration(config: Config, { hasAccount }: { hasAccount: boolean }): Finding[] {
  const { host, tls, publicUrl, mqttPublicUrl, messages, firstAccount } = config;
  const isOpen = !isLoopback(host);
  const doubts: Array<[boolean, string]> = [
    [
      isOpen && !tls,
      `SLIPWAY_HOST=${host} without SLIPWAY_TLS_CERT: passwords and secrets cross the network in clear, unless a proxy adds TLS.`,
    ],
    [
      isOpen && config.metricsToken === undefined,
      `SLIPWAY_METRICS_TOKEN is not set: anyone who reaches the HTTP port at ${host} reads /metrics.`,
    ],
    [
      publicUrl?.startsWith('http:') === true && !isLoopback(new URL(publicUrl).hostname),
      'SLIPWAY_PUBLIC_URL begins with http: the links in emails, which hold tokens, are opened in clear.',
    ],
    [
      tls === undefined && mqttPublicUrl?.startsWith('mqtts:') === true && config.trustedProxies.length === 0,
      'SLIPWAY_MQTT_PUBLIC_URL begins with mqtts, and there is neither SLIPWAY_TLS_CERT nor a trusted proxy.',
    ],
    [
      tls !== undefined && mqttPublicUrl?.startsWith('mqtt:') === true,
      'SLIPWAY_MQTT_PUBLIC_URL begins with mqtt: units are told to connect without TLS, although there is a certificate.',
    ],
    [
      hasAccount && firstAccount.adminPassword !== undefined,
      'SLIPWAY_ADMIN_PASSWORD is still set. It is needed only for the first start: remove it.',
    ],
    [
      config.smtpUrl === undefined && isOpen,
      'SLIPWAY_SMTP_URL is not set: emails, with their tokens, are only written to outbox.ndjson and not sent.',
    ],
    [
      messages.diskReserveBytes === 0,
      'SLIPWAY_DISK_RESERVE_BYTES=0: messages are taken until the disk is full, and then nothing can be written.',
    ],
    [
      config.bridges.allowPrivate && isOpen,
      'SLIPWAY_ALLOW_PRIVATE_TARGETS=true, or SLIPWAY_BRIDGE_ALLOW_PRIVATE=true: admins of accounts can have this machine call addresses of your own network.',
    ],
  ];
  const unknown = config.unknown.map((name) =>
    warning(`${name} is not a setting of this version. Check its spelling.`),
  );
  const quoted = config.quoted.map((name) => warning(`${name}: ${aboutQuotes}`));
  const found = [...unknown, ...quoted, ...doubts.flatMap(([applies, message]) => (applies ? [warning(message)] : []))];
  return found.length > 0 ? found : [ok('understood, without contradictions')];
}
