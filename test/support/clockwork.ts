/** What a service does by its timers, done now: no test waits for an hour. */

import { warnOfExpiry } from '../../src/certificates/expiry.ts';
import { purge } from '../../src/operations/purge/purge.ts';
import type { Service } from './service.ts';

/** Ends what is due, as once an hour. `isStopped` is asked between the steps. */
export const purgeNow = ({ server }: Service, isStopped?: () => boolean): Promise<void> =>
  purge({ ...server.ctx, clock: server.ctx.ages }, isStopped);

/** Warns of what expires soon, as once a day. */
export const warnNow = ({ server }: Service): void => warnOfExpiry(server.ctx);

/** Looks for jobs that are over, as each minute. */
export const lookAtJobs = ({ server }: Service): void => server.ctx.jobs.destroyDueResults();

/** Fetches the revocation lists that are due, as each minute; also waits for those under way. */
export const fetchListsNow = ({ server }: Service): Promise<void> => server.ctx.listFetcher.fetchDue();
