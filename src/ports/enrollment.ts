/** How a device gets its own credential, over whatever way it asks. */
import type { PresentedCertificate } from './proofs.ts';

/** What a device shows so that it gets a credential; `serialNumber` is the one that its username names. */
export interface EnrollmentProof {
  groupId: string;
  serialNumber?: string | undefined;
  secret: string;
  presented?: PresentedCertificate | undefined;
  address: string;
}

/** What a device asks for, as it was sent. */
export interface EnrollmentRequest {
  serialNumber?: string | undefined;
  csr?: string | undefined;
  firmwareVersion?: string | undefined;
  fields?: Record<string, unknown> | undefined;
  previousSecret?: string | undefined;
}

/** The answer, with the device's new credential. */
export interface EnrollmentAnswer {
  device: { id: string; serialNumber: string; accountId: string };
  credential: { username: string; secret?: string; certificate?: string; chain?: string; expires?: string };
  broker: { host: string; ports: { mqtt?: number; mqtts?: number; http?: number }; topicRoot: string };
  channels: Record<string, string>;
}

/** An answer that is on its way. */
export interface Enrolled {
  answer: EnrollmentAnswer;
  /** To be called when it has been sent, or its asker is gone: until then all who ask for the device get the same. */
  sent(): void;
}

/** The same as a message: JSON or CBOR, as the request was. */
export interface EnrolledMessage {
  isAccepted: boolean;
  payload: Buffer;
  /** As of Enrolled. */
  sent(): void;
}

export interface EnrollmentService {
  /** The account of a group whose devices have this proof. @throws PlatformError 401/30, 429. */
  proveAccount(proof: EnrollmentProof): Promise<string>;
  /** One exchange, as a message in JSON or CBOR. Never rejects: what was refused has the platform's error body. */
  exchangeMessage(proof: EnrollmentProof, message: Buffer): Promise<EnrolledMessage>;
}
