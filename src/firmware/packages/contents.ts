/** The end of uploads that were given up, and of contents that no package uses. */
import type { Logger } from 'pino';
import type { FirmwareFiles } from '../../../db/files/firmware.ts';
import type { Registry } from '../../../db/registry/index.ts';
import { type Clock, monotonic } from '../../core/clock.ts';

/** How long an upload may rest, and an unused content stays for a backup that is being made; milliseconds. */
const keptFor = 24 * 60 * 60_000;

/** Removes uploads that have rested for a day, and contents that no package has had for as long. */
export class Collector {
  readonly #services: { registry: Registry; firmware: FirmwareFiles; clock: Clock; ages: Clock; log: Logger };
  /** Since when a content has been unused, milliseconds. */
  readonly #unused = new Map<string, number>();

  constructor(services: { registry: Registry; firmware: FirmwareFiles; clock: Clock; ages: Clock; log: Logger }) {
    this.#services = services;
  }

  /** One round. Never rejects. */
  async removeUnused(): Promise<void> {
    try {
      await this.#endUploads();
      await this.#dropUnused();
    } catch (error) {
      this.#services.log.error({ err: error }, 'unused firmware files could not be removed');
    }
  }

  async #endUploads(): Promise<void> {
    const { registry, firmware, ages } = this.#services;
    const before = new Date(ages.now() - keptFor).toISOString();
    const old = await registry.query
      .selectFrom('firmwareUploads')
      .select(['packageId', 'name', 'partial'])
      .where('touched', '<', before)
      .execute();
    for (const { packageId, name, partial } of old) {
      const gone = registry.query.deleteFrom('firmwareUploads').where('packageId', '=', packageId);
      const { numDeletedRows } = await gone.where('name', '=', name).where('touched', '<', before).executeTakeFirst();
      if (numDeletedRows > 0n) await firmware.dropPartial(partial);
    }
    const known = new Set(
      (await registry.query.selectFrom('firmwareUploads').select('partial').execute()).map((one) => one.partial),
    );
    // Of uploads whose package is gone; a young one may be about to be noted.
    for (const partial of firmware.partials())
      if (!known.has(partial) && Date.now() - firmware.partialAge(partial) > keptFor)
        await firmware.dropPartial(partial);
  }

  async #dropUnused(): Promise<void> {
    const { firmware, clock } = this.#services;
    for (const sha256 of firmware.contents())
      await firmware.exclusive(sha256, async () => {
        if (await this.#isUsed(sha256)) {
          this.#unused.delete(sha256);
          return;
        }
        const since = this.#unused.get(sha256) ?? monotonic(clock);
        this.#unused.set(sha256, since);
        if (monotonic(clock) - since < keptFor) return;
        await firmware.removeContent(sha256);
        this.#unused.delete(sha256);
      });
  }

  async #isUsed(sha256: string): Promise<boolean> {
    const rows = this.#services.registry.query.selectFrom('firmwareFiles').select('packageId');
    return (await rows.where('sha256', '=', sha256).limit(1).executeTakeFirst()) !== undefined;
  }
}
