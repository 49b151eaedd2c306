/** The exchange as messages: a request in JSON or CBOR, and an answer in the same form. */
import type { Logger } from 'pino';
import { errorBody, type Failure, failure, invalid, PlatformError } from '../../core/errors.ts';
import { decodeCbor, encodeCbor } from '../../firmware/delivery/cbor.ts';
import type { Enrolled, EnrolledMessage, EnrollmentProof } from '../../ports/enrollment.ts';

/** Bytes of a request. */
const maxRequest = 16_384;
/** The first byte of a request that is CBOR: a map, or the mark of CBOR. */
const firstOfCbor = 0x80;

type Exchange = (proof: EnrollmentProof, request: unknown) => Promise<Enrolled>;

/** One exchange of a device that speaks in messages. Never rejects: what is wrong is in the answer. */
export async function exchangeMessage(
  exchange: Exchange,
  log: Logger,
  proof: EnrollmentProof,
  message: Buffer,
): Promise<EnrolledMessage> {
  const isCbor = (message[0] ?? 0) >= firstOfCbor;
  const encode = (value: object) => (isCbor ? encodeCbor(value) : Buffer.from(JSON.stringify(value)));
  try {
    const { answer, sent } = await exchange(proof, isCbor ? readCbor(message) : readJson(message));
    return { isAccepted: true, payload: encode(answer), sent };
  } catch (error) {
    return { isAccepted: false, payload: encode({ error: errorBody(told(error, log)) }), sent: () => {} };
  }
}

/** What a device is told; of what nobody has expected, nothing. */
function told(error: unknown, log: Logger): Failure {
  if (error instanceof PlatformError) return error;
  log.error({ err: error }, 'an enrollment could not be handled');
  return failure('server');
}

/** @throws PlatformError 400/106 */
function readJson(message: Buffer): unknown {
  if (message.length > maxRequest) throw invalid('body', `must be at most ${maxRequest} bytes`);
  try {
    return JSON.parse(message.toString());
  } catch {
    throw invalid('body', 'is neither JSON nor CBOR');
  }
}

/** @throws PlatformError 400/106 */
function readCbor(message: Buffer): unknown {
  const value = decodeCbor(message);
  if (!value) throw invalid('body', `must be a map of CBOR, of at most ${maxRequest} bytes`);
  // As JSON has it: hooks are asked in JSON, which has no integers of 64 bits.
  return JSON.parse(JSON.stringify(value, (_, one) => (typeof one === 'bigint' ? Number(one) : one)));
}
