/** Reading X.509 certificates (RFC 5280): what they contain, what Node does not read, and what is too weak. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import { comparableName, nameHash } from '../../db/registry/distinguished-names.ts';
import { pemCertificates } from '../core/formats/pem.ts';
import { contextTag, elementsOf, partsOf, tags } from './der.ts';
import { normalSerial } from './pki/serial-numbers.ts';
import { keyWeakness, strongScheme } from './strength.ts';

/** The used fields of a certificate. Times in milliseconds since 1970. */
export interface Certificate {
  readonly x509: X509Certificate;
  /** SHA-256 of the DER, lower-case hex. */
  readonly fingerprint: string;
  /** Names as one line, one attribute after the other: `O=Acme\, Inc, CN=Root`. */
  readonly subject: string;
  readonly issuer: string;
  readonly validFrom: number;
  readonly validTo: number;
  /** As `normalSerial` writes the content of its INTEGER: revocation lists name certificates by it. */
  readonly serial: string;
  /** Attributes of the subject, undefined when it has none, or several, of the kind. */
  readonly commonName: string | undefined;
  readonly serialNumber: string | undefined;
  /** Whether it is signed with SHA-2 of 256 bits or more, or EdDSA. */
  readonly hasStrongSignature: boolean;
  /** The first byte of keyUsage [RFC 5280, 4.2.1.3], undefined where it is not limited. */
  readonly keyUsage: number | undefined;
  /** How many CAs may follow below it, undefined where that is not limited. */
  readonly pathLength: number | undefined;
  /** Whether it asks for something that nobody here knows. */
  readonly hasUnknownCritical: boolean;
}

const extensionIds = {
  keyUsage: '551d0f',
  alternativeName: '551d11',
  basicConstraints: '551d13',
  policies: '551d20',
  extendedKeyUsage: '551d25',
} as const;
/** Critical extensions that are obeyed, or that ask nothing of anyone who goes by names and keys. */
const knownExtensions: ReadonlySet<string> = new Set(Object.values(extensionIds));
/** Of extendedKeyUsage: for TLS clients, and for anything. */
const clientUses: readonly string[] = ['1.3.6.1.5.5.7.3.2', '2.5.29.37.0'];
/** In the first byte of keyUsage. */
const digitalSignature = 0x80;
const keyCertSign = 0x04;

/** @throws Error when it cannot be read. */
export function readCertificate(x509: X509Certificate): Certificate {
  const { subject } = x509.toLegacyObject() as unknown as { subject?: Record<string, string | string[]> };
  const only = (value: string | string[] | undefined) => (typeof value === 'string' ? value : undefined);
  const validFrom = Date.parse(x509.validFrom);
  const validTo = Date.parse(x509.validTo);
  if (Number.isNaN(validFrom) || Number.isNaN(validTo)) throw new Error('no dates');
  return {
    x509,
    fingerprint: x509.fingerprint256.replaceAll(':', '').toLowerCase(),
    subject: oneLine(x509.subject),
    issuer: oneLine(x509.issuer),
    validFrom,
    validTo,
    commonName: only(subject?.CN),
    serialNumber: only(subject?.serialNumber),
    hasStrongSignature: hasStrongSignature(x509.raw),
    ...limitsOf(x509.raw),
  };
}

/** The value of an attribute of the subject; undefined when it has none, or several. */
export function attributeOf(x509: X509Certificate, name: string): string | undefined {
  const { subject } = x509.toLegacyObject() as unknown as { subject?: Record<string, string | string[]> };
  const value = subject?.[name];
  return typeof value === 'string' ? value : undefined;
}

/** The certificate; undefined when it cannot be read. */
export function readable(x509: X509Certificate): Certificate | undefined {
  try {
    return readCertificate(x509);
  } catch {
    return undefined;
  }
}

/** The one certificate of a PEM text; a sentence about it when it holds none, several, or a private key. */
export function readPem(text: string): Certificate | string {
  if (text.includes('PRIVATE KEY')) return 'holds a private key, which belongs to the device alone';
  const blocks = pemCertificates(text);
  if (blocks.length > 1) return 'must hold exactly one certificate';
  try {
    return readCertificate(new X509Certificate(blocks[0] ?? ''));
  } catch {
    return 'must be a certificate in PEM form';
  }
}

/** The certificates of a PEM text, without what stands around them; undefined if it holds none, or one that cannot be read. */
export function cleanPem(text: string): string | undefined {
  try {
    return (
      pemCertificates(text)
        .map((block) => new X509Certificate(block).toString())
        .join('') || undefined
    );
  } catch {
    return undefined;
  }
}

/** The stored columns of every certificate. */
export function storedForm({ x509, fingerprint, subject, validFrom, validTo }: Certificate) {
  return {
    certificate: x509.toString(),
    fingerprint,
    subject,
    validFrom: new Date(validFrom).toISOString(),
    validTo: new Date(validTo).toISOString(),
  };
}

/** The stored columns of the certificate of a CA: by its subject it is found. */
export function storedAuthority(certificate: Certificate) {
  return { ...storedForm(certificate), subjectHash: nameHash(certificate.subject) };
}

/** Why a key or a signature cannot be relied on; undefined when it can. */
export function weaknessOf({ x509, hasStrongSignature: isStrong }: Certificate): string | undefined {
  let key: KeyObject;
  try {
    key = x509.publicKey;
  } catch {
    return 'has a key of an unknown kind';
  }
  return keyWeakness(key) ?? (isStrong ? undefined : 'is signed with a weak or unknown algorithm');
}

/**
 * Why a certificate cannot be that of a CA with `below` other CAs between it and a device; undefined when it can.
 * A weak one cannot either.
 */
export function authorityFault(certificate: Certificate, below: number): string | undefined {
  const { x509, keyUsage, pathLength } = certificate;
  if (keyUsage !== undefined && !(keyUsage & keyCertSign)) return 'may not sign certificates (keyUsage)';
  if (!x509.ca) return 'must be that of a CA (basicConstraints CA:TRUE)';
  if (pathLength !== undefined && pathLength < below) return 'has too many others below it (pathLenConstraint)';
  return useFault(certificate) ?? weaknessOf(certificate);
}

/** Why a CA cannot have made this for a device to log in with; undefined when it can. */
export function clientFault(certificate: Certificate): string | undefined {
  const { keyUsage } = certificate;
  if (keyUsage !== undefined && !(keyUsage & digitalSignature)) return 'may not sign (keyUsage)';
  return useFault(certificate) ?? weaknessOf(certificate);
}

/** Whether `issuer` has signed it. Costs one check of a signature, if the names fit. */
export function isSignedBy({ x509, issuer: name }: Certificate, issuer: Certificate): boolean {
  try {
    return comparableName(name) === comparableName(issuer.subject) && x509.verify(issuer.x509.publicKey);
  } catch {
    return false;
  }
}

function useFault({ x509, hasUnknownCritical }: Certificate): string | undefined {
  // Node's name for extendedKeyUsage.
  const { keyUsage: uses } = x509;
  if (hasUnknownCritical) return 'has a critical extension that is not known';
  if (uses && !uses.some((use) => clientUses.includes(use))) return 'is not for clients (extendedKeyUsage)';
  return undefined;
}

// Fields that only the DER has. OpenSSL has parsed it before, and accepts some that is not strict DER.

function hasStrongSignature(der: Buffer): boolean {
  return strongScheme(partsOf(der)[1]) !== undefined;
}

function limitsOf(der: Buffer): Pick<Certificate, 'keyUsage' | 'pathLength' | 'hasUnknownCritical' | 'serial'> {
  const content = [...elementsOf(partsOf(der)[0]?.content)];
  const serial = content.find(({ tag }) => tag === tags.integer)?.content.toString('hex') ?? '';
  const [list] = partsOf(content.find(({ tag }) => tag === contextTag(3))?.whole);
  let keyUsage: number | undefined;
  let pathLength: number | undefined;
  let hasUnknownCritical = false;
  for (const extension of elementsOf(list?.content)) {
    const [id, ...rest] = elementsOf(extension.content);
    const name = id?.content.toString('hex') ?? '';
    const isCritical = rest.length > 1 && rest[0]?.content[0] !== 0;
    const value = rest.at(-1)?.content;
    if (name === extensionIds.keyUsage) keyUsage = [...elementsOf(value)][0]?.content[1] ?? 0;
    if (name === extensionIds.basicConstraints) {
      const depth = partsOf(value).find(({ tag }) => tag === tags.integer)?.content;
      if (depth) pathLength = depth.length === 1 ? depth.readUInt8() : Number.POSITIVE_INFINITY;
    }
    if (isCritical && !knownExtensions.has(name)) hasUnknownCritical = true;
  }
  return { keyUsage, pathLength, hasUnknownCritical, serial: normalSerial(serial) };
}

/** Node puts each attribute on a line of its own, with commas escaped. */
function oneLine(name: string | undefined): string {
  return (name ?? '').replaceAll('\n', ', ');
}
