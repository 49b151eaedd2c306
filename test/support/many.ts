import type { Answer } from './service.ts';

/** Sends many requests, twenty at a time, and counts the answers by their status. */
export async function countStatuses(
  count: number,
  send: (n: number) => Promise<Answer>,
): Promise<Record<number, number>> {
  const counts: Record<number, number> = {};
  for (let from = 0; from < count; from += 20) {
    const length = Math.min(20, count - from);
    const answers = await Promise.all(Array.from({ length }, (_, place) => send(from + place)));
    for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}
