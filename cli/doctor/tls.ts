/** The server's own certificate; that its key goes with it, reading the configuration has shown. */
import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { rootCertificates } from 'node:tls';
import type { Config } from '../../src/core/config.ts';
import { pemCertificates } from '../../src/core/formats/pem.ts';
import { type Finding, findings } from './finding.ts';

const { ok, warning, error } = findings('tls');
const day = 24 * 60 * 60_000;
/** Days before its end at which somebody should have renewed it. */
const soon = 30;

type TlsSettings = Pick<Config, 'tls'> & Partial<Pick<Config, 'publicUrl' | 'mqttPublicUrl'>>;

export function lookAtTls({ tls, publicUrl, mqttPublicUrl }: TlsSettings, now: number): Finding[] {
  if (!tls) return [ok('there is no certificate')];
  const [own, ...authorities] = pemCertificates(tls.chain).map((pem) => new X509Certificate(pem));
  if (!own) return [error('SLIPWAY_TLS_CERT holds no certificate.')];
  const found = [
    ...validity('SLIPWAY_TLS_CERT', own, now),
    ...authorities.flatMap((one) => validity(`The CA "${oneLine(one.subject)}"`, one, now)),
  ];
  found.push(...faultsOfChain([own, ...authorities]));
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

/** As a device does that has the root alone: each certificate is followed by that of its issuer, up to the root or to what it has signed. */
function faultsOfChain(chain: readonly X509Certificate[]): Finding[] {
  const found: Finding[] = [];
  const nameAt = (at: number) => (at === 0 ? 'SLIPWAY_TLS_CERT' : `"${oneLine(chain[at]?.subject ?? '')}"`);
  for (const [at, issuer] of chain.slice(1).entries()) {
    const one = chain[at];
    if (one && !(issuer.ca && isIssuedBy(one, issuer)))
      found.push(
        warning(`${nameAt(at + 1)}, which is sent after it, has not issued ${nameAt(at)}: clients may not trust it.`),
      );
  }
  const last = chain.at(-1);
  // Who says where its issuer can be had is signed by a CA in between, which devices do not fetch.
  if (last?.infoAccess?.includes('CA Issuers') && !isIssuedBy(last, last) && !isIssuedByRoot(last))
    found.push(
      warning(
        `The certificate of "${oneLine(last.issuer)}", which has issued ${nameAt(chain.length - 1)}, is not sent: devices that know the root alone refuse the server. Use the full chain.`,
      ),
    );
  return found;
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

/** Whether one of the roots that Node comes with has signed it. */
function isIssuedByRoot(certificate: X509Certificate): boolean {
  return rootCertificates.some((pem) => isIssuedBy(certificate, new X509Certificate(pem)));
}

function isFor(certificate: X509Certificate, host: string): boolean {
  return (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) !== undefined;
}

function ends(certificates: readonly X509Certificate[]): string {
  const first = Math.min(...certificates.map(({ validTo }) => Date.parse(validTo)));
  return new Date(first).toISOString().slice(0, 10);
}

function oneLine(subject: string): string {
  return subject.replaceAll('\n', ', ');
}
