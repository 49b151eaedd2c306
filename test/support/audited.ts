/** The audit record, as admins see it. */
import type { Service } from './service.ts';
import { until } from './until.ts';

/** Records that a query finds, once there are `count`: what is noted in the background comes a moment later. */
export async function audited(service: Service, query: string, count = 1, token = service.admin) {
  const path = `/api/v1/audit?accountId=${service.accountId}&pageSize=1000&${query}` as const;
  return until(
    async () => (await service.ok('GET', path, { token })).auditRecords.results,
    (records) => records.length >= count,
  );
}
