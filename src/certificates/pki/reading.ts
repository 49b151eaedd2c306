/** Reads what others have made, in the thread of certificates: requests (PKCS#10) and revocation lists. */
import { constants, createPublicKey, hash, type KeyObject, verify, X509Certificate } from 'node:crypto';
import { CertificationRequest } from '@peculiar/asn1-csr';
import { AsnConvert } from '@peculiar/asn1-schema';
import * as asn1 from '@peculiar/asn1-x509';
import * as asn1js from 'asn1js';
import { pemBlocks } from '../../core/formats/pem.ts';
import { contextTag, type Element, elementsOf, partsOf, tags } from '../der.ts';
import { keyWeakness, strongScheme } from '../strength.ts';
import { attributesOf, isSameName } from './names.ts';
import { digestOf } from './serial-numbers.ts';

/** A request whose signature fits its key. */
export interface SigningRequest {
  /** SubjectPublicKeyInfo, DER. */
  publicKey: Uint8Array<ArrayBuffer>;
  /** Its SHA-256, lower-case hex. */
  publicKeyHash: string;
  /** Attributes that the subject has once. */
  subject: { commonName?: string; serialNumber?: string };
}

/** A revocation list that the CA has signed; times in milliseconds since 1970. */
export interface RevocationList {
  /** Decimal digits. */
  number: string;
  thisUpdate: number;
  nextUpdate: number;
  count: number;
  /** Digests of serial numbers, sorted, as `isListed` of serial-numbers.ts wants them. */
  digests: Uint8Array<ArrayBuffer>;
}

/** What cannot be used, and why. */
export interface Fault {
  fault: string;
}

/** Their types, the hex of object identifiers. */
const subjectAttributes = { commonName: '550403', serialNumber: '550405' } as const;
const strongEnough = 'with SHA-256 or better, or with EdDSA';

/** The request in a PEM text, or in base64 of DER. */
export function readRequest(text: string): SigningRequest | Fault {
  let request: CertificationRequest;
  let frame: ReturnType<typeof frameOf>;
  try {
    const bytes = bytesOfText(text, 'CERTIFICATE REQUEST');
    // The library takes lengths that do not fit, other tags, and bytes behind the end.
    frame = frameOf(bytes);
    request = AsnConvert.parse(bytes, CertificationRequest);
  } catch {
    return { fault: 'must be a certificate request (PKCS#10), as PEM or base64 of DER' };
  }
  const { certificationRequestInfo: info } = request;
  let key: KeyObject;
  try {
    key = createPublicKey({ key: Buffer.from(AsnConvert.serialize(info.subjectPKInfo)), format: 'der', type: 'spki' });
  } catch {
    return { fault: 'has a key of an unknown kind' };
  }
  const weakness = keyWeakness(key);
  if (weakness !== undefined) return { fault: weakness };
  if (!isSigned(frame, key)) return { fault: `is not signed by its own key ${strongEnough}` };
  const subject = subjectIn(frame.content);
  if ('fault' in subject) return subject;
  const publicKey = Uint8Array.from(key.export({ type: 'spki', format: 'der' }));
  return { publicKey, publicKeyHash: hash('sha256', publicKey, 'hex'), subject };
}

/** The revocation list of a CA (PEM), in DER or in a PEM text. `now` in milliseconds since 1970. */
export function readRevocationList(given: Uint8Array, authority: string, now: number): RevocationList | Fault {
  let parts: Parts;
  try {
    parts = partsOfList(
      given[0] === tags.sequence ? given : bytesOfText(Buffer.from(given).toString('latin1'), 'X509 CRL'),
    );
  } catch {
    return { fault: 'must be a certificate revocation list, as DER or PEM' };
  }
  const { publicKey, raw } = new X509Certificate(authority);
  if (!isSameName(subjectOf(raw), parts.issuer)) return { fault: 'is that of another CA' };
  if (!isSigned(parts.frame, publicKey)) return { fault: `is not signed by this CA ${strongEnough}` };
  const { number, thisUpdate, nextUpdate, extensions } = parts;
  if (number === undefined) return { fault: 'has no number (CRL Number)' };
  if (nextUpdate === undefined || nextUpdate <= now) return { fault: 'has expired, or does not say when it will' };
  if (thisUpdate > now + clockTolerance) return { fault: 'is not valid yet' };
  try {
    if (extensions.some(changesMeaning))
      return { fault: 'is a delta, indirect or partial list, which is not supported' };
    return { number, thisUpdate, nextUpdate, ...listedIn(parts.entries) };
  } catch {
    return { fault: 'has entries or extensions that cannot be read' };
  }
}

/** Milliseconds that the clock of a CA may be ahead. */
const clockTolerance = 300_000;
const maxNumberBytes = 20;
/** Bytes of the date of an entry: 2611271530Z. */
const shortestDate = 11;
/** Bytes of all extensions of a list, which become objects. */
const maxExtensions = 65_536;

interface Parts {
  frame: Frame;
  issuer: Uint8Array;
  thisUpdate: number;
  nextUpdate: number | undefined;
  entries: Uint8Array | undefined;
  number: string | undefined;
  extensions: readonly asn1.Extension[];
}

/** The parts of a list, in their order [RFC 5280, 5.1], its entries unread. @throws Error when it is none. */
function partsOfList(der: Uint8Array): Parts {
  const frame = frameOf(der);
  const { content: list, algorithm } = frame;
  const rest = [...elementsOf(list.content)];
  const take = (...wanted: number[]) => (wanted.includes(rest[0]?.tag ?? 0) ? rest.shift() : undefined);
  take(tags.integer);
  const inner = take(tags.sequence)?.whole;
  const issuer = take(tags.sequence)?.whole;
  const thisUpdate = take(tags.utcTime, tags.generalizedTime)?.whole;
  const nextUpdate = take(tags.utcTime, tags.generalizedTime)?.whole;
  const entries = take(tags.sequence)?.content;
  const tagged = take(contextTag(0))?.content;
  if (!inner || !issuer || !thisUpdate || rest.length > 0) throw new Error('not a revocation list');
  if (!inner.equals(algorithm.whole)) throw new Error('two algorithms');
  if (inner.length + thisUpdate.length + (nextUpdate?.length ?? 0) + (tagged?.length ?? 0) > maxExtensions)
    throw new Error('too long');
  const extensions = tagged ? [...AsnConvert.parse(tagged, asn1.Extensions)] : [];
  const numbered = extensions.find(({ extnID }) => extnID === asn1.id_ce_cRLNumber);
  return {
    ...{ frame, issuer, entries, extensions },
    thisUpdate: timeIn(thisUpdate),
    nextUpdate: nextUpdate && timeIn(nextUpdate),
    number: numbered && numberIn(numbered.extnValue.buffer),
  };
}

/** What requests, lists and certificates are: content, the algorithm, and a signature of whole bytes. */
interface Frame {
  content: Element;
  algorithm: Element;
  signature: Uint8Array;
}

/** @throws Error for anything else. */
function frameOf(der: Uint8Array): Frame {
  const [content, algorithm, signature, more] = partsOf(der);
  const isFrame = content?.tag === tags.sequence && algorithm?.tag === tags.sequence && !more;
  if (der[0] !== tags.sequence || !isFrame || signature?.tag !== tags.bitString || signature.content[0] !== 0)
    throw new Error('not signed');
  // The first byte of a BIT STRING says how many bits of the last one are unused.
  return { content, algorithm, signature: signature.content.subarray(1) };
}

function timeIn(der: Uint8Array): number {
  const time = AsnConvert.parse(der, asn1.Time).getTime().getTime();
  if (Number.isNaN(time)) throw new Error('not a time');
  return time;
}

/** A number of 20 bytes at most [RFC 5280, 5.2.3]. */
function numberIn(der: ArrayBuffer): string {
  const { result } = asn1js.fromBER(der);
  if (!(result instanceof asn1js.Integer) || der.byteLength > 2 + maxNumberBytes) throw new Error('not a number');
  const number = result.toBigInt();
  if (number < 0n) throw new Error('not a number of a list');
  return String(number);
}

/** Whether an extension says that a list is not what it looks like. */
function changesMeaning({ extnID, critical, extnValue }: asn1.Extension): boolean {
  if (extnID === asn1.id_ce_issuingDistributionPoint) {
    const scope = AsnConvert.parse(extnValue.buffer, asn1.IssuingDistributionPoint);
    return scope.indirectCRL || scope.onlyContainsAttributeCerts || scope.onlySomeReasons !== undefined;
  }
  return critical;
}

function listedIn(entries: Uint8Array | undefined): Pick<RevocationList, 'count' | 'digests'> {
  const digests: string[] = [];
  for (const entry of elementsOf(entries)) {
    const [number, date] = elementsOf(entry.content);
    // Without the date, which each must have, four times as many would fit.
    if (number?.tag !== tags.integer || !date || date.content.length < shortestDate) throw new Error('not an entry');
    digests.push(digestOf(number.content.toString('hex')));
  }
  digests.sort();
  return { count: digests.length, digests: Uint8Array.from(Buffer.from(digests.join(''), 'hex')) };
}

/** The subject of a certificate, as it is written there. */
function subjectOf(certificate: Uint8Array): Uint8Array {
  const parts = [...elementsOf(partsOf(certificate)[0]?.content)];
  // The version is left out in certificates of the first version.
  return parts[parts[0]?.tag === contextTag(0) ? 5 : 4]?.whole ?? new Uint8Array();
}

function isSigned({ content, algorithm, signature }: Frame, key: KeyObject): boolean {
  try {
    const scheme = strongScheme(algorithm);
    if (!scheme?.keys.includes(key.asymmetricKeyType ?? '')) return false;
    const { pss } = scheme;
    if (!pss) return verify(scheme.hash, content.whole, key, signature);
    // Node knows no other hash for the mask.
    const how = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: pss.saltLength };
    return pss.isMaskOfHash && verify(scheme.hash, content.whole, how, signature);
  } catch {
    return false;
  }
}

/** What the subject of a request says; its version comes first. */
function subjectIn(content: Element): SigningRequest['subject'] | Fault {
  const [, name] = elementsOf(content.content);
  const all = attributesOf(name?.whole ?? new Uint8Array()).flat();
  const subject: SigningRequest['subject'] = {};
  for (const [attribute, id] of Object.entries(subjectAttributes) as [keyof typeof subjectAttributes, string][]) {
    const [one, another] = all.filter(({ type }) => type === id);
    if (!one || another) continue;
    if (one.text === undefined) return { fault: `has a subject whose ${attribute} is not a text` };
    subject[attribute] = one.text;
  }
  return subject;
}

/** DER from PEM, or from base64 alone. OpenSSL writes other blocks before what was asked for, such as EC PARAMETERS. */
function bytesOfText(text: string, label: string): Uint8Array {
  const blocks = pemBlocks(text);
  const { der } = blocks.find((one) => one.label.endsWith(label)) ?? blocks[0] ?? { der: Buffer.from(text, 'base64') };
  return der;
}
