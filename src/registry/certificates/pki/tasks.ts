/** What the thread of certificates does. Only it imports this: the libraries take memory and time to load. */
import { createPublicKey } from 'node:crypto';
import { makeAuthority, makeKey, makeLeaf, makePkcs7, makeRequest, makeRevocationList } from './making.ts';
import { readRequest, readRevocationList } from './reading.ts';

/** A new CA: its key, its own certificate, and a request to another CA. */
function makeNewAuthority(wanted: Parameters<typeof makeAuthority>[1]) {
  const key = makeKey();
  return { key, certificate: makeAuthority(key, wanted), request: makeRequest(key, wanted.commonName) };
}

/** Whether a certificate is about the key. */
function hasKey(certificate: string, key: string): boolean {
  return createPublicKey(certificate).equals(createPublicKey(key));
}

export const tasks = {
  ...{ makeNewAuthority, makeLeaf, makePkcs7, makeRevocationList },
  ...{ hasKey, readRequest, readRevocationList },
};
