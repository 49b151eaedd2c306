/** One attempt of a device to enroll, and what is known of it: read once, and once more in the transaction that makes something. */
import type { CredentialRow } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Csr } from '../../certificates/issuing.ts';
import type { EnrollmentRequest } from '../../ports/enrollment.ts';
import type { GroupRow } from '../groups/group.ts';
import type { HookAnswer } from './hook.ts';

export interface EnrollmentAttempt {
  group: GroupRow;
  serialNumber: string;
  request: EnrollmentRequest;
  /** Where it is to get a certificate. */
  csr: Csr | undefined;
  address: string;
  /** The device that the group has made for the serial number. */
  known: KnownDevice | undefined;
  shown: PresentedCredential;
  said: HookAnswer;
}

/** A device that has been made, as it is now. */
export interface KnownDevice {
  enrollment: Row<'enrollments'>;
  device: Row<'devices'> | undefined;
  credential: CredentialRow | undefined;
}

/** What has been shown besides the proof of the group. */
export interface PresentedCredential {
  /** The stored hash that the previous secret is that of. */
  previousHash?: string | undefined;
  /** The device's own certificate of the handshake. */
  previousFingerprint?: string | undefined;
  /** The key of the manufacturer's certificate. */
  proofKeyHash?: string | undefined;
}
