import type { PresentCredential } from './proofs.ts';

/** The next credential of a device that has one. */
export interface RenewalService {
  /** What the device is told on `_credentials` about a message that it has published there. Never rejects. */
  renewMessage(deviceId: string, present: PresentCredential, message: Buffer): Promise<Buffer>;
  /** A connection with this credential has its CONNACK; whether the former one has ended by that. */
  connected(deviceId: string, present: PresentCredential): Promise<boolean>;
}
