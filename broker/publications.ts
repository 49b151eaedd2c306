import type { Tx } from '../db/registry/index.ts';
import { type Entry, Gathered } from '../src/core/limits/gathered.ts';
import type { BrokerServices } from '../src/ports/broker-ports.ts';
import type { LiveClient } from './client-types.ts';
import type { DeviceSigns } from './http/device-signs.ts';

/** Milliseconds between two looks. */
const lookInterval = 250;
/** Devices of one look; a reconnect storm is spread over several, so that other writers get their turn. */
const devicesPerLook = 500;

type PublicationServices = Pick<BrokerServices, 'registry' | 'clock' | 'log'>;

/** The first message of a connection: when, and with which secret (undefined: with none). */
interface First {
  time: string;
  generation: number | undefined;
}

/**
 * Records which devices have published since they were provisioned; `verify` asks for it. Only the first message of a
 * connection is looked at, later and many at once, so that no PUBLISH waits.
 */
export class Publications {
  readonly #services: PublicationServices;
  readonly #signs: DeviceSigns;
  readonly #firsts = new Gathered<First>({
    ...{ interval: lookInterval, atOnce: devicesPerLook },
    write: (entries) => this.#look(entries),
  });

  constructor(services: PublicationServices, signs: DeviceSigns) {
    this.#services = services;
    this.#signs = signs;
  }

  /** A message of this connection has been accepted; not called again, unless somebody waits for the device. */
  first(live: LiveClient): void {
    live.hasPublished = true;
    const { identity } = live;
    if (identity?.caller.kind !== 'device') return;
    const { principal, generation, caller } = identity;
    // Messages sent with a former secret do not prove that the new one works, and do not replace such a proof.
    if (generation !== undefined && this.#services.registry.credential(principal)?.generation !== generation) return;
    const time = new Date(this.#services.clock.now()).toISOString();
    this.#firsts.putValue(caller.accountId, principal, { time, generation });
    if (this.#signs.isWatched(principal)) this.#firsts.hurry();
  }

  /** Writes everything that is waiting. */
  flush(): Promise<void> {
    return this.#firsts.flush();
  }

  async #look(entries: ReadonlyArray<Entry<First>>): Promise<void> {
    const { registry, log } = this.#services;
    const firsts = new Map(entries.map(({ key, value }) => [key, value]));
    const ids = [...firsts.keys()];
    try {
      const known = await registry.query
        .selectFrom('publications')
        .select('deviceId')
        .where('deviceId', 'in', ids)
        .execute();
      for (const { deviceId } of known) firsts.delete(deviceId);
      if (firsts.size > 0) await registry.transaction((tx) => store(tx, firsts));
    } catch (error) {
      log.error({ err: error, devices: ids.length }, 'first messages could not be noted');
    }
    for (const deviceId of ids) this.#signs.sign(deviceId);
    if (this.#firsts.keys.some((deviceId) => this.#signs.isWatched(deviceId))) this.#firsts.hurry();
  }
}

/** Those that were published with what is in force now: a secret may have been made, or a certificate, in between. */
async function store(tx: Tx, firsts: ReadonlyMap<string, First>): Promise<void> {
  const ids = [...firsts.keys()];
  const credentials = await tx
    .selectFrom('credentials')
    .select(['entityId', 'generation', 'lastModified'])
    .where('entityId', 'in', ids)
    .execute();
  const certificates = await tx
    .selectFrom('certificates')
    .select((eb) => ['entityId', eb.fn.max('created').as('created')])
    .where('entityId', 'in', ids)
    .where('deleted', 'is', null)
    .groupBy('entityId')
    .execute();
  const secrets = new Map(credentials.map((credential) => [credential.entityId, credential]));
  const registered = new Map(certificates.map(({ entityId, created }) => [entityId, created]));
  const rows = [...firsts].flatMap(([deviceId, { time, generation }]) => {
    const secret = secrets.get(deviceId);
    const isNewest =
      generation === undefined ? !secret || secret.lastModified <= time : secret?.generation === generation;
    return isNewest && (registered.get(deviceId) ?? '') <= time ? [{ deviceId, time }] : [];
  });
  if (rows.length === 0) return;
  await tx
    .insertInto('publications')
    .values(rows)
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}
