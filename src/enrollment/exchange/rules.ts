/** The rules of a group, and whether a device that it has made is handed out again. */

import type { CredentialRow } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { GroupRow } from '../groups/group.ts';
import type { KnownDevice, PresentedCredential } from './attempt.ts';
import { refused } from './refused.ts';

/** @throws PlatformError 403/21 while the group takes nobody, or not this serial number. */
export function demandOpen(group: GroupRow, serialNumber: string, now: number): void {
  if (group.deleted !== null) throw refused('The enrollment group has been deleted.');
  if (group.disabled === 1) throw refused('The enrollment group is disabled.');
  if (group.validFrom !== null && now < Date.parse(group.validFrom))
    throw refused('The enrollment group is not valid yet.');
  if (group.validUntil !== null && now >= Date.parse(group.validUntil))
    throw refused('The enrollment group is not valid any more.');
  if (!matchesPattern(group.serialNumberPattern, serialNumber))
    throw refused('The serial number does not match the pattern of the enrollment group.');
}

/** Whether a text matches a pattern in which * is any text and ? any character. It takes no longer than both are long. */
function matchesPattern(pattern: string, text: string): boolean {
  const [wanted, given] = [[...pattern], [...text]];
  let [at, place] = [0, 0];
  let star: { at: number; place: number } | undefined;
  while (place < given.length) {
    if (at < wanted.length && wanted[at] === '*') {
      star = { at, place };
      at += 1;
    } else if (at < wanted.length && (wanted[at] === '?' || wanted[at] === given[place])) {
      at += 1;
      place += 1;
    } else if (star) {
      star.place += 1;
      at = star.at + 1;
      place = star.place;
    } else return false;
  }
  return wanted.slice(at).every((one) => one === '*');
}

/** @throws PlatformError 403/21 for one more device than the group may make. */
export function demandRoom({ maxDevices, enrolledCount }: GroupRow): void {
  if (maxDevices !== null && enrolledCount >= maxDevices) throw refused('The enrollment group is full.');
}

/** What of a known device decides whether it gets another credential. */
type Known = Pick<KnownDevice, 'enrollment' | 'device'> & {
  credential: Pick<CredentialRow, 'secretHash' | 'previousHash'> | undefined;
};

/** What becomes of a device: it gets another credential, and where it is reset, fields and a place as new. */
export type Verdict = 'keep' | 'reset';

/** @throws PlatformError 403/21 for a device that is not what has enrolled any more. */
export function demandSame({ enrollment, device }: Pick<Known, 'enrollment' | 'device'>): void {
  if (!device || device.deleted !== null) throw refused('The device is in the trash.');
  if (device.serialNumber !== enrollment.serialNumber)
    throw refused('The device that had this serial number has another one now.');
}

/** @throws PlatformError 403/21 when the device is not handed to who asks. */
export function decideAgain(group: GroupRow, known: Known, shown: PresentedCredential, now: number): Verdict {
  demandSame(known);
  const { enrollment } = known;
  // What was never used is worth nothing: a lost answer costs nothing.
  if (enrollment.connected === null) return 'keep';
  if (!isItself(group, known, shown) && !isPermitted(enrollment, now))
    throw refused(
      'The device has connected already. It needs its previousSecret, or the permission of an admin (POST /devices/{id}/allow-enrollment).',
    );
  if (group.reprovision === 'refuse') throw refused('The enrollment group refuses devices that have connected.');
  return group.reprovision === 'reset' ? 'reset' : 'keep';
}

/** Whether only the device itself can have shown this. */
function isItself(group: GroupRow, { enrollment, credential }: Known, shown: PresentedCredential): boolean {
  const { previousHash, previousFingerprint, proofKeyHash } = shown;
  if (group.proof === 'derivedKey') return true;
  if (proofKeyHash !== undefined && proofKeyHash === enrollment.proofKeyHash) return true;
  if (previousFingerprint !== undefined) return true;
  if (previousHash === undefined) return false;
  const former = enrollment.used === 0 ? enrollment.formerHash : null;
  return [credential?.secretHash, credential?.previousHash, former].includes(previousHash);
}

export function isPermitted({ allowedUntil }: Row<'enrollments'>, now: number): boolean {
  return allowedUntil !== null && Date.parse(allowedUntil) > now;
}
