/** The server's own certificate; that its key goes with it, reading the configuration has shown. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { Config } from '../../src/config.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning, error } = findings('tls');
const day = 24 * 60 * 60_000;
/** Days before its end at which somebody should have renewed it. */
const soon = 30;

type Shown = Pick<Config, 'tls'> & Partial<Pick<Config, 'publicUrl' | 'mqttPublicUrl'>>;

export function lookAtTls({ tls, publicUrl, mqttPublicUrl }: Shown, now: number): Finding[] {
  if (!tls) return [ok('there is no certificate')];
  const [own, ...authorities] = split(tls.chain).map((pem) => new X509Certificate(pem));
  if (!own) return [error('SLIPWAY_TLS_CERT holds no certificate.')];
  const found = [
    ...validity('SLIPWAY_TLS_CERT', own, now),
    ...authorities.flatMap((one) => validity(`The CA "${oneLine(one.subject)}"`, one, now)),
  ];
  const [issuer] = authorities;
  if (issuer && !(own.checkIssued(issuer) && own.verify(issuer.publicKey)))
    found.push(
      warning('The first certificate of SLIPWAY_TLS_CA has not issued SLIPWAY_TLS_CERT: clients may not trust it.'),
    );
  for (const [variable, url] of Object.entries({
    SLIPWAY_PUBLIC_URL: publicUrl,
    SLIPWAY_MQTT_PUBLIC_URL: mqttPublicUrl,
  })) {
    const host = url === undefined ? undefined : new URL(url).hostname.replaceAll(/[[\]]/g, '');
    if (host !== undefined && !isFor(own, host))
      found.push(warning(`SLIPWAY_TLS_CERT is not for ${host}, the host of ${variable}.`));
  }
  return found.length > 0
    ? found
    : [ok(`certificate and CAs are good until ${ends([own, ...authorities])}, and the key fits`)];
}

function validity(what: string, { validFrom, validTo }: X509Certificate, now: number): Finding[] {
  const [from, to] = [Date.parse(validFrom), Date.parse(validTo)];
  if (to < now) return [error(`${what} expired on ${validTo}: clients refuse it.`)];
  if (from > now) return [error(`${what} is not good before ${validFrom}: clients refuse it, or the clock is wrong.`)];
  const days = Math.floor((to - now) / day);
  return days < soon ? [warning(`${what} expires in ${days} days, on ${validTo}.`)] : [];
}

function isFor(certificate: X509Certificate, host: string): boolean {
  return (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) !== undefined;
}

function split(chain: string): string[] {
  return chain.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
}

function ends(certificates: readonly X509Certificate[]): string {
  const first = Math.min(...certificates.map(({ validTo }) => Date.parse(validTo)));
  return new Date(first).toISOString().slice(0, 10);
}

function oneLine(subject: string): string {
  return subject.replaceAll('\n', ', ');
}
