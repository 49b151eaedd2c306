/** Connected devices, messages and refusals of an account by five minutes, the running ones included. */
import { activityStep, stepOf } from '../ports/activity.ts';
import type { OverviewRequest } from './reading.ts';
import type { Overview } from './shape.ts';

const hour = 60 * 60_000;
const day = 24 * hour;

/** `causes` are refusals of the last day, by cause. */
export type History = Required<Pick<Overview, 'messages' | 'refusals' | 'history'>> & { causes: Map<string, number> };

/** `counts` say how many devices are connected now. */
export async function historyOf(
  { broker, caller, clock, read, registry }: OverviewRequest,
  hours: number,
  counts: Promise<{ online: number }>,
): Promise<History> {
  const { accountId } = caller;
  const now = clock.now();
  const running = broker.runningActivity(accountId);
  const first = stepOf(now - hours * hour);
  const dayBegin = stepOf(now - day);
  const rows = await read(
    registry.query
      .selectFrom('activity')
      .select(['time', 'connected', 'messages', 'refusals', 'causes'])
      .where('accountId', '=', accountId)
      .where('time', '>=', Math.min(first, dayBegin)),
  );
  const last = stepOf(now);
  const points = new Map(rows.map((row) => [row.time, row]));
  const own = points.get(last);
  points.set(last, {
    time: last,
    connected: (await counts).online,
    messages: running.messages + (own?.messages ?? 0),
    refusals: running.refusals + (own?.refusals ?? 0),
    causes: '{}',
  });
  const causes = new Map(Object.entries(running.causes));
  for (const row of rows)
    if (row.time >= dayBegin)
      for (const [cause, count] of Object.entries(JSON.parse(row.causes) as Record<string, number>))
        causes.set(cause, (causes.get(cause) ?? 0) + count);
  const ofDay = [...points.values()].filter(({ time }) => time >= dayBegin);
  const sumOf = (name: 'messages' | 'refusals') => ofDay.reduce((all, row) => all + row[name], 0);
  const messages = sumOf('messages');
  const history = [];
  for (let time = first; time <= last; time += activityStep) {
    const { connected = 0, messages = 0, refusals = 0 } = points.get(time) ?? {};
    history.push({ time: new Date(time).toISOString(), connected, messages, refusals });
  }
  return {
    messages: {
      perSecond: running.messagesPerSecond,
      perSecondLastDay: (messages * 1000) / day,
      lastDay: messages,
    },
    refusals: { lastDay: sumOf('refusals') },
    history,
    causes,
  };
}
