import type { Options } from 'csv-parse';

/**
 * How CSV files of people are read, by the API and by the command: lines may end in CR LF, LF or CR, mixed too, as files that
 * several programs have written; empty lines, and rows of commas alone, are skipped.
 */
export const csvOptions: Pick<
  Options,
  'bom' | 'record_delimiter' | 'skip_empty_lines' | 'skip_records_with_empty_values'
> = {
  bom: true,
  record_delimiter: ['\r\n', '\n', '\r'],
  skip_empty_lines: true,
  skip_records_with_empty_values: true,
};
