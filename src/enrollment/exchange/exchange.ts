/** The exchange: what a device has of its group becomes a credential of its own. HTTP, MQTT and EST come here. */

import { type Csr, presentLeaf } from '../../certificates/issuing.ts';
import { invalid, PlatformError } from '../../core/errors.ts';
import { normalizeSerialNumber } from '../../core/formats/serial-numbers.ts';
import { slotOf } from '../../core/ids.ts';
import { causeNow, onBehalfOf } from '../../core/log.ts';
import type { MessagesContext } from '../../messages/context.ts';
import type {
  Enrolled,
  EnrolledMessage,
  EnrollmentProof,
  EnrollmentRequest,
  EnrollmentService,
} from '../../ports/enrollment.ts';
import type { Streams } from '../../ports/streams.ts';
import { EnrollmentRefusals } from '../groups/refusals.ts';
import { type AnswerServices, answerFor } from './answer.ts';
import type { EnrollmentAttempt, KnownDevice, PresentedCredential } from './attempt.ts';
import { Hooks } from './hook.ts';
import { checkHookAnswer, type EnrolledDevice, type MakingContext, makeCredential } from './making.ts';
import { exchangeMessage } from './messages.ts';
import { type Proven, Proving } from './proving.ts';
import { refused } from './refused.ts';
import { demandSerialNumber, readRequest } from './request.ts';
import { decideAgain, demandOpen, demandRoom, demandSame } from './rules.ts';
import { SingleFlight } from './single-flight.ts';

type EnrollmentServices = MakingContext &
  AnswerServices &
  Pick<MessagesContext, 'certificates' | 'gate' | 'log' | 'sealing'> & { streams: Pick<Streams, 'tellEnrollment'> };

/** What has become of exchanges since the start. */
export type EnrollmentCounts = Record<'made' | 'repeated' | 'refused' | 'unproven' | 'failed', number>;

export class Enrollment implements EnrollmentService {
  readonly #ctx: EnrollmentServices;
  readonly #flights = new SingleFlight<EnrolledDevice>();
  readonly #hooks: Hooks;
  readonly #proving: Proving;
  readonly refusals: EnrollmentRefusals;
  readonly counts: EnrollmentCounts = { made: 0, repeated: 0, refused: 0, unproven: 0, failed: 0 };

  constructor(ctx: EnrollmentServices) {
    this.#ctx = ctx;
    this.refusals = new EnrollmentRefusals(ctx);
    this.#hooks = new Hooks(ctx);
    this.#proving = new Proving({ ...ctx, refusals: this.refusals });
  }

  close(): Promise<void> {
    return this.refusals.close();
  }

  async proveAccount(proof: EnrollmentProof): Promise<string> {
    const { group } = await this.#counted(() => this.#proving.prove(proof));
    return group.accountId;
  }

  /**
   * One exchange. The serial number is in the body, or in the subject of its csr. @throws PlatformError 401/30, 400/106,
   * 403/21, 429, 503, 507.
   */
  async exchange(proof: EnrollmentProof, given: unknown, namedBy: 'body' | 'csr' = 'body'): Promise<Enrolled> {
    const proven = await this.#counted(() => this.#proving.prove(proof));
    const { accountId, id } = proven.group;
    const { gate } = this.#ctx;
    if (gate.isAway(accountId)) throw new PlatformError('stopping');
    const end = gate.beginRequest(slotOf(accountId));
    const lane = { accountId, callerId: id };
    try {
      return await onBehalfOf({ cause: causeNow(), lane }, () => this.#exchangeProven(proof, proven, given, namedBy));
    } finally {
      end();
    }
  }

  exchangeMessage(proof: EnrollmentProof, message: Buffer): Promise<EnrolledMessage> {
    return exchangeMessage((...asked) => this.exchange(...asked), this.#ctx.log, proof, message);
  }

  async #exchangeProven(
    proof: EnrollmentProof,
    proven: Proven,
    given: unknown,
    namedBy: 'body' | 'csr',
  ): Promise<Enrolled> {
    const { group } = proven;
    const { address } = proof;
    let serialNumber = proven.serialNumber;
    try {
      return await this.#counted(async () => {
        const request = readRequest(given);
        const csr = namedBy === 'csr' ? await this.#csrOf(group, request) : undefined;
        const named = csr ? { serialNumber: csr.subject.serialNumber ?? csr.subject.commonName } : request;
        serialNumber = demandSerialNumber(named, proven.serialNumber);
        if (proven.serialNumber !== undefined && normalizeSerialNumber(proven.serialNumber) !== serialNumber)
          throw refused('The serial number is not that of the proof.');
        demandOpen(group, serialNumber, this.#ctx.clock.now());
        return this.#exchangeWith(proof, proven, request, serialNumber, csr);
      });
    } catch (error) {
      if (error instanceof PlatformError && (error.status === 403 || error.status === 400))
        this.refusals.note(group, { serialNumber, address, reason: sentenceOf(error), proven: true });
      throw error;
    }
  }

  async #exchangeWith(
    proof: EnrollmentProof,
    { group, subject, keyHash }: Proven,
    request: EnrollmentRequest,
    serialNumber: string,
    read: Csr | undefined,
  ): Promise<Enrolled> {
    const { certificates, registry } = this.#ctx;
    const { address } = proof;
    const isUsed = () => registry.enrollment(group.id, serialNumber)?.used === 1;
    const { flight, leave } = await this.#flights.join(`${group.id} ${serialNumber}`, isUsed);
    try {
      const csr = read ?? (await this.#csrOf(group, request));
      const known = this.#read(group.id, serialNumber);
      const shown = { ...(await this.#shownOf(proof, group, request, known)), proofKeyHash: keyHash };
      const present = known && csr && (await this.#present(known, csr));
      // What would be refused is refused before anybody is asked.
      if (!present) this.#decide(group, known, shown);
      const said = await this.#hooks.ask(group, {
        ...{ groupId: group.id, serialNumber, address, certificateSubject: subject, fields: request.fields ?? {} },
        ...(known && { deviceId: known.enrollment.deviceId }),
      });
      this.#proving.demandUnrevoked(group, proof);
      const attempt = { group, serialNumber, request, csr, address, known, shown, said };
      await checkHookAnswer(this.#ctx, attempt);
      const made =
        present && certificates.isLive(present.certificateId)
          ? present.made
          : await flight.make(csr?.publicKeyHash ?? 'secret', () => this.#make(attempt));
      return { answer: answerFor(this.#ctx, made), sent: leave };
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** The request for a certificate, where the group issues one for it. @throws PlatformError 400/106. */
  async #csrOf({ id, accountId, issues }: Proven['group'], { csr }: EnrollmentRequest): Promise<Csr | undefined> {
    if (issues === 'secret') return undefined;
    if (csr !== undefined) return this.#ctx.issuing.readCsr({ accountId, callerId: id }, csr);
    if (issues === 'certificate') throw invalid('csr', 'is required');
    return undefined;
  }

  /** What is known of the device that the group has made for a serial number. */
  #read(groupId: string, serialNumber: string): KnownDevice | undefined {
    const { registry } = this.#ctx;
    const enrollment = registry.enrollment(groupId, serialNumber);
    if (!enrollment) return undefined;
    const { deviceId } = enrollment;
    return { enrollment, device: registry.entity('devices', deviceId), credential: registry.credential(deviceId) };
  }

  /** The present certificate, where the request is for its key: nothing ends, and nobody gains anything by it. */
  async #present(known: KnownDevice, csr: Csr): Promise<{ certificateId: string; made: EnrolledDevice } | undefined> {
    const { device } = known;
    if (!device) return undefined;
    demandSame(known);
    const present = await presentLeaf(this.#ctx.registry.query, this.#ctx.clock, device.id, csr.publicKeyHash);
    if (!present) return undefined;
    const { certificateId, ...credential } = present;
    return { certificateId, made: { isNew: false, device, credential } };
  }

  /** What is shown of a device that is there already. */
  async #shownOf(
    { presented, address }: EnrollmentProof,
    group: Proven['group'],
    { previousSecret }: EnrollmentRequest,
    known: KnownDevice | undefined,
  ): Promise<PresentedCredential> {
    if (!known || known.enrollment.connected === null) return {};
    const { deviceId, used, formerFingerprint } = known.enrollment;
    const shown: PresentedCredential = {};
    if (previousSecret !== undefined)
      shown.previousHash = await this.#proving.previousHashOf({ group, address }, known, previousSecret);
    if (presented && group.proof !== 'certificate') {
      const fingerprint = presented.own.fingerprint256.replaceAll(':', '').toLowerCase();
      const checked = await this.#ctx.certificates.checkCertificate(presented, deviceId, address);
      const isFormer = used === 0 && formerFingerprint === fingerprint;
      if (isFormer || (checked.result === 'proven' && checked.caller.id === deviceId))
        shown.previousFingerprint = fingerprint;
    }
    return shown;
  }

  /** @throws PlatformError 403/21 */
  #decide(group: Proven['group'], known: KnownDevice | undefined, shown: PresentedCredential): void {
    if (known) decideAgain(group, known, shown, this.#ctx.clock.now());
    else demandRoom(group);
  }

  async #make(attempt: EnrollmentAttempt): Promise<EnrolledDevice> {
    const made = await makeCredential(this.#ctx, attempt);
    const { group, serialNumber } = attempt;
    this.counts[made.isNew ? 'made' : 'repeated'] += 1;
    const time = new Date(this.#ctx.clock.now()).toISOString();
    const told = { deviceId: made.device.id, groupId: group.id, serialNumber, time };
    this.#ctx.streams.tellEnrollment(group.accountId, told);
    return made;
  }

  async #counted<R>(work: () => Promise<R>): Promise<R> {
    try {
      return await work();
    } catch (error) {
      const status = error instanceof PlatformError ? error.status : 500;
      if (status === 401 || status === 429) this.counts.unproven += 1;
      else if (status === 403 || status === 400) this.counts.refused += 1;
      else this.counts.failed += 1;
      throw error;
    }
  }
}

function sentenceOf({ message, details }: PlatformError): string {
  const [first] = details;
  return first ? `${first.path ?? ''} ${first.message}`.trim() : message;
}
