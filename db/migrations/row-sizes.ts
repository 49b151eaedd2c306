/** What migrations count of rows. Apart from them, because the thread that writes messages loads no Kysely. */

/** Bytes on disk of a row with a payload of so many bytes, in a table that is sorted by its key: a page holds four rows at least. */
export const sorted = (bytes: string) => `CASE WHEN ${bytes} <= 1002 THEN (${bytes}) * 9 / 8
  WHEN (${bytes} - 489) % 4092 <= 513 THEN 489 + (${bytes} - 489) % 4092 + 4096 * ((${bytes} - 489) / 4092)
  ELSE 4585 + 4096 * ((${bytes} - 489) / 4092) END`;
/** The same in a table that is numbered: a row of half a page has a page of its own. */
export const numbered = (bytes: string) =>
  `CASE WHEN ${bytes} <= 4061 THEN 4096 / (4088 / (${bytes} + 8)) ELSE 300 + 4096 * ((${bytes} + 4091) / 4092) END`;
export const texts = (row: string, ...columns: string[]) =>
  columns.map((column) => `octet_length(${row}"${column}")`).join(' + ');

/** Of a message that was kept for a bridge before there were properties. */
export const outboxSizeWithoutProperties = (row: string) => `250 + ${numbered(`(250 + ${texts(row, 'payload')})`)}`;

/** Bytes of the properties of a message. */
export const propertiesSize = (row: string) => `coalesce(octet_length(${row}"properties"), 0)`;
/** Of a message that is kept for a bridge. */
export const outboxSize = (row: string) =>
  `250 + ${numbered(`(250 + ${texts(row, 'payload')} + ${propertiesSize(row)})`)}`;
/** Bytes of a retained message, for the limit of its account. */
export const retainedSize = (row: string) => `(${texts(row, 'topic', 'payload')} + ${propertiesSize(row)})`;
