/** When so much of what is done to many devices has failed that it goes no further. */

/** Devices from which on the failures among them say something. */
export const minEnded = 5;

/** Of those that have ended. */
export interface Ended {
  failures: number;
  ended: number;
}

/** Whether more than so many percent of those that have ended have failed. */
export function areTooMany({ failures, ended }: Ended, maxFailurePercent: number): boolean {
  return ended > 0 && (failures * 100) / ended > maxFailurePercent;
}
