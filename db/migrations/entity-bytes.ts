/** Statements of migrations that make triggers count the bytes of an account's entities: its share of the disk. */

/** What a row takes on disk, about, with its places in indexes: so many bytes, and its texts, each as often as it is stored. */
export interface RowSize {
  row: number;
  texts?: Record<string, number>;
}

/** Adds to what is kept of an account, in a trigger. */
export const addKept = (row: 'NEW' | 'OLD', what: string, amount: string, when = 'TRUE') =>
  `INSERT INTO "kept" SELECT ${row}."accountId", '${what}', ${amount} WHERE ${when}
   ON CONFLICT DO UPDATE SET "amount" = "amount" + excluded."amount";`;
export const trigger = (name: string, when: string, body: string) =>
  `CREATE TRIGGER "${name}" AFTER ${when} BEGIN ${body} END`;

const textBytes = (of: string, column: string, times: number) =>
  `${2 * times} * coalesce(octet_length(${of}"${column}"), 0) / 2`;

const addExisting = (table: string, size: string) =>
  `INSERT INTO "kept" SELECT "accountId", 'entityBytes', sum(${size}) FROM "${table}" WHERE TRUE GROUP BY "accountId"
     ON CONFLICT DO UPDATE SET "amount" = "amount" + excluded."amount"`;

/** Counts the rows of a table that has an `accountId`, those that it has already and all that come. */
export function countRows(table: string, { row, texts = {} }: RowSize): string[] {
  const columns = Object.keys(texts);
  const size = (of: string) => [row, ...columns.map((column) => textBytes(of, column, texts[column] ?? 1))].join(' + ');
  const changed = columns.map((column) => `"${column}"`).join(', ');
  const differs = columns.map((column) => `OLD."${column}" IS NOT NEW."${column}"`).join(' OR ');
  return [
    addExisting(table, size('')),
    trigger(`${table}_bytes_kept`, `INSERT ON "${table}"`, addKept('NEW', 'entityBytes', size('NEW.'))),
    trigger(`${table}_bytes_gone`, `DELETE ON "${table}"`, addKept('OLD', 'entityBytes', `-(${size('OLD.')})`)),
    ...(columns.length === 0
      ? []
      : [
          trigger(
            `${table}_bytes_changed`,
            `UPDATE OF ${changed} ON "${table}" WHEN ${differs}`,
            addKept('NEW', 'entityBytes', `${size('NEW.')} - (${size('OLD.')})`),
          ),
        ]),
  ];
}

/**
 * Counts a text column that was added to a counted table. `times` is how often a text is stored: in its row, and in each index
 * that has the column.
 */
export function countText(table: string, column: string, times: number): string[] {
  const size = (of: string) => textBytes(of, column, times);
  const name = `${table}_${column}_bytes`;
  return [
    addExisting(table, size('')),
    trigger(
      `${name}_kept`,
      `INSERT ON "${table}" WHEN NEW."${column}" IS NOT NULL`,
      addKept('NEW', 'entityBytes', size('NEW.')),
    ),
    trigger(
      `${name}_gone`,
      `DELETE ON "${table}" WHEN OLD."${column}" IS NOT NULL`,
      addKept('OLD', 'entityBytes', `-(${size('OLD.')})`),
    ),
    trigger(
      `${name}_changed`,
      `UPDATE OF "${column}" ON "${table}" WHEN OLD."${column}" IS NOT NEW."${column}"`,
      addKept('NEW', 'entityBytes', `${size('NEW.')} - (${size('OLD.')})`),
    ),
  ];
}
