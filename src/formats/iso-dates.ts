const day = 86_400_000;
const [hour, minute, second] = [3_600_000, 60_000, 1000];

/**
 * Writes times, in milliseconds within the range of dates, as toISOString of Date does; several times as fast, because
 * the day of the time before is kept.
 */
export function isoDates(): (time: number) => string {
  let midnight = Number.NaN;
  let date = '';
  return (time) => {
    const start = Math.floor(time / day) * day;
    if (start !== midnight) {
      midnight = start;
      date = new Date(start).toISOString().slice(0, -'00:00:00.000Z'.length);
    }
    const rest = time - start;
    const seconds = `${two(rest / hour)}:${two((rest % hour) / minute)}:${two((rest % minute) / second)}`;
    return `${date}${seconds}.${String(1000 + (rest % second)).slice(1)}Z`;
  };
}

function two(number: number): string {
  return number < 10 ? `0${Math.floor(number)}` : `${Math.floor(number)}`;
}
