/** Times and numbers as the person's own language and place write them. */
export const wholeTimes = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
/** Three digits after the point, and six in all where that says more: small numbers are not 0. */
export const numbers = new Intl.NumberFormat(undefined, {
  maximumFractionDigits: 3,
  maximumSignificantDigits: 6,
  roundingPriority: 'morePrecision',
});
const maxDigits = 20;

/** Numbers that are `step` apart, for an axis: with as many digits as tell them apart. */
export function numbersApart(values: readonly number[], step: number): string[] {
  let digits = 0;
  // 2.5 has one digit after the point, 0.25 two; what is left is the error of binary numbers.
  for (let rest = step; digits < maxDigits && Math.abs(rest - Math.round(rest)) > rest / 1000; rest *= 10) digits += 1;
  const format = new Intl.NumberFormat(undefined, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  // Zero may come as a tiny number of either sign.
  return values.map((value) => format.format(Math.abs(value) < step / 1000 ? 0 : value));
}

const day = 86_400;
const dates = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
// "02:00" where a day has 24 hours, "2:00 AM" where it has twice twelve.
const isHalved = new Intl.DateTimeFormat(undefined, { hour: 'numeric' }).resolvedOptions().hour12;
const clock = { hour: isHalved ? 'numeric' : '2-digit', minute: '2-digit' } as const;
const minutes = new Intl.DateTimeFormat(undefined, clock);
const seconds = new Intl.DateTimeFormat(undefined, { ...clock, second: '2-digit' });

/** The time of a moment in milliseconds, with its date if that is not today's. */
export function clockTime(time: number): string {
  const isToday = new Date(time).toDateString() === new Date().toDateString();
  return (isToday ? minutes : wholeTimes).format(time);
}

/** Times in seconds, `step` apart, for the axis of a chart: midnight has its date. */
export function shortTimes(times: readonly number[], step: number): string[] {
  return times.map((time) => {
    const date = new Date(time * 1000);
    if (step >= day || (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0))
      return dates.format(date);
    return (step < 60 ? seconds : minutes).format(date);
  });
}

const wholeDates = new Intl.DateTimeFormat(undefined, { dateStyle: 'full' });
const days = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });

/** The day of a moment: today and yesterday by their names. */
export function dayText(iso: string): string {
  const midnight = (time: Date) => new Date(time.getFullYear(), time.getMonth(), time.getDate()).getTime();
  const ago = Math.round((midnight(new Date()) - midnight(new Date(iso))) / (day * 1000));
  if (ago > 1) return wholeDates.format(new Date(iso));
  const text = days.format(-ago, 'day');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A moment as the value of a field of local time. */
export function localTime(moment: number | string): string {
  const time = new Date(moment);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
