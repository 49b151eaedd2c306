/** The next credential of a device, by the one that it has: the former one ends when the new one has connected, or in time. */
import type { Logger } from 'pino';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import { findIssuer, type Issuing, type Leaf, maxCsrLength, storeLeaf } from '../../certificates/issuing.ts';
import type { AccountGate } from '../../core/account-gate.ts';
import type { Caller } from '../../core/caller.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { errorBody, failure, invalid, PlatformError } from '../../core/errors.ts';
import { isNestedDeeply } from '../../core/formats/json-size.ts';
import type { Attempts } from '../../core/limits/attempts.ts';
import { limitTries } from '../../core/limits/tries.ts';
import { findLive } from '../../entity/verbs.ts';
import type { Secrets } from '../../identity/secrets/secrets.ts';
import { makeSecret } from '../../identity/secrets/secrets.ts';
import type { Audit } from '../../operations/audit/index.ts';
import type { CredentialService } from '../../ports/credentials.ts';
import type { EnrollmentAnswer } from '../../ports/enrollment.ts';
import type { CredentialInForce } from '../../ports/proofs.ts';
import type { Revocations } from '../../ports/revocations.ts';
import { storeSecret } from '../../registry/credentials/credentials.ts';
import type { Overlaps } from '../../registry/credentials/overlaps.ts';
import { demandInForce, type Ended, endFormer, endNew, nothingEnded, replaceNewest } from './renewal-steps.ts';

const day = 24 * 60 * 60_000;
/** Of devices that no group has made. */
const usual = { days: 365, overlapDays: 7 };
/** Bytes of a message that asks: a request, and its JSON. */
const maxMessageLength = maxCsrLength + 1024;

type Group = Pick<Row<'enrollmentGroups'>, 'issues' | 'certificateAuthorityId' | 'certificateDays' | 'overlapDays'>;
type Device = Pick<Row<'devices'>, 'id' | 'serialNumber' | 'accountId' | 'deviceTemplateId'>;

/** A new credential that nobody has yet. */
type NewCredential = { leaf: Leaf } | { secret: string; hash: string };

/** What a device is told: the credential, and whose it is. */
export interface Renewed {
  device: Device;
  credential: Omit<EnrollmentAnswer['credential'], 'username'>;
}

type RenewalServices = {
  registry: Registry;
  clock: Clock;
  config: Config;
  gate: Pick<AccountGate, 'work'>;
  log: Logger;
  audit: Audit;
  secrets: Secrets;
  issuing: Issuing;
  overlaps: Overlaps;
  revocations: Revocations;
};

export class Renewals implements Omit<CredentialService, 'enrollment'> {
  readonly #ctx: RenewalServices;
  readonly #tries: Attempts;
  /** Devices with a row in the table, and when it ends: a CONNECT of any other asks the disk nothing. */
  readonly #ends: Map<string, number>;

  private constructor(ctx: RenewalServices, ends: Map<string, number>) {
    this.#ctx = ctx;
    this.#ends = ends;
    this.#tries = limitTries('renewals', ctx);
  }

  static async open(ctx: RenewalServices): Promise<Renewals> {
    const rows = await ctx.registry.query.selectFrom('renewals').select(['deviceId', 'until']).execute();
    return new Renewals(ctx, new Map(rows.map(({ deviceId, until }) => [deviceId, Date.parse(until)])));
  }

  /**
   * Makes the next credential of a device that has proven itself with `present`: a certificate for a request, otherwise a
   * secret. @throws PlatformError 400/106, 401/30 when `present` has ended meanwhile, 429.
   */
  async renew(deviceId: string, present: CredentialInForce, csr: string | undefined): Promise<Renewed> {
    const { registry } = this.#ctx;
    this.#tries.takeTry(deviceId);
    const device = registry.entity('devices', deviceId);
    if (device?.deleted !== null) throw new PlatformError('badCredentials');
    const group = await this.#groupOf(deviceId);
    const fresh = await this.#makeFresh(device, present, group, csr);
    const until = new Date(this.#ctx.clock.now() + (group?.overlapDays ?? usual.overlapDays) * day).toISOString();
    const ended = await registry.transaction((tx) => this.#store(tx, device, present, fresh, until));
    await this.#settle(deviceId, ended);
    const { accountId, serialNumber, deviceTemplateId } = device;
    return { device: { id: deviceId, serialNumber, accountId, deviceTemplateId }, credential: shown(fresh) };
  }

  async renewMessage(deviceId: string, present: CredentialInForce, message: Buffer): Promise<Buffer> {
    try {
      const { credential } = await this.renew(deviceId, present, readMessage(message));
      return Buffer.from(JSON.stringify({ credential: { username: deviceId, ...credential } }));
    } catch (error) {
      const isTold = error instanceof PlatformError;
      if (!isTold) this.#ctx.log.error({ err: error, deviceId }, 'a credential could not be renewed');
      return Buffer.from(JSON.stringify({ error: errorBody(isTold ? error : failure('server')) }));
    }
  }

  async connected(deviceId: string, present: CredentialInForce): Promise<boolean> {
    if (!this.#ends.has(deviceId)) return false;
    return this.#endFormer(deviceId, ({ certificateId, generation }) =>
      'generation' in present ? generation === present.generation : certificateId === present.certificateId,
    );
  }

  /** Ends the former credentials whose time is over; the devices that have had one. */
  async endDue(): Promise<string[]> {
    const now = this.#ctx.clock.now();
    const due = [...this.#ends].filter(([, end]) => end <= now).map(([deviceId]) => deviceId);
    if (due.length === 0) return due;
    await this.#ctx.gate.work(async (away) => {
      for (const deviceId of due)
        await this.#endFormer(
          deviceId,
          ({ until, accountId }) => Date.parse(until) <= now && !away.includes(accountId),
        );
    });
    return due;
  }

  async #endFormer(deviceId: string, isOver: (row: Row<'renewals'>) => boolean): Promise<boolean> {
    const { registry, clock } = this.#ctx;
    const ended = await registry.transaction(async (tx) => {
      const row = await rowOf(tx, deviceId);
      if (!row) return nothingEnded;
      return isOver(row) ? endFormer(tx, row, timestamp(clock)) : undefined;
    });
    if (ended) await this.#settle(deviceId, ended);
    return ended !== undefined;
  }

  /** What follows a commit: connections that were made with what has ended end. */
  async #settle(deviceId: string, { certificateIds }: Ended): Promise<void> {
    const { registry, overlaps, revocations } = this.#ctx;
    overlaps.changed(deviceId, registry.credential(deviceId)?.previousUntil ?? null);
    const row = await rowOf(registry.query, deviceId);
    if (row) this.#ends.set(deviceId, Date.parse(row.until));
    else this.#ends.delete(deviceId);
    for (const id of certificateIds) revocations.certificateEnded(id);
    revocations.secretOverlaps(deviceId);
  }

  #groupOf(deviceId: string): Promise<Group | undefined> {
    return this.#ctx.registry.query
      .selectFrom('enrollments as e')
      .innerJoin('enrollmentGroups as g', 'g.id', 'e.groupId')
      .select(['g.issues', 'g.certificateAuthorityId', 'g.certificateDays', 'g.overlapDays'])
      .where('e.deviceId', '=', deviceId)
      .executeTakeFirst();
  }

  async #makeFresh(
    device: Device,
    present: CredentialInForce,
    group: Group | undefined,
    csr: string | undefined,
  ): Promise<NewCredential> {
    const { registry, clock, issuing, secrets } = this.#ctx;
    const { id: deviceId, accountId } = device;
    const lane = laneOfDevice(device);
    if (group?.issues === 'secret' || csr === undefined) {
      const needsCsr = group ? group.issues === 'certificate' : 'certificateId' in present;
      if (needsCsr) throw invalid('csr', 'is required: the device has a certificate');
      const secret = makeSecret();
      return { secret, hash: await secrets.hash(secret, lane) };
    }
    const signedBy =
      'certificateId' in present
        ? registry.entity('certificates', present.certificateId)?.certificateAuthorityId
        : null;
    const authorityId = group?.certificateAuthorityId ?? signedBy;
    if (!authorityId)
      throw invalid(
        'csr',
        'cannot be signed: no CA that issues belongs to the device, by its group or its certificate',
      );
    const authority = await findIssuer(registry.query, clock, accountId, authorityId, 'csr');
    const read = await issuing.readCsr(lane, csr);
    const days = group?.certificateDays ?? usual.days;
    return { leaf: await issuing.signLeaf(lane, authority, { deviceId, csr: read, days }) };
  }

  async #store(
    tx: Tx,
    { id: deviceId, accountId }: Device,
    present: CredentialInForce,
    fresh: NewCredential,
    until: string,
  ): Promise<Ended> {
    const { audit, clock } = this.#ctx;
    const now = timestamp(clock);
    const device = await findLive(tx, 'devices', accountId, deviceId);
    if (!device) throw new PlatformError('badCredentials');
    await demandInForce(tx, deviceId, present, now);
    const row = await rowOf(tx, deviceId);
    // Asked by the new one, the former one is needed no more; asked again by the former one, the new one was lost.
    const isByNew =
      row &&
      ('generation' in present ? row.generation === present.generation : row.certificateId === present.certificateId);
    const step = isByNew ? endFormer : endNew;
    const ended = row ? await step(tx, row, now) : nothingEnded;
    const caller: Caller = { kind: 'device', id: deviceId, accountId };
    const next = { certificateId: null as string | null, generation: null as number | null };
    if ('leaf' in fresh) next.certificateId = (await storeLeaf(tx, caller, deviceId, fresh.leaf)).id;
    else if (await replaceNewest(tx, caller, present, fresh.hash, now, until)) {
      // The present secret stays beside the new one.
    } else {
      const holder = { entityId: deviceId, entityType: 'device' } as const;
      const { credential } = await storeSecret(tx, caller, holder, fresh.hash, now, until);
      next.generation = credential.generation;
    }
    const isKept = 'leaf' in fresh || 'certificateId' in present;
    if (isKept) await keepFormer(tx, { deviceId, accountId, until, ...next }, present);
    await audit.record(tx, {
      event: 'credentialRenewed',
      outcome: 'success',
      accountId,
      actor: caller,
      target: { kind: 'device', id: deviceId },
      details: next.certificateId === null ? {} : { certificateId: next.certificateId },
    });
    return ended;
  }
}

/** Notes which credential ends when the new one has connected. */
async function keepFormer(
  tx: Tx,
  next: Pick<Row<'renewals'>, 'deviceId' | 'accountId' | 'certificateId' | 'generation' | 'until'>,
  present: CredentialInForce,
): Promise<void> {
  const former =
    'generation' in present
      ? { formerGeneration: present.generation, formerCertificateId: null }
      : { formerGeneration: null, formerCertificateId: present.certificateId };
  await tx
    .insertInto('renewals')
    .values({ ...next, ...former })
    .execute();
}

function rowOf(db: Tx | Registry['query'], deviceId: string): Promise<Row<'renewals'> | undefined> {
  return db.selectFrom('renewals').selectAll().where('deviceId', '=', deviceId).executeTakeFirst();
}

function laneOfDevice({ accountId, id }: Pick<Device, 'accountId' | 'id'>) {
  return { accountId, callerId: id };
}

function shown(fresh: NewCredential): Renewed['credential'] {
  if ('secret' in fresh) return { secret: fresh.secret };
  const { certificate, chain, expires } = fresh.leaf;
  return { certificate, chain, expires };
}

/** The request in a message: nothing, or JSON with `csr`. @throws PlatformError 400/106. */
function readMessage(message: Buffer): string | undefined {
  if (message.length === 0) return undefined;
  if (message.length > maxMessageLength) throw invalid('body', `has more than ${maxMessageLength} bytes`);
  const text = message.toString();
  let said: unknown;
  try {
    said = isNestedDeeply(text) ? undefined : JSON.parse(text);
  } catch {
    said = undefined;
  }
  if (typeof said !== 'object' || said === null || Array.isArray(said)) throw invalid('body', 'must be a JSON object');
  const { csr } = said as { csr?: unknown };
  if (csr !== undefined && typeof csr !== 'string') throw invalid('csr', 'must be a text');
  return csr;
}
