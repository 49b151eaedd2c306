/** Proves that a device belongs to a group: by a claim secret, a derived key, or a manufacturer's certificate. */

import type { Registry } from '../../../db/registry/index.ts';
import type { ClientCertificates } from '../../certificates/client-certificates.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { normalizeSerialNumber } from '../../core/formats/serial-numbers.ts';
import type { Attempts } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { EnrollmentProof } from '../../ports/enrollment.ts';
import { secretsInForce } from '../../registry/credentials/overlaps.ts';
import type { GroupRow } from '../groups/group.ts';
import { isDerivedKey } from '../groups/group-secrets.ts';
import type { EnrollmentRefusals } from '../groups/refusals.ts';
import type { KnownDevice } from './attempt.ts';
import { unproven } from './refused.ts';

/** Characters of a username's serial number, of an id. */
const maxSerialNumberLength = 255;

/** A device of a group; its serial number where the proof names one. */
export interface Proven {
  group: GroupRow;
  serialNumber: string | undefined;
  /** Of the manufacturer's certificate. */
  subject: string | null;
  keyHash: string | undefined;
}

type ProvingServices = {
  audit: Audit;
  certificates: ClientCertificates;
  clock: Clock;
  config: Config;
  refusals: EnrollmentRefusals;
  registry: Registry;
  sealing: Sealing;
  secrets: Secrets;
};

export class Proving {
  readonly #ctx: ProvingServices;
  readonly #ofGroup: Attempts;
  readonly #ofAddress: Attempts;

  constructor(ctx: ProvingServices) {
    this.#ctx = ctx;
    this.#ofGroup = limitTries('enrollments', ctx);
    this.#ofAddress = limitTries('enrollmentsOfAddress', ctx);
  }

  /** @throws PlatformError 401/30 for a proof that is missing or wrong, 429 after too many of one address. */
  async prove(proof: EnrollmentProof): Promise<Proven> {
    const { groupId, serialNumber, address } = proof;
    const group = this.#ctx.registry.entity('enrollmentGroups', groupId);
    if (!this.#isKnown(group, proof)) this.#demandTries(groupId, address);
    const found = group ? await this.#find(group, proof) : await this.#findNothing(proof);
    if (typeof found !== 'string') return found;
    this.#noteWrong(groupId, address);
    if (group) this.#noteRefusal(group, serialNumber, address, found);
    throw unproven();
  }

  /** That a certificate counts still: its CA may have revoked it while a hook was asked. @throws PlatformError 401/30. */
  demandUnrevoked({ proof, proofAuthorityId }: GroupRow, { presented }: EnrollmentProof): void {
    if (proof !== 'certificate' || !presented || proofAuthorityId === null) return;
    if ('refused' in this.#ctx.certificates.checkIssuedBy(presented, proofAuthorityId)) throw unproven();
  }

  /** The stored hash of the device that this secret is that of; undefined for none. Wrong ones count as guesses. */
  async previousHashOf(
    { group, address }: { group: GroupRow; address: string },
    { enrollment, credential }: KnownDevice,
    secret: string,
  ): Promise<string | undefined> {
    const { secrets, clock } = this.#ctx;
    const { deviceId, used, formerHash } = enrollment;
    const inForce = secretsInForce(credential, clock).map(({ hash }) => hash);
    const hashes = [...inForce, ...(used === 0 && formerHash !== null ? [formerHash] : [])];
    this.#demandTries(group.id, address);
    for (const hash of hashes)
      if (await secrets.verify(`former ${deviceId}`, hash, secret, { accountId: group.accountId, address }))
        return hash;
    this.#noteWrong(group.id, address);
    return undefined;
  }

  /** Whether it has been proven before, so that nothing is hashed and no limit is asked: a line goes on. */
  #isKnown(group: GroupRow | undefined, { secret }: EnrollmentProof): boolean {
    if (!group || group.claimHash === null) return false;
    return this.#ctx.secrets.isProven(group.id, group.claimHash, secret);
  }

  /** A device of the group, or the reason why it is none. */
  async #find(group: GroupRow, proof: EnrollmentProof): Promise<Proven | string> {
    const { sealing, secrets, certificates } = this.#ctx;
    const { serialNumber, secret, presented, address } = proof;
    const bySecret = { group, serialNumber, subject: null, keyHash: undefined };
    if (group.proof === 'claimSecret') {
      const from = { accountId: group.accountId, address };
      return (await secrets.verify(group.id, group.claimHash ?? undefined, secret, from))
        ? bySecret
        : 'wrong claim secret';
    }
    if (group.proof === 'derivedKey') {
      const isShort = serialNumber !== undefined && serialNumber.length <= maxSerialNumberLength;
      // The key may be that of the serial number as it was given, or as it is kept.
      const forms = isShort ? new Set([serialNumber, normalizeSerialNumber(serialNumber)]) : [];
      const isRight = [...forms].some((form) => isDerivedKey(sealing, group, form, secret));
      return isRight ? bySecret : 'wrong derived key';
    }
    if (!presented || group.proofAuthorityId === null) return 'no certificate';
    const checked = certificates.checkIssuedBy(presented, group.proofAuthorityId);
    if ('refused' in checked) return checked.refused;
    return { group, serialNumber: checked.serialNumber, subject: checked.subject, keyHash: checked.publicKeyHash };
  }

  /** It takes as long as a wrong secret. */
  async #findNothing({ groupId, secret, address }: EnrollmentProof): Promise<string> {
    await this.#ctx.secrets.verify(groupId, undefined, secret, { address });
    return 'no such group';
  }

  #demandTries(groupId: string, address: string): void {
    for (const [tries, tried] of this.#triesOf(groupId, address))
      if (tries.left(tried).remaining === 0) tries.takeTry(tried);
  }

  #noteWrong(groupId: string, address: string): void {
    for (const [tries, tried] of this.#triesOf(groupId, address)) tries.chargeTry(tried, 1);
  }

  #triesOf(groupId: string, address: string) {
    return [
      [this.#ofGroup, { address, subject: groupId }],
      [this.#ofAddress, { address }],
    ] as const;
  }

  #noteRefusal(group: GroupRow, serialNumber: string | undefined, address: string, reason: string): void {
    const { audit, refusals } = this.#ctx;
    refusals.note(group, { serialNumber, address, reason, proven: false });
    const target = { kind: 'enrollmentGroup', id: group.id } as const;
    const { accountId } = group;
    audit.sample({ event: 'deviceEnrolled', outcome: 'failure', accountId, target, address, details: { reason } });
  }
}
