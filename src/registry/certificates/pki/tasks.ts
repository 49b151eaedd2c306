/** What the thread of certificates does. Only it imports this: the libraries take memory and time to load. */
import { createPublicKey, X509Certificate } from 'node:crypto';
import { readCertificate, storedForm } from '../x509.ts';
import { makeAuthority, makeKey, makeLeaf, makePkcs7, makeRequest, makeRevocationList } from './making.ts';
import { type Fault, type RevocationList, readRequest, readRevocationList } from './reading.ts';

/** A new CA: its key, its own certificate, and a request to another CA. */
function makeNewAuthority(wanted: Parameters<typeof makeAuthority>[1]) {
  const key = makeKey();
  return { key, certificate: makeAuthority(key, wanted), request: makeRequest(key, wanted.commonName) };
}

/** A certificate as it is stored: the event loop need not read it again. */
function issueLeaf(...given: Parameters<typeof makeLeaf>) {
  const certificate = readCertificate(new X509Certificate(makeLeaf(...given)));
  return { ...storedForm(certificate), issuer: certificate.issuer, serialNumber: certificate.serial };
}

/** Whether a certificate is about the key. */
function hasKey(certificate: string, key: string): boolean {
  return createPublicKey(certificate).equals(createPublicKey(key));
}

/** A revocation list as it was sent: as bytes, or as the property `crl` of JSON. */
function readGivenList(
  { body, isJson }: { body: Uint8Array; isJson: boolean },
  authority: string,
  now: number,
): RevocationList | Fault {
  if (!isJson) return readRevocationList(body, authority, now);
  try {
    const { crl } = JSON.parse(Buffer.from(body).toString()) as { crl?: unknown };
    if (typeof crl === 'string') return readRevocationList(Buffer.from(crl, 'latin1'), authority, now);
  } catch {
    // As a text that is missing.
  }
  return { fault: 'must be a text: {"crl": "…"} with PEM, or base64 of DER' };
}

export const tasks = {
  ...{ makeNewAuthority, issueLeaf, makePkcs7, makeRevocationList },
  ...{ hasKey, readRequest, readGivenList },
};
