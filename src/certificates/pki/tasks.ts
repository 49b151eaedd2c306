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
  const given = isJson ? textIn(Buffer.from(body).toString('latin1')) : body;
  if (!given) return { fault: 'must be a text: {"crl": "…"} with PEM, or base64 of DER' };
  return readRevocationList(given, authority, now);
}

/** The one text of a JSON object. Anything else in so large a body could become much larger in memory. */
function textIn(json: string): Buffer | undefined {
  const [before = ''] = /^\s*\{\s*"crl"\s*:\s*(?=")/.exec(json) ?? [];
  const end = json.indexOf('"', before.length + 1);
  if (before === '' || end < 0 || !/^\s*\}\s*$/.test(json.slice(end + 1, end + 100)) || json.length > end + 100)
    return undefined;
  try {
    return Buffer.from(JSON.parse(json.slice(before.length, end + 1)) as string, 'latin1');
  } catch {
    return undefined;
  }
}

export const tasks = {
  ...{ makeNewAuthority, issueLeaf, makePkcs7, makeRevocationList },
  ...{ hasKey, readRequest, readGivenList },
};
