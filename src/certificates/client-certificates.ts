/** Finds the device of a certificate from the TLS handshake: by fingerprint, or by a CA of the account. */

import { hash, type X509Certificate } from 'node:crypto';
import type { AuthorityRow, CertificateRow } from '../../db/registry/index.ts';
import { boundedCache } from '../../db/sqlite/cache.ts';
import { normalizeSerialNumber } from '../core/formats/serial-numbers.ts';
import { canonicalId } from '../core/ids.ts';
import type { CertificateCheck, PresentedCertificate, Signature } from '../ports/proofs.ts';
import { noteFirstUse } from '../registry/credentials/first-uses.ts';
import { Chains, everyAccount, type Vouched } from './chains.ts';
import { type MakingContext, makeDevice } from './devices-of-authorities.ts';
import { revocationFault } from './revoked.ts';
import { attributeOf, type Certificate, readable } from './x509.ts';

/** Proven certificates that are remembered, so that a fleet reconnects without a signature being looked at. */
const provenKept = 100_000;
/** Milliseconds between two lines of the log about the same refusal, and lines about all of them in that time. */
const sayEvery = 60_000;
const maxReported = 20;

/** As entities' ids are written; the nil UUID and similar ones are not ids. */
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Why a certificate is accepted, and until when (milliseconds): it is registered, or issued below a CA. */
interface Ground {
  /** The id of the certificate, or of the CA, and whose it is. */
  id: string;
  accountId: string;
  /** The CA that has issued it here. */
  issuerId?: string | undefined;
  /** What CAs of the account have signed of it and above it: their revocation lists may name that. */
  signatures: readonly Signature[];
  /** The serial number by which it names its device, where it does not by its id. */
  serialNumber?: string | undefined;
  validFrom: number;
  validTo: number;
}

/** The presented certificates, and the device that may be created from them. */
interface Claim {
  deviceId: string;
  /** Why there is no such device, though the certificate is good; `deviceId` may be one of those that it could be. */
  fault?: string | undefined;
  accountId: string;
  ground: Ground;
  /** Milliseconds, of what a CA has issued: when it begins earlier, it is that of hardware that was replaced. */
  since?: number | undefined;
  maker?: AuthorityRow;
}

/** A manufacturer's certificate that a CA vouches for. */
export interface IssuedCertificate {
  subject: string;
  fingerprint: string;
  /** The attribute of the subject that the CA names. */
  serialNumber: string;
  /** Hex SHA-256 of the SubjectPublicKeyInfo. */
  publicKeyHash: string;
}

export class ClientCertificates {
  readonly #ctx: MakingContext;
  readonly #chains: Chains;
  /** Grounds by fingerprint, of certificates that a CA of their device's account has vouched for. */
  readonly #proven = boundedCache<string, Ground & { round: number }>(provenKept);
  /** What CAs of an account have signed of certificates that are registered themselves, by account and fingerprint. */
  readonly #signed = boundedCache<string, readonly Signature[]>(provenKept);
  /** CAs of an account that were registered since the start; what is remembered is of one round. */
  readonly #rounds = new Map<string, number>();

  /** When what was said of refusals began, and what was. */
  readonly #said = new Set<string>();
  #saidSince = Number.NEGATIVE_INFINITY;

  constructor(ctx: MakingContext) {
    this.#ctx = ctx;
    this.#chains = new Chains(ctx.registry);
  }

  /** A CA of the account is new, or says something else of its certificates: what is remembered is found out anew. */
  authorityChanged(accountId: string): void {
    for (const id of [accountId, everyAccount]) this.#rounds.set(id, this.#roundOf(id) + 1);
  }

  #roundOf(accountId: string): number {
    return this.#rounds.get(accountId) ?? 0;
  }

  /** Whether any certificate or CA is registered: before that nobody is asked for one. */
  areUsed(): boolean {
    return this.#ctx.registry.hasCertificates();
  }

  /** Whether it can be said whose this is without looking at signatures. */
  isKnown({ own }: PresentedCertificate): boolean {
    const fingerprint = fingerprintOf(own);
    return this.#ctx.registry.certificates(fingerprint).length > 0 || this.#provenGround(fingerprint) !== undefined;
  }

  /** Whether a certificate, or a CA, is registered and has not expired. */
  isLive(id: string): boolean {
    const { registry, clock } = this.#ctx;
    const validTo = registry.validityOf(id);
    return validTo !== undefined && Date.parse(validTo) > clock.now();
  }

  /**
   * Whose certificate it is; the client has proven in the handshake that it holds its key. `username` is the id of the
   * device or of its account, or empty. Makes the device where a CA says so; `address` is for the audit record.
   */
  async checkCertificate(
    presented: PresentedCertificate,
    username: string,
    address: string | undefined,
  ): Promise<CertificateCheck> {
    const answer = await this.#decide(presented, username, address);
    if (answer.result === 'proven') await noteFirstUse(this.#ctx, answer.caller.id);
    else this.#logRefusal(answer.reason, fingerprintOf(presented.own), answer.deviceId, address);
    return answer;
  }

  /** What a manufacturer's certificate says when this CA vouches for it now, as it would at CONNECT; otherwise why it does not. */
  checkIssuedBy(presented: PresentedCertificate, authorityId: string): IssuedCertificate | { refused: string } {
    const certificate = readable(presented.own);
    const authority = this.#ctx.registry.entity('certificateAuthorities', authorityId);
    if (!certificate || authority?.deleted !== null) return { refused: 'no certificate of the CA' };
    const all = this.#chains.vouching(certificate, presented.others, authority.accountId);
    const vouched = all.find((one) => one.authority.id === authorityId);
    if (!vouched) return { refused: 'no certificate of the CA' };
    if (!this.#isValid(vouched)) return { refused: 'the certificate, or its CA, is not valid now' };
    const revoked = revocationFault(this.#ctx, this.#signaturesOf(all));
    if (revoked !== undefined) return { refused: revoked };
    const { subject, fingerprint, x509 } = certificate;
    const serialNumber = normalizeSerialNumber(attributeOf(x509, authority.serialNumberAttribute) ?? '');
    if (!serialNumber) return { refused: `the certificate has no ${authority.serialNumberAttribute}, or several` };
    const key = x509.publicKey.export({ type: 'spki', format: 'der' });
    return { subject, fingerprint, serialNumber, publicKeyHash: hash('sha256', key, 'hex') };
  }

  /** Tells the operator why; a flood of refusals is no flood of lines. */
  #logRefusal(reason: string, fingerprint: string, deviceId: string | undefined, address: string | undefined): void {
    const now = this.#ctx.clock.now();
    if (now - this.#saidSince >= sayEvery) {
      this.#said.clear();
      this.#saidSince = now;
    }
    const what = `${fingerprint} ${reason}`;
    if (this.#said.has(what) || this.#said.size >= maxReported) return;
    this.#said.add(what);
    this.#ctx.log.warn({ reason, fingerprint, deviceId, address }, 'a client certificate was refused');
  }

  async #decide(
    presented: PresentedCertificate,
    username: string,
    address: string | undefined,
  ): Promise<CertificateCheck> {
    const { access, clock } = this.#ctx;
    const certificate = readable(presented.own);
    const claim = certificate && this.#claimOf(certificate, presented.others, username);
    if (!certificate || !claim) return wrong('unknown certificate');
    if (claim === 'ambiguous')
      return wrong(
        'several accounts have this certificate or its CA: send the id of the device or of its account as username',
      );
    const { deviceId, accountId, fault, ground, since = Number.NEGATIVE_INFINITY, maker } = claim;
    const isNamed = username === '' || username === accountId;
    if (!isNamed && ground.serialNumber !== undefined)
      return wrong('the certificate names a serial number: send the id of the account as username, or none');
    if (!isNamed && username !== deviceId) return wrong('the certificate is that of another device');
    const now = clock.now();
    if (now < ground.validFrom) return wrong('the certificate, or its CA, is not valid yet', deviceId);
    if (now >= ground.validTo) return wrong('the certificate, or its CA, has expired', deviceId);
    if (certificate.validFrom < since)
      return refused('the certificate begins before the hardware was replaced: issue a new one', deviceId);
    const revoked = revocationFault(this.#ctx, ground.signatures);
    if (revoked !== undefined) return wrong(revoked, deviceId);
    if (fault !== undefined) return deviceId === '' ? wrong(fault) : refused(fault, deviceId);
    if (maker && !(await makeDevice(this.#ctx, maker, certificate, deviceId, address)))
      return refused('the CA may not make this device', deviceId);
    const device = access.placement(deviceId);
    if (device?.deleted !== null) return refused('the entity may not connect now', deviceId);
    const caller = { kind: 'device', id: device.id, accountId: device.accountId } as const;
    const { id, issuerId, validTo, signatures } = ground;
    const basis = { ids: issuerId === undefined ? [id] : [id, issuerId], signatures };
    return { result: 'proven', caller, certificateId: id, ground: basis, expires: validTo };
  }

  /**
   * Certificates and CAs are public, so several accounts may have registered one. The device that the CN names decides,
   * where a CA of its account has signed it; then the username, the id of a device or of an account.
   */
  #claimOf(
    certificate: Certificate,
    others: readonly X509Certificate[],
    username: string,
  ): Claim | 'ambiguous' | undefined {
    const { registry, access } = this.#ctx;
    const { fingerprint } = certificate;
    const commonName = canonicalId(certificate.commonName ?? '');
    const registered = registry.certificates(fingerprint);
    const named = uuid.test(commonName) ? access.placement(commonName) : undefined;
    if (named && !registered.some(({ accountId }) => accountId === named.accountId)) {
      const ground =
        this.#provenIn(named.accountId, fingerprint) ?? this.#groundIn(named.accountId, certificate, others);
      if (ground) {
        this.#remember(certificate, ground);
        return { deviceId: named.id, accountId: named.accountId, ground, since: this.#replacedAt(named.id) };
      }
    }
    const isNew = !named && uuid.test(commonName);
    const made =
      (isNew ? this.#claimOfNew(certificate, commonName, others, username) : undefined) ??
      this.#claimOfSerialNumber(certificate, others, username);
    if (registered.length === 0) return made;
    const isMeant = registered.some(({ accountId, entityId }) => username === entityId || username === accountId);
    if (!made || isMeant) return this.#claimOfRegistered(certificate, registered, username);
    if (made === 'ambiguous') return made;
    if (registered.every(({ accountId }) => accountId === made.accountId))
      return this.#claimOfRegistered(certificate, registered, username);
    // Somebody else has registered what a CA has issued for a device that is still to come.
    return username === commonName || username === made.accountId ? made : 'ambiguous';
  }

  /** A device that is not there yet: the account that has the CA, or, of several, the one that the username names. */
  #claimOfNew(
    certificate: Certificate,
    deviceId: string,
    others: readonly X509Certificate[],
    username: string,
  ): Claim | 'ambiguous' | undefined {
    const all = this.#chains.vouching(certificate, others, undefined);
    const accountIds = new Set(all.map(({ authority }) => authority.accountId));
    if (accountIds.size > 1 && !accountIds.has(username)) return 'ambiguous';
    const [accountId = ''] = accountIds.has(username) ? [username] : accountIds;
    const ofAccount = all.filter(({ authority }) => authority.accountId === accountId);
    const makers = ofAccount.filter(({ authority }) => authority.createDevices === 1 && authority.identity === 'id');
    const chosen = makers.find((one) => this.#isValid(one)) ?? makers[0];
    return chosen && { deviceId, accountId, ground: this.#groundOf(chosen, ofAccount), maker: chosen.authority };
  }

  /** A device that a certificate names by its serial number: in the account that has the CA, or that the username names. */
  #claimOfSerialNumber(
    certificate: Certificate,
    others: readonly X509Certificate[],
    username: string,
  ): Claim | 'ambiguous' | undefined {
    const known = this.#provenGround(certificate.fingerprint);
    const all = known?.serialNumber === undefined ? this.#groundsOfSerialNumber(certificate, others) : [known];
    const accountIds = new Set(all.map(({ accountId }) => accountId));
    if (accountIds.size > 1 && !accountIds.has(username)) return 'ambiguous';
    const ofAccount = accountIds.has(username) ? all.filter(({ accountId }) => accountId === username) : all;
    const ground = ofAccount.find((one) => this.#isValid(one)) ?? ofAccount[0];
    if (!ground) return undefined;
    const { accountId, serialNumber = '' } = ground;
    if (accountIds.size === 1) this.#remember(certificate, ground);
    const [deviceId = '', another] = this.#ctx.registry.devicesWithSerialNumber(accountId, serialNumber);
    if (deviceId === '')
      return { deviceId, accountId, ground, fault: 'no device has the serial number of the certificate' };
    if (another !== undefined)
      return { deviceId, accountId, ground, fault: 'several devices have the serial number of the certificate' };
    return { deviceId, accountId, ground, since: this.#replacedAt(deviceId) };
  }

  /** What CAs whose certificates name serial numbers give to a certificate. */
  #groundsOfSerialNumber(certificate: Certificate, others: readonly X509Certificate[]): Ground[] {
    const naming = this.#chains.vouching(certificate, others, undefined, ({ identity }) => identity === 'serialNumber');
    return naming.flatMap((vouched) => {
      const { accountId, serialNumberAttribute } = vouched.authority;
      const serialNumber = normalizeSerialNumber(attributeOf(certificate.x509, serialNumberAttribute) ?? '');
      if (!serialNumber) return [];
      return [{ ...this.#groundOf(vouched, this.#chains.vouching(certificate, others, accountId)), serialNumber }];
    });
  }

  #remember({ fingerprint }: Certificate, ground: Ground): void {
    this.#proven.set(fingerprint, { ...ground, round: this.#roundOf(meetingIn(ground)) });
  }

  /** The device of a registered certificate; of several accounts, the one that the username names, or the CN. */
  #claimOfRegistered(
    certificate: Certificate,
    registered: readonly CertificateRow[],
    username: string,
  ): Claim | 'ambiguous' | undefined {
    const meant = registered.find(({ accountId, entityId }) => username === entityId || username === accountId);
    const named = registered.find(({ entityId }) => entityId === canonicalId(certificate.commonName ?? ''));
    if (!meant && !named && registered.length > 1 && username === '') return 'ambiguous';
    const chosen = meant ?? named ?? registered[0];
    if (!chosen) return undefined;
    const { id, accountId, entityId, certificateAuthorityId } = chosen;
    const { validFrom, validTo } = certificate;
    const signatures = this.#signaturesIn(chosen, certificate);
    const issuerId = certificateAuthorityId ?? undefined;
    return { deviceId: entityId, accountId, ground: { id, accountId, issuerId, validFrom, validTo, signatures } };
  }

  /** What a CA gives to a certificate; all that vouch may revoke it. */
  #groundOf({ authority, validFrom, validTo }: Vouched, all: readonly Vouched[]): Ground {
    const { id, accountId } = authority;
    return { id, accountId, validFrom, validTo, signatures: this.#signaturesOf(all) };
  }

  #signaturesOf(all: readonly Vouched[]): Signature[] {
    return all.flatMap(({ authority, serial }) => [
      { authorityId: authority.id, serialNumber: serial },
      ...this.#chains.above(authority),
    ]);
  }

  /** A registered certificate may be one of a CA of its account, too, which can revoke it; so may the CA that has issued it here. */
  #signaturesIn({ accountId, certificateAuthorityId }: CertificateRow, certificate: Certificate): readonly Signature[] {
    const key = `${accountId} ${this.#roundOf(accountId)} ${certificate.fingerprint}`;
    const known = this.#signed.get(key);
    if (known) return known;
    const issuer =
      certificateAuthorityId === null
        ? undefined
        : this.#ctx.registry.entity('certificateAuthorities', certificateAuthorityId);
    const signatures = issuer
      ? this.#chains.above(issuer)
      : this.#signaturesOf(this.#chains.vouching(certificate, [], accountId));
    this.#signed.set(key, signatures);
    return signatures;
  }

  /** Looked up at every connection, also for what has been proven before. Certificates begin with a whole second. */
  #replacedAt(deviceId: string): number | undefined {
    const replaced = this.#ctx.registry.replacedAt(deviceId);
    return replaced === undefined ? undefined : Math.floor(Date.parse(replaced) / 1000) * 1000;
  }

  /** A CA of the account that vouches for the certificate of its device; a valid one if there is one. */
  #groundIn(accountId: string, certificate: Certificate, others: readonly X509Certificate[]): Ground | undefined {
    const all = this.#chains.vouching(certificate, others, accountId);
    const naming = all.filter(({ authority }) => authority.identity === 'id');
    const chosen = naming.find((one) => this.#isValid(one)) ?? naming[0];
    return chosen && this.#groundOf(chosen, all);
  }

  #provenIn(accountId: string, fingerprint: string): Ground | undefined {
    const ground = this.#provenGround(fingerprint);
    return ground?.accountId === accountId && ground.serialNumber === undefined ? ground : undefined;
  }

  /** The cached result for a certificate, while it is valid. */
  #provenGround(fingerprint: string): Ground | undefined {
    const ground = this.#proven.get(fingerprint);
    if (!ground || ground.round !== this.#roundOf(meetingIn(ground))) return undefined;
    return this.#isValid(ground) && this.isLive(ground.id) ? ground : undefined;
  }

  #isValid({ validFrom, validTo }: Pick<Ground, 'validFrom' | 'validTo'>): boolean {
    const now = this.#ctx.clock.now();
    return now >= validFrom && now < validTo;
  }
}

/** Whose CAs decide of a ground: of serial numbers those of all accounts do, for any may have the same CA. */
function meetingIn({ accountId, serialNumber }: Ground): string {
  return serialNumber === undefined ? accountId : everyAccount;
}

function fingerprintOf(x509: X509Certificate): string {
  return x509.fingerprint256.replaceAll(':', '').toLowerCase();
}

function wrong(reason: string, deviceId?: string): CertificateCheck {
  return { result: 'wrong', reason, ...(deviceId !== undefined && { deviceId }) };
}

function refused(reason: string, deviceId: string): CertificateCheck {
  return { result: 'refused', reason, deviceId };
}
