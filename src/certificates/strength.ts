/** Keys and signatures that are strong enough, of certificates, requests and revocation lists alike. */
import type { KeyObject } from 'node:crypto';
import { contextTag, type Element, elementsOf, partsOf, tags } from './der.ts';

/** Bits: fewer are too weak, more take too long to check. */
const rsaBits = { least: 2048, most: 8192 };
const minCurveBits = 256;

/** How something is signed. */
export interface Scheme {
  /** Null where the algorithm has one of its own. */
  hash: string | null;
  /** Kinds of keys that sign so. */
  keys: readonly string[];
  /** Of RSA-PSS. */
  pss?: { saltLength: number; isMaskOfHash: boolean };
}

/** By object identifiers, the hex of their DER. */
const schemes: ReadonlyMap<string, Scheme> = new Map([
  ['2a864886f70d01010b', { hash: 'sha256', keys: ['rsa'] }],
  ['2a864886f70d01010c', { hash: 'sha384', keys: ['rsa'] }],
  ['2a864886f70d01010d', { hash: 'sha512', keys: ['rsa'] }],
  ['2a8648ce3d040302', { hash: 'sha256', keys: ['ec'] }],
  ['2a8648ce3d040303', { hash: 'sha384', keys: ['ec'] }],
  ['2a8648ce3d040304', { hash: 'sha512', keys: ['ec'] }],
  ['2b6570', { hash: null, keys: ['ed25519'] }],
  ['2b6571', { hash: null, keys: ['ed448'] }],
]);
const rsaPss = '2a864886f70d01010a';
const pssHashes: ReadonlyMap<string, string> = new Map([
  ['608648016503040201', 'sha256'],
  ['608648016503040202', 'sha384'],
  ['608648016503040203', 'sha512'],
]);
/** Bytes of the salt where the parameters do not say. */
const usualSalt = 20;

/** What an AlgorithmIdentifier means; undefined where that is weak, or not known. */
export function strongScheme(algorithm: Element | undefined): Scheme | undefined {
  const [id, parameters] = elementsOf(algorithm?.content);
  const name = hexOf(id);
  return name === rsaPss ? strongPss(parameters) : schemes.get(name);
}

/** RFC 4055, 3.1: the hash, that of the mask, and the length of the salt. Without parameters it is SHA-1. */
function strongPss(parameters: Element | undefined): Scheme | undefined {
  const all = [...elementsOf(parameters?.content)];
  const part = (number: number) => partsOf(all.find(({ tag }) => tag === contextTag(number))?.whole);
  const [hashId] = elementsOf(part(0)[0]?.content);
  const [, mask] = elementsOf(part(1)[0]?.content);
  const [maskId] = elementsOf(mask?.content);
  const [salt] = part(2);
  const hash = pssHashes.get(hexOf(hashId));
  if (hash === undefined) return undefined;
  const saltLength = salt ? Number(`0x${hexOf(salt)}`) : usualSalt;
  return { hash, keys: ['rsa', 'rsa-pss'], pss: { saltLength, isMaskOfHash: hexOf(maskId) === hexOf(hashId) } };
}

/** Why a public key cannot be relied on; undefined when it can. */
export function keyWeakness(key: KeyObject): string | undefined {
  const { modulusLength = 0 } = key.asymmetricKeyDetails ?? {};
  switch (key.asymmetricKeyType) {
    case 'rsa':
    case 'rsa-pss':
      if (modulusLength < rsaBits.least) return `has an RSA key of fewer than ${rsaBits.least} bits`;
      return modulusLength > rsaBits.most ? `has an RSA key of more than ${rsaBits.most} bits` : undefined;
    case 'ec':
      return curveWeakness(key);
    case 'ed25519':
    case 'ed448':
      return undefined;
    default:
      return 'has a key of an unknown kind';
  }
}

function curveWeakness(key: KeyObject): string | undefined {
  const [algorithm, point] = partsOf(key.export({ type: 'spki', format: 'der' }));
  const [, curve] = elementsOf(algorithm?.content);
  // RFC 5480, 2.1.1: parameters that are written out let somebody choose their own.
  if (curve?.tag !== tags.objectId) return 'has a curve that is not named (explicit EC parameters)';
  // Unused bits, the form, and one coordinate or both.
  const [, form = 0, ...coordinates] = point?.content ?? [];
  const bits = coordinates.length * (form === 2 || form === 3 ? 8 : 4);
  return bits >= minCurveBits ? undefined : `has a curve of fewer than ${minCurveBits} bits`;
}

function hexOf(element: Element | undefined): string {
  return element?.content.toString('hex') ?? '';
}
