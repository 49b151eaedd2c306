/** Makes keys and certificates for tests, as factories and secure elements do. */
import { KeyObject, webcrypto } from 'node:crypto';
import './reflection.ts';
import * as x509 from '@peculiar/x509';
import type { Service } from './service.ts';

x509.cryptoProvider.set(webcrypto as never);

const day = 24 * 60 * 60_000;

type KeyKind = webcrypto.EcKeyGenParams | webcrypto.RsaHashedKeyGenParams;
export const curve = (namedCurve: string, hash = 'SHA-256') => ({ name: 'ECDSA', namedCurve, hash });
export const rsa = (modulusLength: number, hash = 'SHA-256', name = 'RSASSA-PKCS1-v1_5') => {
  const publicExponent = new Uint8Array([1, 0, 1]);
  // A salt as long as SHA-256's, for RSA-PSS.
  return { name, hash, publicExponent, modulusLength, saltLength: 32 };
};

/** A certificate and its key, as PEM, and what signs with it. */
export interface Made {
  cert: string;
  key: string;
  fingerprint: string;
  signer: { subject: string; keys: webcrypto.CryptoKeyPair; kind: KeyKind };
}

export interface Wanted {
  subject?: string;
  /** Who signs it; without one it is self-signed. */
  issuer?: Made;
  ca?: boolean;
  /** How many CAs may follow. */
  pathLength?: number;
  keyUsage?: x509.KeyUsageFlags;
  extendedKeyUsage?: string[];
  more?: x509.Extension[];
  /** Milliseconds since 1970. */
  from?: number;
  to?: number;
  kind?: KeyKind;
  /** Whose keys it has; new ones when absent. */
  keysOf?: Made;
}

export async function makeCertificate(wanted: Wanted = {}): Promise<Made> {
  const { subject = 'CN=device', issuer, from = Date.now() - day, to = Date.now() + 90 * day } = wanted;
  const kind = wanted.keysOf?.signer.kind ?? wanted.kind ?? curve('P-256');
  const keys = wanted.keysOf?.signer.keys ?? (await webcrypto.subtle.generateKey(kind, true, ['sign', 'verify']));
  const signer = issuer?.signer ?? { subject, keys, kind };
  const extensions = [...(wanted.more ?? [])];
  if (wanted.ca) extensions.push(new x509.BasicConstraintsExtension(true, wanted.pathLength, true));
  if (wanted.keyUsage !== undefined) extensions.push(new x509.KeyUsagesExtension(wanted.keyUsage, true));
  if (wanted.extendedKeyUsage) extensions.push(new x509.ExtendedKeyUsageExtension(wanted.extendedKeyUsage));
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: Buffer.from(webcrypto.getRandomValues(new Uint8Array(8))).toString('hex'),
    subject,
    issuer: signer.subject,
    notBefore: new Date(from),
    notAfter: new Date(to),
    signingAlgorithm: signer.kind,
    publicKey: keys.publicKey,
    signingKey: signer.keys.privateKey,
    extensions,
  });
  return {
    cert: `${certificate.toString('pem')}\n`,
    key: String(KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })),
    fingerprint: Buffer.from(await certificate.getThumbprint('SHA-256')).toString('hex'),
    signer: { subject, keys, kind },
  };
}

/** A CA; its name has a comma in it. */
export const makeAuthority = (wanted: Wanted = {}): Promise<Made> =>
  makeCertificate({ subject: 'O="Acme, Inc", CN=Factory', ca: true, ...wanted });

/** What a revocation list has besides its issuer; `number` null leaves it out. Times in milliseconds since 1970. */
export interface WantedList {
  number?: number | bigint | null;
  revoked?: Made[];
  from?: number;
  to?: number;
  more?: x509.Extension[];
}

/** The revocation list of a CA, DER. */
export async function makeList({ signer }: Made, wanted: WantedList = {}): Promise<Buffer> {
  const { number = 1, revoked = [], from = Date.now() - 60_000, to = Date.now() + day, more = [] } = wanted;
  const digits = (number ?? 0).toString(16);
  const content = Buffer.from(`00${digits.length % 2 ? '0' : ''}${digits}`, 'hex');
  const der = Buffer.concat([Buffer.from([2, content.length]), content]);
  const list = await x509.X509CrlGenerator.create({
    issuer: signer.subject,
    thisUpdate: new Date(from),
    nextUpdate: new Date(to),
    entries: revoked.map(({ cert }) => ({ serialNumber: new x509.X509Certificate(cert).serialNumber })),
    extensions: [...(number === null ? [] : [new x509.Extension('2.5.29.20', false, der)]), ...more],
    signingAlgorithm: signer.kind,
    signingKey: signer.keys.privateKey,
  });
  return Buffer.from(list.rawData);
}

/** What shows that somebody holds the key of a CA. */
export const makeProof = (issuer: Made, challenge: string): Promise<Made> =>
  makeCertificate({ subject: `CN=${challenge}`, issuer });

/** Registers a CA and proves that its key is there. */
export async function registerAuthority(service: Service, made: Made, body: object = {}, token = service.admin) {
  const path = '/access/certificate-authorities';
  const all = { name: made.fingerprint, certificate: made.cert, ...body };
  const { id, challenge } = await service.create(path, 'certificateAuthority', all, token);
  const { cert } = await makeProof(made, challenge);
  const proof = { token, body: { certificate: cert } };
  return (await service.ok('POST', `/api/v1${path}/${id}/proof`, proof)).certificateAuthority;
}

export const { KeyUsageFlags, Extension } = x509;
