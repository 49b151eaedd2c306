import type { Options } from 'csv-parse';

/**
 * How a CSV file of people is read that begins with `head`, by the API, the command and the console. Its columns are separated by what
 * the header has: commas, semicolons or tabs. Lines may end in CR LF, LF or CR, mixed too, as files that several programs have
 * written; empty lines, and rows of separators alone, are skipped.
 */
export function csvOptionsOf(
  head: string,
): Pick<
  Options,
  'bom' | 'record_delimiter' | 'skip_empty_lines' | 'skip_records_with_empty_values' | 'delimiter' | 'from_line'
> {
  const [, said] = separatorLine.exec(head) ?? [];
  return {
    bom: true,
    record_delimiter: ['\r\n', '\n', '\r'],
    skip_empty_lines: true,
    skip_records_with_empty_values: true,
    delimiter: said ?? separatorOf(head),
    ...(said !== undefined && { from_line: 2 }),
  };
}

/** The first line by which a file tells Excel its separator. */
const separatorLine = /^\ufeff?"?sep=([,;\t])"?[ ,;\t]*[\r\n]/i;
/** What stands beside a column that every file for the API has. */
const besideSerialNumber = /(?<=serialNumber"?[ \u00a0]*)[,;\t]|[,;\t](?=[ \u00a0]*"?serialNumber)/;

/** Names have commas more often than semicolons, and never tabs: where a header has several, the rarest separates. */
function separatorOf(head: string): string {
  const header = /[^\s,;\ufeff][^\r\n]*/.exec(head)?.[0] ?? '';
  const [beside] = besideSerialNumber.exec(header) ?? [];
  const bare = header.replaceAll(/"(?:[^"]|"")*(?:"|$)/g, '');
  return beside ?? ['\t', ';'].find((one) => bare.includes(one)) ?? ',';
}
