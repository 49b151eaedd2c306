/** Enrollment groups and CAs, as the API answers them. */
import { api, unwrap } from '../app/api.ts';
import { accountId } from '../app/session.ts';
import { texts } from '../texts.ts';

export async function readGroup(id: string) {
  return (await unwrap(api.GET('/api/v1/enrollment-groups/{id}', { params: { path: { id } } }))).enrollmentGroup;
}
export type Group = Awaited<ReturnType<typeof readGroup>>;

export async function readAuthorities(page = 1, pageSize = 100) {
  const query = { accountId: accountId.value, page, pageSize };
  return (await unwrap(api.GET('/api/v1/access/certificate-authorities', { params: { query } })))
    .certificateAuthorities;
}
export type Authority = NonNullable<Awaited<ReturnType<typeof readAuthorities>>['results']>[number];

const states = texts.enrollment.states;

/** Whether a group takes devices now. */
export function stateOf(group: Group): { kind: 'good' | 'bad' | 'warn'; text: string } {
  const now = Date.now();
  const { disabled, validFrom, validUntil, maxDevices, enrolledCount } = group;
  if (disabled) return { kind: 'bad', text: states.disabled };
  if (validFrom && Date.parse(validFrom) > now) return { kind: 'warn', text: states.early };
  if (validUntil && Date.parse(validUntil) <= now) return { kind: 'bad', text: states.over };
  if (maxDevices !== null && enrolledCount >= maxDevices) return { kind: 'warn', text: states.full };
  return { kind: 'good', text: states.open };
}

const day = 86_400_000;
/** Days before its end that a certificate needs somebody. */
const warnedDays = 30;

export function endsSoon(validTo: string): 'bad' | 'warn' | undefined {
  const left = Date.parse(validTo) - Date.now();
  if (left <= 0) return 'bad';
  return left < warnedDays * day ? 'warn' : undefined;
}
