/** How a device gets its own credentials, the first and the next. */
import type { EnrollmentService } from './enrollment.ts';
import type { CredentialInForce } from './proofs.ts';

export interface CredentialService {
  /** The first credential. */
  enrollment: EnrollmentService;
  /** The next one: what the device is told on `_credentials` about a message that it has published there. Never rejects. */
  renewMessage(deviceId: string, present: CredentialInForce, message: Buffer): Promise<Buffer>;
  /** A connection with this credential has its CONNACK; whether a former one has ended by that. */
  connected(entityId: string, present: CredentialInForce): Promise<boolean>;
  /** Ends the former credentials whose time is over; the entities that have had one. */
  endDue(): Promise<string[]>;
}
