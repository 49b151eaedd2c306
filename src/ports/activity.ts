/** What goes on in the accounts: the running five minutes, which are in the registry when they have ended. */

/** Milliseconds of a point. */
export const activityStep = 5 * 60_000;

/** When the five minutes of `now` began; milliseconds. */
export function stepOf(now: number): number {
  return now - (now % activityStep);
}

/** Messages and refusals of some time; `causes` are the refusals by their cause. */
export interface Activity {
  messages: number;
  refusals: number;
  causes: Readonly<Record<string, number>>;
}

/** What is counted of an account and is not in the registry. */
export interface RunningActivity extends Activity {
  /** The mean of the last minute. */
  messagesPerSecond: number;
}
