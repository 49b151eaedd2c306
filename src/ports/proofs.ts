/** How callers of the broker prove who they are, and whether what has let them in still holds. */
import type { X509Certificate } from 'node:crypto';
import type { Caller } from '../core/caller.ts';

/** A user's connection is valid until the session ends; `expires` in milliseconds since 1970. */
export interface VerifiedSession {
  caller: Caller;
  sessionId: string;
  expires: number;
  /** Milliseconds: the connection ends when the session has not been used for so long. */
  tokenLifetime: number;
}

/** Why a secret was not accepted: unknown or wrong, or right for an entity that may not connect now (in the trash). */
export type SecretCheck =
  | { result: 'proven'; caller: Caller; generation: number }
  | { result: 'wrong' }
  | { result: 'refused' };

/** The certificate of a client, which has proven in the TLS handshake that it holds the key. */
export interface PresentedCertificate {
  own: X509Certificate;
  /** Further certificates that it sent: CAs between it and a registered one. */
  others: readonly X509Certificate[];
}

/** With what a device has proven itself: the secret of this generation, or a certificate, or the CA that vouches for it. */
export type CredentialInForce = { generation: number } | { certificateId: string };

/** A CA whose revocation list may name a certificate, and the serial number that it would have there. */
export interface Signature {
  authorityId: string;
  serialNumber: string;
}

/** What a certificate rests on. */
export interface TrustPath {
  /** What let it in: the registered certificate, and the CA that has issued it or vouches for it. */
  ids: readonly string[];
  signatures: readonly Signature[];
}

/**
 * As SecretCheck, of a certificate; `certificateId` is what let it in, it or a CA, until `expires` (milliseconds). A refusal
 * names the device where the certificate is its.
 */
export type CertificateCheck =
  | { result: 'proven'; caller: Caller; certificateId: string; ground: TrustPath; expires: number }
  | { result: 'wrong'; reason: string; deviceId?: string }
  | { result: 'refused'; reason: string; deviceId: string };

/** Checks a client's certificate against registered certificates and CAs. */
export interface CertificateChecks {
  /** Whether any certificate or CA is registered; until then clients are not asked for one. */
  areUsed(): boolean;
  /** Whether the owner is known without checking signatures. */
  isKnown(presented: PresentedCertificate): boolean;
  /** Whether a certificate, or a CA, is registered and has not expired. */
  isLive(id: string): boolean;
  /** Finds the device of a certificate, or creates it where a CA allows it. `username` is its id, or empty. */
  checkCertificate(
    presented: PresentedCertificate,
    username: string,
    address: string | undefined,
  ): Promise<CertificateCheck>;
}

/** Checks the secrets of devices and of other entities. */
export interface SecretChecks {
  check(entityId: string, secret: string, address: string): Promise<SecretCheck>;
  /** Whether this secret has been proven before and is still the one in force: at once, without a hash. */
  isProven(entityId: string, secret: string): boolean;
  /** Whether the secret of this generation still lets the entity in; it may be the previous one. */
  isInForce(entityId: string, generation: number): boolean;
}

/** Checks login sessions, and tokens that programs have, whose ids stand for sessions. */
export interface LoginChecks {
  /** Undefined when the token is not that of a live session. */
  check(jwt: string): Promise<VerifiedSession | undefined>;
  /** As check, of a token that a program has. */
  checkAccessToken(text: string, address: string | undefined): Omit<VerifiedSession, 'tokenLifetime'> | undefined;
  /** The ids of the tokens that a person or an application has made. */
  tokensOf(ownerId: string): readonly string[];
  isOpen(sessionId: string): boolean;
  /** A packet has come, or a stream is being read: the session through which the caller acts is in use. */
  noteUse(sessionId: string, accountId: string): void;
  /** Whether a session has not been used for so many milliseconds. */
  hasRested(sessionId: string, lifetime: number): boolean;
}

export interface ProofService {
  certificates: CertificateChecks;
  secrets: SecretChecks;
  logins: LoginChecks;
}
