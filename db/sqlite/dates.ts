/** Dates as texts that sort by time. Apart from src, because connections to registry.db have this as a function of SQL. */

/** An ISO 8601 date or date-time as epoch milliseconds; without a zone it is UTC. */
export function parseDate(value: unknown): number | undefined {
  if (typeof value !== 'string') return undefined;
  const match =
    /^(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)(Z|[+-]\d{2}(?::?\d{2})?)?)?$/.exec(value);
  if (!match) return undefined;
  const [, year, month, day, time = '00:00', zone = 'Z'] = match;
  const offset = zone === 'Z' ? zone : zone.length === 3 ? `${zone}:00` : zone.replace(/(\d{2}):?(\d{2})$/, '$1:$2');
  const [clock, fraction = ''] = time.replace(',', '.').split('.');
  const milliseconds = Date.parse(`${year}-${month}-${day}T${clock}${fraction && `.${fraction.slice(0, 3)}`}${offset}`);
  // Date.parse carries 30 February over into March.
  const lastDay = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  return Number.isNaN(milliseconds) || Number(day) > lastDay ? undefined : milliseconds;
}

/** The first and the last instant whose texts sort by time. */
const [earliest, latest] = [Date.parse('0000-01-01T00:00:00Z'), Date.parse('9999-12-31T23:59:59.999Z')];

/** Milliseconds since 1970 as dates are stored, in UTC; null if they are beyond the years 0 to 9999. */
export function instantOf(time: number | undefined): string | null {
  return time !== undefined && time >= earliest && time <= latest ? new Date(time).toISOString() : null;
}
