import type { Tx } from '../db/registry/index.ts';
import type { Caller } from '../src/core/caller.ts';
import { type Entry, Gathered } from '../src/core/limits/gathered.ts';
import { keepNewest } from '../src/core/limits/kept.ts';
import { networkOf } from '../src/core/limits/networks.ts';
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import type { Activity } from './activity.ts';

/** Kept of each device; more than that at once are not worth writing. */
const keptPerDevice = 50;
/** Of these, the most that strangers may fill: CONNECTs that proved nothing. */
const keptUnproven = 10;
/** Milliseconds between two writes. */
const writeInterval = 1000;
/** Rows in one transaction, and in memory: past it the account that has most loses those of the device that have waited longest. */
const rowsPerWrite = 1000;
const maxWaiting = 10_000;
/** Characters. */
const maxTopicLength = 512;
const maxReasonLength = 300;
const maxClientIdLength = 128;

/** The refused caller, in the form of `POST /permissions/explain`; a user is an identity, with any of its secrets. */
export interface RefusedPrincipal {
  type: 'device' | 'user' | 'application';
  id: string;
}

/** Why something of a device was refused. `reason` is a sentence without a secret, with the variable of a limit. */
export interface Refusal {
  action: 'connect' | 'publish' | 'subscribe';
  /** Null for a CONNECT. */
  topic: string | null;
  reason: string;
  /** The same for programs: a reason of `reasons.ts`, why a CONNECT was refused, or a limit. */
  cause: string;
  /** As on `_rejected`; CONNACK's for a CONNECT. */
  code: number;
  address: string | undefined;
  clientId: string | undefined;
  /** The device itself, or who spoke to it; undefined for a CONNECT that proved nothing. */
  principal: RefusedPrincipal | undefined;
}

/** `origin` of a CONNECT that proved nothing: those with the same one are one line. */
type Noted = Refusal & { time: string; origin: string | undefined };

type RefusalServices = Pick<BrokerServices, 'access' | 'clock' | 'config' | 'gate' | 'log' | 'registry'>;

/** Keeps refusals of each device and writes them to the registry soon after, at a bounded cost. */
export class Refusals {
  readonly #services: RefusalServices;
  readonly #activity: Pick<Activity, 'refusal'>;
  /** By device, a few of each. */
  readonly #noted: Gathered<Noted[]>;

  constructor(services: RefusalServices, activity: Pick<Activity, 'refusal'>) {
    this.#services = services;
    this.#activity = activity;
    this.#noted = new Gathered({
      ...{ interval: writeInterval, atOnce: rowsPerWrite, most: maxWaiting },
      weigh: (noted) => noted.length,
      merge: (before, later) => later.reduce(withOne, before),
      write: (entries) => this.#write(entries),
    });
  }

  /** Notes a refusal in the list of a device that exists, live or in the trash. */
  note(deviceId: string, refusal: Refusal): void {
    const accountId = this.#services.access.placement(deviceId)?.accountId;
    // Of an account that is on its way to another server, it is tried again there.
    if (accountId === undefined || this.#services.gate.isAway(accountId)) return;
    this.#activity.refusal(accountId, refusal.cause);
    const time = new Date(this.#services.clock.now()).toISOString();
    const origin = originOf({ ...refusal, isProven: refusal.principal !== undefined });
    this.#noted.putValue(accountId, deviceId, [{ ...shortened(refusal), time, origin }]);
  }

  /** Resolves when what has been noted of a device is in the registry. */
  async stored(deviceId: string): Promise<void> {
    const accountId = this.#services.access.placement(deviceId)?.accountId;
    if (accountId !== undefined) await this.#noted.written(accountId, deviceId);
  }

  /** Writes everything that is waiting. */
  flush(): Promise<void> {
    return this.#noted.flush();
  }

  /** Never rejects. */
  async #write(entries: ReadonlyArray<Entry<Noted[]>>): Promise<void> {
    const { registry, config, log } = this.#services;
    const ids = entries.map(({ key }) => key);
    try {
      await registry.transaction(async (tx) => {
        // A device may have been purged meanwhile.
        const rows = await tx.selectFrom('devices').select(['id', 'accountId']).where('id', 'in', ids).execute();
        const accounts = new Map(rows.map(({ id, accountId }) => [id, accountId]));
        for (const { key: deviceId, value: noted } of entries) {
          const accountId = accounts.get(deviceId);
          if (accountId === undefined) continue;
          await tx
            .insertInto('refusals')
            .values(noted.map((one) => toRow({ accountId, deviceId }, one)))
            .execute();
          await forgetOld(tx, deviceId);
          await keepNewest(tx, config.limits, 'refusals', accountId, noted.length);
        }
      });
    } catch (error) {
      log.error({ err: error, devices: ids.length }, 'refusals could not be written');
    }
  }
}

/** What is noted of a device, with one more. */
function withOne(noted: Noted[], one: Noted): Noted[] {
  const leaving = leavingFor(one.origin, noted);
  return [...noted.filter((former) => former !== leaving), one];
}

/** The refusal that a new one replaces: the former one of its origin, or the oldest if its share is full. */
function leavingFor(origin: string | undefined, noted: Noted[]): Noted | undefined {
  const isOwn = origin === undefined;
  const place = noted.filter((one) => (one.origin === undefined) === isOwn);
  const former = isOwn ? undefined : place.find((one) => one.origin === origin);
  return former ?? (place.length < (isOwn ? keptPerDevice : keptUnproven) ? undefined : place[0]);
}

/** Keeps the newest line of each origin and ten of these; the device's own have the rest of the fifty. */
async function forgetOld(tx: Tx, deviceId: string): Promise<void> {
  const rows = await tx
    .selectFrom('refusals')
    .select(['sequence', 'action', 'principalId', 'address', 'reason'])
    .where('deviceId', '=', deviceId)
    .orderBy('sequence', 'desc')
    .execute();
  const origins = new Set<string>();
  const [own, old]: [number[], number[]] = [[], []];
  for (const { sequence, principalId, ...row } of rows) {
    const origin = originOf({ ...row, isProven: principalId !== null });
    if (origin === undefined) own.push(sequence);
    else if (origins.has(origin) || origins.size === keptUnproven) old.push(sequence);
    else origins.add(origin);
  }
  old.push(...own.slice(keptPerDevice - origins.size));
  if (old.length > 0) await tx.deleteFrom('refusals').where('sequence', 'in', old).execute();
}

/** By what a CONNECT that proved nothing is one with others: from where, counted as limits count, and why. */
function originOf(refusal: { action: string; isProven: boolean; address?: string | null | undefined; reason: string }) {
  if (refusal.action !== 'connect' || refusal.isProven) return undefined;
  return `${networkOf(refusal.address ?? '')} ${refusal.reason}`;
}

/** The kept part, cut when it is noted: thousands may wait, with topics of up to 64 KiB each. */
function shortened(refusal: Refusal): Refusal {
  return {
    ...refusal,
    topic: refusal.topic === null ? null : cut(refusal.topic, maxTopicLength),
    reason: cut(refusal.reason, maxReasonLength),
    clientId: refusal.clientId === undefined ? undefined : cut(refusal.clientId, maxClientIdLength),
  };
}

/** A copy: a slice alone would keep the whole text in memory. */
function cut(text: string, most: number): string {
  return text.length <= most ? text : Buffer.from(text.slice(0, most).toWellFormed()).toString();
}

function toRow(
  of: { accountId: string; deviceId: string },
  { time, action, topic, reason, cause, code, address, clientId, principal }: Noted,
) {
  return {
    ...of,
    time,
    action,
    topic,
    reason,
    cause,
    code,
    address: address ?? null,
    clientId: clientId ?? null,
    principalType: principal?.type ?? null,
    principalId: principal?.id ?? null,
  };
}

/** A caller as a refusal names it. */
export function refusedPrincipal({ kind, id }: Pick<Caller, 'kind' | 'id'>): RefusedPrincipal {
  if (kind === 'device') return { type: 'device', id };
  return { type: kind === 'backEnd' || kind === 'endUserApp' ? 'application' : 'user', id };
}
