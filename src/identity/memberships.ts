/** How many organizations one person is an end-user of: every check of a right and every list of it looks through them. */
import type { Tx } from '../../db/registry/index.ts';
import type { Row } from '../../db/registry/records.ts';
import { demandWithin, type Limits } from '../core/limits/table.ts';

/**
 * Checks that the person of an end-user is one no more often than the limit; inside the transaction that has written it.
 * @throws PlatformError 400 with 106.
 */
export async function demandMembershipRoom(
  tx: Tx,
  limits: Limits,
  { userId }: Pick<Row<'endUsers'>, 'userId'>,
): Promise<void> {
  if (userId === null) return;
  const { count } = await tx
    .selectFrom('endUsers')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('userId', '=', userId)
    .where('deleted', 'is', null)
    .executeTakeFirstOrThrow();
  demandWithin(limits, 'endUsersPerPerson', Number(count), 'userId');
}
