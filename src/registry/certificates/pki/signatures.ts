/** Algorithms of signatures that are strong enough, of certificates, requests and lists alike. Object identifiers are the hex of their DER. */

/** The hash of each; EdDSA has one of its own, and names its kind of key. */
export const signatureHashes: ReadonlyMap<string, string | null> = new Map([
  // RSA
  ['2a864886f70d01010b', 'sha256'],
  ['2a864886f70d01010c', 'sha384'],
  ['2a864886f70d01010d', 'sha512'],
  // ECDSA
  ['2a8648ce3d040302', 'sha256'],
  ['2a8648ce3d040303', 'sha384'],
  ['2a8648ce3d040304', 'sha512'],
  ['2b6570', null],
  ['2b6571', null],
]);

/** Kinds of keys by the algorithms that have no hash. */
export const edwardsKeys: ReadonlyMap<string, string> = new Map([
  ['2b6570', 'ed25519'],
  ['2b6571', 'ed448'],
]);

/** RSA-PSS names its hash in parameters; without them it is SHA-1. */
export const rsaPss = '2a864886f70d01010a';
export const pssHashes: ReadonlyMap<string, string> = new Map([
  ['608648016503040201', 'sha256'],
  ['608648016503040202', 'sha384'],
  ['608648016503040203', 'sha512'],
]);
