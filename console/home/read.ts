/** What Home shows, in one answer. */
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';

export async function readOverview() {
  const query = { accountId: accountId.value };
  return (await unwrap(api.GET('/api/v1/overview', { params: { query } }))).overview;
}
export type OverviewOf = Awaited<ReturnType<typeof readOverview>>;
