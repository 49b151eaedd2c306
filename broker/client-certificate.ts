import type { X509Certificate } from 'node:crypto';
import { TLSSocket } from 'node:tls';
import type { PresentedCertificate } from '../src/context.js';
import type { BrokerClient } from './aedes-types.js';

/** Certificates besides its own that are looked at. */
const mostOthers = 4;

/** What a client has shown in its TLS handshake; undefined without TLS, or without a certificate. */
export function presentedBy({ conn, req }: BrokerClient): PresentedCertificate | undefined {
  const socket = req?.socket ?? conn;
  const own = socket instanceof TLSSocket && !socket.destroyed ? socket.getPeerX509Certificate() : undefined;
  if (!own) return undefined;
  const others: X509Certificate[] = [];
  // As they were sent, one after the other, whoever has issued them.
  for (let next = own.issuerCertificate; next && others.length < mostOthers; next = next.issuerCertificate)
    others.push(next);
  return { own, others };
}
