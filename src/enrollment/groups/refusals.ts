/** What groups have refused, written soon after: the last ones of each group, however many come. */

import type { Logger } from 'pino';
import type { Registry, Tx } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Clock } from '../../core/clock.ts';
import { timestamp } from '../../core/clock.ts';
import { type Entry, Gathered } from '../../core/limits/gathered.ts';

/** Kept of each group; of these, those that strangers may fill, who have proven nothing. */
export const keptOfGroup = 100;
export const keptUnproven = 20;
/** Milliseconds between two writes; rows of one, and rows in memory. */
const writeInterval = 1000;
const rowsPerWrite = 1000;
const maxWaiting = 10_000;
const maxTextLength = 255;

type Noted = Omit<Row<'enrollmentRefusals'>, 'sequence' | 'groupId' | 'accountId'>;

export class EnrollmentRefusals {
  readonly #ctx: { registry: Registry; clock: Clock; log: Logger };
  readonly #noted: Gathered<Noted[]>;

  constructor(ctx: { registry: Registry; clock: Clock; log: Logger }) {
    this.#ctx = ctx;
    this.#noted = new Gathered({
      ...{ interval: writeInterval, atOnce: rowsPerWrite, most: maxWaiting },
      weigh: (noted) => noted.length,
      merge: (before, later) => newest([...before, ...later]),
      write: (entries) => this.#write(entries),
    });
  }

  note(
    { id, accountId }: { id: string; accountId: string },
    {
      serialNumber,
      address,
      reason,
      proven,
    }: { serialNumber?: string | undefined; address: string; reason: string; proven: boolean },
  ): void {
    const text = serialNumber === undefined ? null : cut(serialNumber);
    const noted = { serialNumber: text, address: address || null, reason: cut(reason), proven: proven ? 1 : 0 };
    this.#noted.putValue(accountId, id, [{ time: timestamp(this.#ctx.clock), ...noted }]);
  }

  /** Resolves when what has been noted of a group can be read. */
  async written(accountId: string, groupId: string): Promise<void> {
    await this.#noted.written(accountId, groupId);
  }

  /** Writes everything that waits. */
  close(): Promise<void> {
    return this.#noted.flush();
  }

  /** Never rejects. */
  async #write(entries: ReadonlyArray<Entry<Noted[]>>): Promise<void> {
    try {
      await this.#ctx.registry.transaction(async (tx) => {
        for (const { key: groupId, accountId, value } of entries) {
          // A group may have been purged meanwhile.
          const group = tx.selectFrom('enrollmentGroups').select('id').where('id', '=', groupId);
          if (!(await group.executeTakeFirst())) continue;
          const rows = value.map((noted) => ({ groupId, accountId, ...noted }));
          await tx.insertInto('enrollmentRefusals').values(rows).execute();
          await forgetOld(tx, groupId);
        }
      });
    } catch (error) {
      this.#ctx.log.error({ err: error, groups: entries.length }, 'refusals of enrollments could not be written');
    }
  }
}

function newest(noted: Noted[]): Noted[] {
  const strangers = noted.filter(({ proven }) => proven === 0);
  const old = new Set(strangers.slice(0, -keptUnproven));
  return noted.filter((one) => !old.has(one)).slice(-keptOfGroup);
}

async function forgetOld(tx: Tx, groupId: string): Promise<void> {
  const rows = tx.selectFrom('enrollmentRefusals').where('groupId', '=', groupId).orderBy('sequence', 'desc');
  const all = await rows.select(['sequence', 'proven']).execute();
  const strangers = all.filter(({ proven }) => proven === 0).slice(keptUnproven);
  const gone = new Set([...strangers, ...all.slice(keptOfGroup)].map(({ sequence }) => sequence));
  if (gone.size > 0)
    await tx
      .deleteFrom('enrollmentRefusals')
      .where('sequence', 'in', [...gone])
      .execute();
}

/** A copy: a slice alone would keep the whole text in memory. */
function cut(text: string): string {
  return text.length <= maxTextLength ? text : Buffer.from(text.slice(0, maxTextLength).toWellFormed()).toString();
}
