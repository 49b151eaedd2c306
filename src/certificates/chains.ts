/** Which registered CAs vouch for a certificate: chains up to them, with CAs in between that were sent or seen before. */
import { X509Certificate } from 'node:crypto';
import { comparableName } from '../../db/registry/distinguished-names.ts';
import type { AuthorityRow, Registry } from '../../db/registry/index.ts';
import { boundedCache } from '../../db/sqlite/cache.ts';
import type { Signature } from '../ports/proofs.ts';
import { authorityFault, type Certificate, clientFault, isSignedBy, readable, readCertificate } from './x509.ts';

/** CAs that may be between a registered one and a device. */
const maxIntermediates = 3;
/** CAs in between that are remembered: a resumed TLS session has the device's own certificate only. */
const betweenKept = 2000;
/** Used instead of an account id for devices that do not exist yet: what CAs of different accounts have signed meets here. */
export const everyAccount = 'all';
const authoritiesKept = 1000;

/** A CA that vouches for a certificate, and the time in which it does (milliseconds). */
export interface Vouched {
  authority: AuthorityRow;
  validFrom: number;
  validTo: number;
  /** Of the certificate that the CA itself has signed: this one, or that of a CA in between. */
  serial: string;
}

export class Chains {
  readonly #registry: Pick<Registry, 'authoritiesNamed'>;
  /** By account and subject: names are anybody's to choose. */
  readonly #between = boundedCache<string, Certificate>(betweenKept);
  readonly #authorities = boundedCache<string, Certificate>(authoritiesKept);

  constructor(registry: Pick<Registry, 'authoritiesNamed'>) {
    this.#registry = registry;
  }

  /** The registered CAs that vouch for a certificate, of one account or of all, and of one kind: those that came first first. */
  vouching(
    certificate: Certificate,
    others: readonly X509Certificate[],
    accountId: string | undefined,
    isWanted: (authority: AuthorityRow) => boolean = () => true,
  ): Vouched[] {
    const found: Vouched[] = [];
    // Looking at its key takes longer than all the rest: only for a CA that it names.
    let isFit: boolean | undefined;
    const chain = [certificate];
    for (let last: Certificate | undefined = certificate; last; ) {
      for (const authority of this.#registry.authoritiesNamed(last.issuer)) {
        if ((accountId !== undefined && authority.accountId !== accountId) || !isWanted(authority)) continue;
        isFit ??= clientFault(certificate) === undefined;
        if (!isFit) return [];
        const ca = this.#certificateOf(authority);
        if (!vouches(ca, chain)) continue;
        const all = [ca, ...chain];
        const validFrom = Math.max(...all.map((one) => one.validFrom));
        const validTo = Math.min(...all.map((one) => one.validTo));
        found.push({ authority, validFrom, validTo, serial: last.serial });
        for (const between of chain.slice(1))
          for (const seenBy of [authority.accountId, everyAccount])
            this.#between.set(`${seenBy} ${comparableName(between.subject)}`, between);
      }
      last = chain.length > maxIntermediates ? undefined : this.#issuerOf(last, others, accountId);
      if (last) chain.push(last);
    }
    return found.sort((one, other) => (one.authority.id < other.authority.id ? -1 : 1));
  }

  /**
   * What registered CAs of an account have signed of a CA and of those above it: a device need not send the certificate of a
   * CA that is registered.
   */
  above(authority: AuthorityRow): Signature[] {
    const signatures: Signature[] = [];
    let below: Certificate | undefined = this.#certificateOf(authority);
    for (let step = 0; below && step < maxIntermediates && below.issuer !== below.subject; step += 1) {
      const signed: Certificate = below;
      const signers = this.#registry
        .authoritiesNamed(signed.issuer)
        .filter((one) => one.accountId === authority.accountId && isSignedBy(signed, this.#certificateOf(one)));
      signatures.push(...signers.map(({ id }) => ({ authorityId: id, serialNumber: signed.serial })));
      below = signers[0] && this.#certificateOf(signers[0]);
    }
    return signatures;
  }

  /** Possible issuers of a certificate, by name: among those that were sent, or seen before. */
  #issuerOf(
    { x509, issuer, subject }: Certificate,
    others: readonly X509Certificate[],
    accountId = everyAccount,
  ): Certificate | undefined {
    if (issuer === subject) return undefined;
    const name = comparableName(issuer);
    const named = others.flatMap((one) => readable(one) ?? []).filter((one) => comparableName(one.subject) === name);
    const known = this.#between.get(`${accountId} ${name}`);
    // Of several of one name Node finds the one by its key; it knows the letter case of ASCII only.
    return named.find((one) => x509.checkIssued(one.x509)) ?? known ?? named[0];
  }

  #certificateOf({ certificate: pem }: AuthorityRow): Certificate {
    const known = this.#authorities.get(pem);
    if (known) return known;
    const certificate = readCertificate(new X509Certificate(pem));
    this.#authorities.set(pem, certificate);
    return certificate;
  }
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
