/** Finds the device of a certificate from the TLS handshake: by fingerprint, or by a CA of the account. */

import { hash, X509Certificate } from 'node:crypto';
import type { Logger } from 'pino';
import { findEntity } from '../../../db/registry/entities.ts';
import type { AuthorityRow, CertificateRow, Registry } from '../../../db/registry/index.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { Access } from '../../access.ts';
import type { Audit } from '../../audit/index.ts';
import type { Clock } from '../../clock.ts';
import type { Fields } from '../../entity/fields.ts';
import { findLive, insert } from '../../entity/verbs.ts';
import { PlatformError } from '../../errors.ts';
import type { CertificateCheck, PresentedCertificate } from '../../ports/proofs.ts';
import { noteFirstUse } from '../credentials/first-uses.ts';
import { newDevice } from '../devices/changes.ts';
import { authorityFault, type Certificate, clientFault, isSignedBy, readCertificate } from './x509.ts';

/** CAs that may be between a registered one and a device. */
const maxIntermediates = 3;
/** Proven certificates that are remembered, so that a fleet reconnects without a signature being looked at. */
const provenKept = 100_000;
/** CAs in between that are remembered: a resumed TLS session has the device's own certificate only. */
const betweenKept = 2000;
/** Used instead of an account id for devices that do not exist yet: what CAs of different accounts have signed meets here. */
const everyAccount = 'all';
const authoritiesKept = 1000;
const maxSerialNumberLength = 255;
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
  validFrom: number;
  validTo: number;
}

/** The presented certificates, and the device that may be created from them. */
interface Claim {
  deviceId: string;
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

type Needed = {
  registry: Registry;
  access: Access;
  clock: Clock;
  audit: Audit;
  fields: Fields;
  log: Logger;
  /** Throws 507 when the account, or the disk, has no room for another device. */
  keeping: { demandRoom(accountId: string): void };
};

export class ClientCertificates {
  readonly #ctx: Needed;
  /** Grounds by fingerprint, of certificates that a CA of their device's account has vouched for. */
  readonly #proven = boundedCache<string, Ground>(provenKept);
  /** By account and subject: names are anybody's to choose. */
  readonly #between = boundedCache<string, Certificate>(betweenKept);
  readonly #authorities = boundedCache<string, Certificate>(authoritiesKept);

  /** When what was said of refusals began, and what was. */
  readonly #said = new Set<string>();
  #saidSince = Number.NEGATIVE_INFINITY;

  constructor(ctx: Needed) {
    this.#ctx = ctx;
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
    const grounds = this.#groundsOf(certificate, presented.others, authority.accountId);
    const ground = grounds.find((one) => one.authority.id === authorityId)?.ground;
    if (!ground) return { refused: 'no certificate of the CA' };
    if (!this.#isValid(ground)) return { refused: 'the certificate, or its CA, is not valid now' };
    const { subject, fingerprint, x509 } = certificate;
    const serialNumber = attributeOf(x509, authority.serialNumberAttribute);
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
    const { deviceId, accountId, ground, since = Number.NEGATIVE_INFINITY, maker } = claim;
    if (username !== '' && username !== deviceId && username !== accountId)
      return wrong('the certificate is that of another device');
    const now = clock.now();
    if (now < ground.validFrom) return wrong('the certificate, or its CA, is not valid yet', deviceId);
    if (now >= ground.validTo) return wrong('the certificate, or its CA, has expired', deviceId);
    if (certificate.validFrom < since)
      return refused('the certificate begins before the hardware was replaced: issue a new one', deviceId);
    if (maker && !(await this.#makeDevice(maker, certificate, deviceId, address)))
      return refused('the CA may not make this device', deviceId);
    const device = access.placement(deviceId);
    if (device?.deleted !== null) return refused('the entity may not connect now', deviceId);
    const caller = { kind: 'device', id: device.id, accountId: device.accountId } as const;
    const { id, issuerId, validTo } = ground;
    const basis = { ids: issuerId === undefined ? [id] : [id, issuerId], signatures: [] };
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
    const { commonName = '', fingerprint } = certificate;
    const registered = registry.certificates(fingerprint);
    const named = uuid.test(commonName) ? access.placement(commonName) : undefined;
    if (named && !registered.some(({ accountId }) => accountId === named.accountId)) {
      const ground =
        this.#provenIn(named.accountId, fingerprint) ?? this.#groundIn(named.accountId, certificate, others);
      if (ground) {
        this.#proven.set(fingerprint, ground);
        return { deviceId: named.id, accountId: named.accountId, ground, since: this.#replacedAt(named.id) };
      }
    }
    const isNew = !named && uuid.test(commonName);
    const made = isNew ? this.#claimOfNew(certificate, commonName, others, username) : undefined;
    if (registered.length === 0) return made;
    const isMeant = registered.some(({ accountId, entityId }) => username === entityId || username === accountId);
    if (!made || isMeant) return claimOfRegistered(certificate, registered, username);
    if (made === 'ambiguous') return made;
    if (registered.every(({ accountId }) => accountId === made.accountId))
      return claimOfRegistered(certificate, registered, username);
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
    const all = this.#groundsOf(certificate, others, undefined);
    const accountIds = new Set(all.map(({ authority }) => authority.accountId));
    if (accountIds.size > 1 && !accountIds.has(username)) return 'ambiguous';
    const [accountId = ''] = accountIds.has(username) ? [username] : accountIds;
    const makers = all.filter(({ authority }) => authority.accountId === accountId && authority.createDevices === 1);
    const chosen = makers.find(({ ground }) => this.#isValid(ground)) ?? makers[0];
    return chosen && { deviceId, accountId, ground: chosen.ground, maker: chosen.authority };
  }

  /** Looked up at every connection, also for what has been proven before. Certificates begin with a whole second. */
  #replacedAt(deviceId: string): number | undefined {
    const replaced = this.#ctx.registry.replacedAt(deviceId);
    return replaced === undefined ? undefined : Math.floor(Date.parse(replaced) / 1000) * 1000;
  }

  /** A CA of the account that vouches for the certificate of its device; a valid one if there is one. */
  #groundIn(accountId: string, certificate: Certificate, others: readonly X509Certificate[]): Ground | undefined {
    const grounds = this.#groundsOf(certificate, others, accountId).map(({ ground }) => ground);
    return grounds.find((ground) => this.#isValid(ground)) ?? grounds[0];
  }

  #provenIn(accountId: string, fingerprint: string): Ground | undefined {
    const ground = this.#provenGround(fingerprint);
    return ground?.accountId === accountId ? ground : undefined;
  }

  /** The cached result for a certificate, while it is valid. */
  #provenGround(fingerprint: string): Ground | undefined {
    const ground = this.#proven.get(fingerprint);
    return ground && this.#isValid(ground) && this.isLive(ground.id) ? ground : undefined;
  }

  #isValid({ validFrom, validTo }: Ground): boolean {
    const now = this.#ctx.clock.now();
    return now >= validFrom && now < validTo;
  }

  /** The registered CAs that vouch for a certificate, of one account or of all: those that came first first. */
  #groundsOf(
    certificate: Certificate,
    others: readonly X509Certificate[],
    accountId: string | undefined,
  ): Array<{ authority: AuthorityRow; ground: Ground }> {
    if (clientFault(certificate) !== undefined) return [];
    const found: Array<{ authority: AuthorityRow; ground: Ground }> = [];
    const chain = [certificate];
    for (let last: Certificate | undefined = certificate; last; ) {
      for (const authority of this.#ctx.registry.authoritiesNamed(last.issuer)) {
        if (accountId !== undefined && authority.accountId !== accountId) continue;
        const ca = this.#certificateOf(authority);
        if (!vouches(ca, chain)) continue;
        const all = [ca, ...chain];
        const validFrom = Math.max(...all.map((one) => one.validFrom));
        const validTo = Math.min(...all.map((one) => one.validTo));
        const { id, accountId: owner } = authority;
        found.push({ authority, ground: { id, accountId: owner, validFrom, validTo } });
        for (const between of chain.slice(1))
          for (const seenBy of [authority.accountId, everyAccount])
            this.#between.set(`${seenBy} ${between.subject}`, between);
      }
      last = chain.length > maxIntermediates ? undefined : this.#issuerOf(last, others, accountId);
      if (last) chain.push(last);
    }
    return found.sort((one, other) => (one.authority.id < other.authority.id ? -1 : 1));
  }

  /** Possible issuers of a certificate, by name: among those that were sent, or seen before. */
  #issuerOf(
    { x509, issuer, subject }: Certificate,
    others: readonly X509Certificate[],
    accountId = everyAccount,
  ): Certificate | undefined {
    if (issuer === subject) return undefined;
    const sent = others.find((other) => x509.checkIssued(other));
    return (sent && readable(sent)) ?? this.#between.get(`${accountId} ${issuer}`);
  }

  #certificateOf({ id, certificate: pem }: AuthorityRow): Certificate {
    const known = this.#authorities.get(id);
    if (known) return known;
    const certificate = readCertificate(new X509Certificate(pem));
    this.#authorities.set(id, certificate);
    return certificate;
  }

  /** Makes the device of a first connection, once however many come at once; false when the CA may not. */
  async #makeDevice(
    { id, accountId }: AuthorityRow,
    { commonName, serialNumber, fingerprint }: Certificate,
    deviceId: string,
    address: string | undefined,
  ): Promise<boolean> {
    const { registry, access, clock, audit, fields, log, keeping } = this.#ctx;
    try {
      await registry.transaction(async (tx) => {
        if (await findEntity(tx, 'devices', deviceId)) return;
        keeping.demandRoom(accountId);
        const authority = await findLive(tx, 'certificateAuthorities', accountId, id);
        if (authority?.createDevices !== 1) throw new PlatformError('notFound');
        const { deviceTemplateId, organizationId } = authority;
        const template = deviceTemplateId && (await findLive(tx, 'deviceTemplates', accountId, deviceTemplateId));
        if (!template)
          throw new PlatformError('unknownReference', { message: 'The template of the CA no longer exists.' });
        if (organizationId !== null && !(await findLive(tx, 'organizations', accountId, organizationId)))
          throw new PlatformError('unknownReference', { message: 'The organization of the CA no longer exists.' });
        // Anyone who names a principal of another kind would speak in its name, here or in another account.
        for (const table of ['endUsers', 'accountUsers', 'applications', 'identities', 'accounts'] as const) {
          const taken = tx.selectFrom(table).select('id').where('id', '=', deviceId);
          if (await taken.executeTakeFirst()) throw new PlatformError('notUnique');
        }
        // It has proven that it is there.
        const place = { deviceTemplateId: template.id, organizationId, provisioningState: 'activated' };
        const body = { serialNumber: (serialNumber || commonName || deviceId).slice(0, maxSerialNumberLength) };
        await insert(tx, 'devices', { ...newDevice({ clock, fields }, { id, accountId }, place, body), id: deviceId });
        await audit.record(tx, {
          event: 'deviceCreatedByCertificate',
          outcome: 'success',
          accountId,
          target: { kind: 'device', id: deviceId },
          address,
          details: { certificateAuthorityId: id, fingerprint },
        });
      });
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error;
      const { message, details } = error;
      log.warn({ certificateAuthorityId: id, deviceId, message, details }, 'a CA could not make a device');
      return false;
    }
    access.deviceChanged(deviceId);
    return true;
  }
}

/** The device of a registered certificate; of several accounts, the one that the username names, or the CN. */
function claimOfRegistered(
  certificate: Certificate,
  registered: readonly CertificateRow[],
  username: string,
): Claim | 'ambiguous' | undefined {
  const meant = registered.find(({ accountId, entityId }) => username === entityId || username === accountId);
  const named = registered.find(({ entityId }) => entityId === certificate.commonName);
  if (!meant && !named && registered.length > 1 && username === '') return 'ambiguous';
  const chosen = meant ?? named ?? registered[0];
  if (!chosen) return undefined;
  const { id, accountId, entityId, certificateAuthorityId } = chosen;
  const { validFrom, validTo } = certificate;
  const issuerId = certificateAuthorityId ?? undefined;
  return { deviceId: entityId, accountId, ground: { id, accountId, issuerId, validFrom, validTo } };
}

/** Whether a CA has signed the last of a chain, and each of it the one before; those after the first must be CAs. */
function vouches(ca: Certificate, chain: readonly Certificate[]): boolean {
  let signer = ca;
  if (authorityFault(ca, chain.length - 1) !== undefined) return false;
  // From the CA down, so that no key is used before somebody who is trusted has signed it.
  for (let at = chain.length - 1; at >= 0; at -= 1) {
    const signed = chain[at];
    if (!signed || !isSignedBy(signed, signer)) return false;
    if (at > 0 && authorityFault(signed, at - 1) !== undefined) return false;
    signer = signed;
  }
  return true;
}

function readable(x509: X509Certificate): Certificate | undefined {
  try {
    return readCertificate(x509);
  } catch {
    return undefined;
  }
}

/** The value of an attribute of the subject; undefined when it has none, or several. */
function attributeOf(x509: X509Certificate, name: string): string | undefined {
  const { subject } = x509.toLegacyObject() as unknown as { subject?: Record<string, string | string[]> };
  const value = subject?.[name];
  return typeof value === 'string' ? value : undefined;
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
