/** Certificates that the service issues for devices: the request is read and the certificate signed in a thread. */
import { randomBytes } from 'node:crypto';
import type { Db, Registry, Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Caller } from '../core/caller.ts';
import type { Clock } from '../core/clock.ts';
import type { Config } from '../core/config.ts';
import { invalid } from '../core/errors.ts';
import type { Lane } from '../core/scheduler/lanes.ts';
import { demandReference, insert, stamp } from '../entity/verbs.ts';
import type { Sealing } from '../identity/secrets/sealing.ts';
import type { SigningRequest } from './pki/reading.ts';
import type { PkiThreads } from './pki/threads.ts';

const day = 24 * 60 * 60_000;
const serialBytes = 16;
/** Characters of a request: RSA of 8,192 bits with many attributes has half of it. */
export const maxCsrLength = 16_384;

type Authority = Row<'certificateAuthorities'>;

/** A certificate request whose signature has been checked. */
export type Csr = SigningRequest;

/** A certificate that has been signed, and is worth nothing until `storeLeaf` has stored it. */
export interface Leaf {
  certificateAuthorityId: string;
  /** PEM. */
  certificate: string;
  /** PEM; it begins with the issuing CA. */
  chain: string;
  publicKeyHash: string;
  /** Milliseconds since 1970. */
  issued: number;
  /** ISO 8601. */
  expires: string;
  /** What the certificate says, as it is stored. */
  stored: Pick<
    Row<'certificates'>,
    'certificate' | 'fingerprint' | 'subject' | 'validFrom' | 'validTo' | 'issuer' | 'serialNumber'
  >;
}

/** A certificate that a device has now, as `Leaf` shows it. */
export type PresentLeaf = Pick<Leaf, 'certificate' | 'chain' | 'expires'> & { certificateId: string };

type IssuingServices = { clock: Clock; config: Pick<Config, 'publicUrl'>; pki: PkiThreads; sealing: Sealing };

export class Issuing {
  readonly #ctx: IssuingServices;

  constructor(ctx: IssuingServices) {
    this.#ctx = ctx;
  }

  /** The request in a text, PEM or base64 of DER. @throws PlatformError 400/106 naming `path`. */
  async readCsr(lane: Lane, text: string, path = 'csr'): Promise<Csr> {
    if (text.length > maxCsrLength) throw invalid(path, `has more than ${maxCsrLength} characters`);
    const read = await this.#ctx.pki.ask(lane, 'readRequest', text);
    if ('fault' in read) throw invalid(path, read.fault);
    return read;
  }

  /** Signs a certificate for a device, which need not be there yet; `authority` is one of `findIssuer`. It ends with its CA. */
  async signLeaf(
    lane: Lane,
    authority: Authority,
    { deviceId, csr, days }: { deviceId: string; csr: Csr; days: number },
  ): Promise<Leaf> {
    const { clock, config, pki } = this.#ctx;
    const issued = clock.now();
    const to = Math.min(issued + days * day, Date.parse(authority.validTo));
    const stored = await pki.ask(lane, 'issueLeaf', this.signerOf(authority), {
      commonName: deviceId,
      publicKey: csr.publicKey,
      serialNumber: randomBytes(serialBytes).toString('hex'),
      from: issued,
      to,
      crlUrl: config.publicUrl === undefined ? undefined : `${config.publicUrl}${crlPath(authority.id)}`,
    });
    const { publicKeyHash } = csr;
    const expires = new Date(Math.floor(to / 1000) * 1000).toISOString();
    return {
      certificateAuthorityId: authority.id,
      ...{ certificate: stored.certificate, publicKeyHash, issued, expires, stored },
      chain: authority.certificate,
    };
  }

  /** What signs for an issuing CA. */
  signerOf({ id, sealedKey, certificate }: Authority): { key: string; certificate: string } {
    if (sealedKey === null) throw new Error('not an issuing CA');
    return { key: this.#ctx.sealing.open(keyOwner(id), sealedKey), certificate };
  }
}

/** What the sealed key of a CA belongs to. */
export function keyOwner(id: string): string {
  return `certificateAuthority/${id}`;
}

/** Where the revocation list of an issuing CA is. */
export function crlPath(id: string): string {
  return `/api/v1/crl/${id}`;
}

/** The issuing CA of the account that `path` of a body names. @throws PlatformError 400/102, 400/106 when it cannot sign now. */
export async function findIssuer(
  db: Db,
  clock: Clock,
  accountId: string,
  id: string,
  path = 'certificateAuthorityId',
): Promise<Authority> {
  const authority = await demandReference(db, 'certificateAuthorities', accountId, id, path);
  const fault = issuerFault(authority, clock);
  if (fault !== undefined) throw invalid(path, fault);
  return authority;
}

/** Why a CA cannot issue certificates now; undefined when it can. */
export function issuerFault({ issuing, state, validTo }: Authority, clock: Clock): string | undefined {
  if (issuing !== 1) return 'is not a CA that issues certificates';
  if (state !== 'active') return 'has no certificate of the CA above it yet: PUT …/{id}/certificate';
  return Date.parse(validTo) <= clock.now() ? 'has expired' : undefined;
}

/** Stores a certificate for a device; how many a device may have is for the caller to see to. */
export function storeLeaf(
  tx: Tx,
  caller: Pick<Caller, 'id' | 'accountId'>,
  deviceId: string,
  leaf: Leaf,
): Promise<Row<'certificates'>> {
  const { certificateAuthorityId, publicKeyHash, issued, stored } = leaf;
  return insert(
    tx,
    'certificates',
    {
      ...stamp({ now: () => issued }, caller),
      ...{ entityId: deviceId, entityType: 'device', certificateAuthorityId, publicKeyHash },
      ...stored,
    },
    'certificate',
  );
}

/**
 * Ends the certificates of a device, issued and registered ones, but `except`; those that were ended. Tell
 * `revocations.certificateEnded` of each after the commit.
 */
export async function endLeaves(tx: Tx, clock: Clock, deviceId: string, except?: string): Promise<string[]> {
  await tx.deleteFrom('renewals').where('deviceId', '=', deviceId).execute();
  const live = tx.updateTable('certificates').set({ deleted: new Date(clock.now()).toISOString() });
  const ended = live.where('entityId', '=', deviceId).where('deleted', 'is', null);
  const others = except === undefined ? ended : ended.where('id', '!=', except);
  return (await others.returning('id').execute()).map(({ id }) => id);
}

/** The newest certificate of a device that is in force, was issued for this key and has a CA that is still there. */
export async function presentLeaf(
  db: Registry['query'],
  clock: Clock,
  deviceId: string,
  publicKeyHash: string,
): Promise<PresentLeaf | undefined> {
  const row = await db
    .selectFrom('certificates as c')
    .innerJoin('certificateAuthorities as ca', 'ca.id', 'c.certificateAuthorityId')
    .select(['c.id', 'c.certificate', 'c.validTo', 'ca.certificate as chain'])
    .where('c.entityId', '=', deviceId)
    .where('c.publicKeyHash', '=', publicKeyHash)
    .where('c.deleted', 'is', null)
    .where('ca.deleted', 'is', null)
    .where('c.validTo', '>', new Date(clock.now()).toISOString())
    .orderBy('c.id', 'desc')
    .limit(1)
    .executeTakeFirst();
  return row && { certificateId: row.id, certificate: row.certificate, chain: row.chain, expires: row.validTo };
}
