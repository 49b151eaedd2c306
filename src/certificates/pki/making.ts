/** Makes certificates, requests, revocation lists and PKCS#7, in the thread of certificates. Nothing else writes DER. */
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import {
  CertificateChoices,
  CertificateSet,
  ContentInfo,
  EncapsulatedContentInfo,
  id_data,
  id_signedData,
  SignedData,
  SignerInfos,
} from '@peculiar/asn1-cms';
import { Attributes, CertificationRequestInfo } from '@peculiar/asn1-csr';
import { AsnConvert, OctetString } from '@peculiar/asn1-schema';
import * as asn1 from '@peculiar/asn1-x509';
import * as asn1js from 'asn1js';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import { pemBlocks, pemOf } from '../../core/formats/pem.ts';

/** What a certificate or a list is signed with. */
export interface Signer {
  /** PKCS#8, PEM. */
  key: string;
  /** The CA, PEM. */
  certificate: string;
}

/** What is made for the holder of a public key. Times in milliseconds since 1970. */
export interface WantedLeaf {
  commonName: string;
  /** SubjectPublicKeyInfo, DER. */
  publicKey: Uint8Array;
  /** Hex. */
  serialNumber: string;
  from: number;
  to: number;
  /** Where the CA's revocation list is. */
  crlUrl: string | undefined;
}

/** One certificate of a list; `time` in milliseconds since 1970. */
export interface Revoked {
  serialNumber: string;
  time: number;
}

const ecdsaWithSha256 = new asn1.AlgorithmIdentifier({ algorithm: '1.2.840.10045.4.3.2' });
const commonNameType = '2.5.4.3';
/** CAs whose key and name are kept. */
const authoritiesKept = 1000;
/** Milliseconds that clocks of devices may be behind. */
const backdated = 60_000;

/** A new P-256 key, PKCS#8 as PEM. */
export function makeKey(): string {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
    type: 'pkcs8',
    format: 'pem',
  }) as string;
}

/** A self-signed CA of a key, as PEM. */
export function makeAuthority(
  key: string,
  wanted: { commonName: string; serialNumber: string; from: number; to: number },
): string {
  const privateKey = createPrivateKey(key);
  const subject = nameOf(wanted.commonName);
  const spki = publicKeyOf(privateKey);
  const keyId = keyIdOf(spki);
  const tbs = tbsOf({ ...wanted, issuer: subject, subject, spki }, [
    extension(asn1.id_ce_basicConstraints, new asn1.BasicConstraints({ cA: true, pathLenConstraint: 0 }), true),
    keyUsage(asn1.KeyUsageFlags.keyCertSign | asn1.KeyUsageFlags.cRLSign),
    extension(asn1.id_ce_subjectKeyIdentifier, new asn1.SubjectKeyIdentifier(keyId)),
  ]);
  return pemOf('CERTIFICATE', signed(serialize(tbs), privateKey));
}

/** A certificate for a client, as PEM. It begins a minute ago, for clocks that are behind. */
export function makeLeaf(signer: Signer, wanted: WantedLeaf): string {
  const { key, subject: issuer, authorityKey } = authorityOf(signer);
  const spki = AsnConvert.parse(wanted.publicKey, asn1.SubjectPublicKeyInfo);
  const { crlUrl } = wanted;
  const tbs = tbsOf({ ...wanted, from: wanted.from - backdated, issuer, subject: nameOf(wanted.commonName), spki }, [
    ...extensionsOfLeaf,
    extension(asn1.id_ce_subjectKeyIdentifier, new asn1.SubjectKeyIdentifier(keyIdOf(spki))),
    authorityKey,
    ...(crlUrl === undefined ? [] : [extension(asn1.id_ce_cRLDistributionPoints, distributionPoint(crlUrl))]),
  ]);
  return pemOf('CERTIFICATE', signed(serialize(tbs), key));
}

/** A request for the certificate of a CA, as PEM (PKCS#10). */
export function makeRequest(key: string, commonName: string): string {
  const privateKey = createPrivateKey(key);
  const subjectPKInfo = publicKeyOf(privateKey);
  const info = new CertificationRequestInfo({
    subject: nameOf(commonName),
    subjectPKInfo,
    attributes: new Attributes(),
  });
  return pemOf('CERTIFICATE REQUEST', signed(serialize(info), privateKey));
}

/** A revocation list, DER; `from` is its number, too, so that a later one has a higher number. */
export function makeRevocationList(
  signer: Signer,
  { from, to, revoked }: { from: number; to: number; revoked: readonly Revoked[] },
): Uint8Array<ArrayBuffer> {
  const { key, subject, authorityKey } = authorityOf(signer);
  const extensions = new asn1.Extensions([authorityKey, extension(asn1.id_ce_cRLNumber, new asn1.CRLNumber(from))]);
  // Written part by part: objects for all entries at once would take ten kilobytes each.
  const entries = revoked.map(({ serialNumber, time }) =>
    sequence([
      new Uint8Array(new asn1js.Integer({ valueHex: integerOf(serialNumber) }).toBER()),
      serialize(new asn1.Time(new Date(time))),
    ]),
  );
  const list = sequence([
    new Uint8Array(new asn1js.Integer({ value: asn1.Version.v2 }).toBER()),
    serialize(ecdsaWithSha256),
    serialize(subject),
    serialize(new asn1.Time(new Date(from))),
    serialize(new asn1.Time(new Date(to))),
    // An empty list must be absent.
    ...(entries.length > 0 ? [sequence(entries)] : []),
    sequence([serialize(extensions)], { tagClass: 3, tagNumber: 0 }),
  ]);
  return signed(list, key);
}

/** The certificates of a text (PEM) alone, as PKCS#7 (RFC 5652 SignedData without signers), DER. */
export function makePkcs7(text: string): Uint8Array<ArrayBuffer> {
  const certificates = certificatesIn(text).map((certificate) => new CertificateChoices({ certificate }));
  const data = new SignedData({
    version: 1,
    encapContentInfo: new EncapsulatedContentInfo({ eContentType: id_data }),
    certificates: new CertificateSet(certificates),
    signerInfos: new SignerInfos([]),
  });
  return serialize(new ContentInfo({ contentType: id_signedData, content: AsnConvert.serialize(data) }));
}

function certificatesIn(text: string): asn1.Certificate[] {
  return pemBlocks(text).map(({ der }) => AsnConvert.parse(der, asn1.Certificate));
}

interface Content {
  issuer: asn1.Name;
  subject: asn1.Name;
  spki: asn1.SubjectPublicKeyInfo;
  serialNumber: string;
  from: number;
  to: number;
}

function tbsOf(
  { issuer, subject, spki, serialNumber, from, to }: Content,
  extensions: asn1.Extension[],
): asn1.TBSCertificate {
  return new asn1.TBSCertificate({
    version: asn1.Version.v3,
    serialNumber: integerOf(serialNumber),
    signature: ecdsaWithSha256,
    issuer,
    validity: new asn1.Validity({ notBefore: new Date(from), notAfter: new Date(to) }),
    subject,
    subjectPublicKeyInfo: spki,
    extensions: new asn1.Extensions(extensions),
  });
}

/** What is to be signed, with its signature by a P-256 key: a certificate, a request and a list have this frame. */
function signed(content: Uint8Array, key: KeyObject): Uint8Array<ArrayBuffer> {
  const signature = new asn1js.BitString({ valueHex: Uint8Array.from(sign('sha256', content, key)).buffer });
  return sequence([content, serialize(ecdsaWithSha256), new Uint8Array(signature.toBER())]);
}

function publicKeyOf(privateKey: KeyObject): asn1.SubjectPublicKeyInfo {
  return AsnConvert.parse(
    createPublicKey(privateKey).export({ type: 'spki', format: 'der' }),
    asn1.SubjectPublicKeyInfo,
  );
}

/** SHA-1 of the bits of the key [RFC 5280, 4.2.1.2]: a name, not a signature. */
function keyIdOf({ subjectPublicKey }: asn1.SubjectPublicKeyInfo): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(createHash('sha1').update(Buffer.from(subjectPublicKey)).digest());
}

interface Authority {
  key: KeyObject;
  subject: asn1.Name;
  authorityKey: asn1.Extension;
}

const authorities = boundedCache<string, Authority>(authoritiesKept);

/** A signer as it is used, read once. */
function authorityOf({ key, certificate }: Signer): Authority {
  const id = createHash('sha256').update(key).update(certificate).digest('base64');
  const known = authorities.get(id);
  if (known) return known;
  const [own] = certificatesIn(certificate);
  if (!own) throw new Error('not a certificate');
  const { subject, extensions, subjectPublicKeyInfo } = own.tbsCertificate;
  // The identifier that the CA has, or the one that its key would have.
  const named = extensions?.find(({ extnID }) => extnID === asn1.id_ce_subjectKeyIdentifier);
  const keyId = named
    ? AsnConvert.parse(named.extnValue.buffer, asn1.SubjectKeyIdentifier).buffer
    : keyIdOf(subjectPublicKeyInfo);
  const identifier = new asn1.AuthorityKeyIdentifier({ keyIdentifier: new asn1.KeyIdentifier(keyId) });
  const authority = {
    key: createPrivateKey(key),
    subject,
    authorityKey: extension(asn1.id_ce_authorityKeyIdentifier, identifier),
  };
  authorities.set(id, authority);
  return authority;
}

function extension(extnID: string, value: object, critical = false): asn1.Extension {
  return new asn1.Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) });
}

function keyUsage(uses: number): asn1.Extension {
  return extension(asn1.id_ce_keyUsage, new asn1.KeyUsage(uses), true);
}

const extensionsOfLeaf = [
  extension(asn1.id_ce_basicConstraints, new asn1.BasicConstraints({ cA: false }), true),
  keyUsage(asn1.KeyUsageFlags.digitalSignature),
  extension(asn1.id_ce_extKeyUsage, new asn1.ExtendedKeyUsage([asn1.id_kp_clientAuth])),
];

function distributionPoint(url: string): asn1.CRLDistributionPoints {
  const fullName = [new asn1.GeneralName({ uniformResourceIdentifier: url })];
  const distributionPoint = new asn1.DistributionPointName({ fullName });
  return new asn1.CRLDistributionPoints([new asn1.DistributionPoint({ distributionPoint })]);
}

function nameOf(commonName: string): asn1.Name {
  const value = new asn1.AttributeValue({ utf8String: commonName });
  return new asn1.Name([
    new asn1.RelativeDistinguishedName([new asn1.AttributeTypeAndValue({ type: commonNameType, value })]),
  ]);
}

/** A positive number of hex digits, as the content of an INTEGER. */
function integerOf(hex: string): ArrayBuffer {
  const digits = BigInt(`0x${hex}`).toString(16);
  const bytes = Buffer.from(digits.length % 2 ? `0${digits}` : digits, 'hex');
  return Uint8Array.from((bytes[0] ?? 0) & 0x80 ? [0, ...bytes] : bytes).buffer;
}

function serialize(value: object): Uint8Array<ArrayBuffer> {
  return new Uint8Array(AsnConvert.serialize(value));
}

/** DER elements as one element, a SEQUENCE. */
function sequence(parts: readonly Uint8Array[], tag = { tagClass: 1, tagNumber: 16 }): Uint8Array<ArrayBuffer> {
  const block = new asn1js.Primitive({ idBlock: tag, valueHex: Uint8Array.from(Buffer.concat(parts)).buffer });
  block.idBlock.isConstructed = true;
  return new Uint8Array(block.toBER());
}
