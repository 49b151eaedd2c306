/** TLS of the HTTP port: its certificate, and the question for client certificates of devices. */
import { X509Certificate } from 'node:crypto';

/** The certificate of the server as PEM: the chain, and its key. */
export interface ServerCertificate {
  chain: string;
  key: string;
}

/**
 * The secure context. `ca` names the certificate authorities in the question for a client certificate: the server's own
 * certificate, which has issued none, so that browsers do not ask their users for one.
 */
export function secureOptions({ chain, key }: ServerCertificate) {
  return { cert: chain, key, ca: new X509Certificate(chain).toString(), sessionIdContext: 'slipway-https' };
}

/** A certificate is never demanded; the broker's rules decide what one is worth. */
export const asksForCertificates = { requestCert: true, rejectUnauthorized: false } as const;
