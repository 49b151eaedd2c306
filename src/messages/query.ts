import { parseDate } from '../entity/values.js';
import { invalid } from '../errors.js';

/**
 * A date in a query as milliseconds since 1970; undefined when it is absent.
 * @throws PlatformError 400 with 106 naming `path` when it is no ISO 8601 date.
 */
export function readDate(path: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const time = parseDate(text);
  // The + of an offset is a blank in a query.
  const hint = / \d\d:?\d\d$/.test(text) ? '; in a query a + is sent as %2B' : '';
  if (time === undefined) throw invalid(path, `must be an ISO 8601 date${hint}`);
  return time;
}
