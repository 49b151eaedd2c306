/** The exchange: what a device has of its group becomes a credential of its own. HTTP, MQTT and EST come here. */
import type { Logger } from 'pino';
import { invalid, PlatformError } from '../../errors.ts';
import { trimSerialNumber } from '../../formats/serial-numbers.ts';
import { slotOf } from '../../ids.ts';
import { causeNow, onBehalfOf } from '../../log.ts';
import type { MessagesContext } from '../../messages/context.ts';
import type { BrokerState } from '../../ports/broker-state.ts';
import type {
  Enrolled,
  EnrolledMessage,
  EnrollmentAnswer,
  EnrollmentProof,
  EnrollmentRequest,
  EnrollmentService,
} from '../../ports/enrollment.ts';
import type { Revocations } from '../../ports/revocations.ts';
import type { Streams } from '../../ports/streams.ts';
import { type Csr, presentLeaf } from '../../registry/certificates/issuing.ts';
import { EnrollmentRefusals } from '../groups/refusals.ts';
import { answerFor } from './answer.ts';
import { Hooks } from './hook.ts';
import { type Asked, demandSaid, type Made, type MakingContext, makeCredential, valuesOf } from './making.ts';
import { exchangeMessage } from './messages.ts';
import { type Proven, Proving } from './proving.ts';
import { refused } from './refused.ts';
import { demandSerialNumber, readRequest } from './request.ts';
import { decideAgain, demandOpen, demandRoom, demandSame, type Known, type Shown } from './rules.ts';
import { SingleFlight } from './single-flight.ts';

type Needed = Omit<MakingContext, 'revocations'> &
  Pick<MessagesContext, 'certificates' | 'gate' | 'sealing'> & { log: Logger };
type Opened = { revocations: Revocations; streams: Streams; broker: BrokerState };

/** What has become of exchanges since the start. */
export type EnrollmentCounts = Record<'made' | 'repeated' | 'refused' | 'unproven' | 'failed', number>;

export class Enrollment implements EnrollmentService {
  readonly #ctx: Needed;
  readonly #flights = new SingleFlight<Made>();
  readonly #hooks: Hooks;
  readonly #proving: Proving;
  readonly refusals: EnrollmentRefusals;
  readonly counts: EnrollmentCounts = { made: 0, repeated: 0, refused: 0, unproven: 0, failed: 0 };
  #opened: Opened | undefined;
  #httpUrl: string | undefined;

  constructor(ctx: Needed) {
    this.#ctx = ctx;
    this.refusals = new EnrollmentRefusals(ctx);
    this.#hooks = new Hooks(ctx);
    this.#proving = new Proving({ ...ctx, refusals: this.refusals });
  }

  /** The broker is there, which asks for exchanges, and ends what they end. */
  open(opened: Opened): void {
    this.#opened = opened;
  }

  /** HTTP is there, at this URL. */
  startServing(url: string): void {
    this.#httpUrl = url;
  }

  close(): Promise<void> {
    return this.refusals.close();
  }

  async proveAccount(proof: EnrollmentProof): Promise<string> {
    const { group } = await this.#counted(() => this.#proving.prove(proof));
    return group.accountId;
  }

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
        if (proven.serialNumber !== undefined && trimSerialNumber(proven.serialNumber) !== serialNumber)
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
    const { registry } = this.#ctx;
    const isUsed = () => registry.enrollment(group.id, serialNumber)?.used === 1;
    const { flight, leave } = await this.#flights.join(`${group.id} ${serialNumber}`, isUsed);
    try {
      const csr = read ?? (await this.#csrOf(group, request));
      const shown = { ...(await this.#shownOf(proof, group, request, serialNumber)), proofKeyHash: keyHash };
      if (!(await this.#present(group, serialNumber, csr))) this.#decide({ group, serialNumber, shown });
      const { deviceId } = registry.enrollment(group.id, serialNumber) ?? {};
      const said = await this.#hooks.ask(group, {
        ...{ groupId: group.id, serialNumber, address: proof.address, certificateSubject: subject },
        ...{ fields: request.fields ?? {}, ...(deviceId !== undefined && { deviceId }) },
      });
      this.#proving.demandUnrevoked(group, proof);
      const asked = { group, serialNumber, request, csr, shown, said, address: proof.address };
      await this.#demandFields(asked);
      const present = await this.#present(group, serialNumber, csr);
      const made = present ?? (await flight.make(csr?.publicKeyHash ?? 'secret', () => this.#make(asked)));
      return { answer: this.answerFor(made), sent: leave };
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

  /** The present certificate, where the request is for its key: nothing ends, and nobody gains anything by it. */
  async #present(group: Proven['group'], serialNumber: string, csr: Csr | undefined): Promise<Made | undefined> {
    const { registry, clock } = this.#ctx;
    const enrollment = csr && registry.enrollment(group.id, serialNumber);
    const device = enrollment && registry.entity('devices', enrollment.deviceId);
    if (!csr || !enrollment || !device) return undefined;
    demandSame({ enrollment, device });
    const present = await presentLeaf(registry.query, clock, device.id, csr.publicKeyHash);
    if (!present) return undefined;
    const { certificate, chain, expires } = present;
    return { isNew: false, device, credential: { certificate, chain, expires } };
  }

  /** What is shown of a device that is there already. */
  async #shownOf(
    { presented, address }: EnrollmentProof,
    group: Proven['group'],
    { previousSecret }: EnrollmentRequest,
    serialNumber: string,
  ): Promise<Shown> {
    const enrollment = this.#ctx.registry.enrollment(group.id, serialNumber);
    if (!enrollment || enrollment.connected === null) return {};
    const { deviceId } = enrollment;
    const shown: Shown = {};
    if (previousSecret !== undefined)
      shown.previousHash = await this.#proving.previousHashOf({ group, address }, enrollment, previousSecret);
    if (presented && group.proof !== 'certificate') {
      const fingerprint = presented.own.fingerprint256.replaceAll(':', '').toLowerCase();
      const checked = await this.#ctx.certificates.checkCertificate(presented, deviceId, address);
      const isFormer = enrollment.used === 0 && enrollment.formerFingerprint === fingerprint;
      if (isFormer || (checked.result === 'proven' && checked.caller.id === deviceId))
        shown.previousFingerprint = fingerprint;
    }
    return shown;
  }

  /** @throws PlatformError 403/21 for what would be refused, before anybody is asked. */
  #decide({ group, serialNumber, shown }: Pick<Asked, 'group' | 'serialNumber' | 'shown'>): void {
    const known = this.#known(group.id, serialNumber);
    if (known) decideAgain(group, known, shown, this.#ctx.clock.now());
    else demandRoom(group);
  }

  #known(groupId: string, serialNumber: string): Known | undefined {
    const { registry } = this.#ctx;
    const enrollment = registry.enrollment(groupId, serialNumber);
    if (!enrollment) return undefined;
    const { deviceId } = enrollment;
    return { enrollment, device: registry.entity('devices', deviceId), credential: registry.credential(deviceId) };
  }

  /** @throws PlatformError 400/106 and 403/21 for names of the request, or of the hook, that are not there. */
  async #demandFields(asked: Asked): Promise<void> {
    await demandSaid(this.#ctx, asked.group, asked.said);
    const { group, serialNumber, said } = asked;
    const enrollment = this.#ctx.registry.enrollment(group.id, serialNumber);
    const device = enrollment && this.#ctx.registry.placement(enrollment.deviceId);
    valuesOf(this.#ctx, (device ?? { ...group, ...said }).deviceTemplateId, asked);
  }

  async #make(asked: Asked): Promise<Made> {
    const { revocations, streams } = this.#demandOpened();
    const made = await makeCredential({ ...this.#ctx, revocations }, asked);
    const { group, serialNumber } = asked;
    this.counts[made.isNew ? 'made' : 'repeated'] += 1;
    const time = new Date(this.#ctx.clock.now()).toISOString();
    streams.tellEnrollment(group.accountId, { deviceId: made.device.id, groupId: group.id, serialNumber, time });
    return made;
  }

  /** What a device is told with a new credential, of an exchange or of a renewal. */
  answerFor({
    device,
    credential,
  }: Pick<Made, 'credential'> & { device: Parameters<typeof answerFor>[1] }): EnrollmentAnswer {
    const { broker } = this.#demandOpened();
    return answerFor({ ...this.#ctx, broker, httpUrl: this.#httpUrl }, device, credential);
  }

  #demandOpened(): Opened {
    if (!this.#opened) throw new PlatformError('stopping');
    return this.#opened;
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
