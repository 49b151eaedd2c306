/** What enrollment groups and certificates come to now. */
import type { Entity } from '../app/entities.ts';
import { texts } from '../texts.ts';

export type Group = Entity<'enrollmentGroup'>;

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
