/** Statements of migrations that make an index of texts, as db/registry/text.ts asks it. */
import { addKept } from './entity-bytes.ts';

/** Every character of ASCII is part of a word but NUL, which is between words. */
const ascii = Array.from({ length: 127 }, (_, n) => String.fromCharCode(n + 1)).join('');
const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;
const tokenizer = quoted(`ascii tokenchars ${quoted(ascii)}`);
/** Bytes that a byte of text takes in the index, about: its account pays for them. */
const timesStored = 6;

/**
 * An index of a text of live devices, `devices_<name>_text`: `textOf` is the text of a row, null for none, and changes with
 * `column`.
 */
export function deviceTextIndex(name: string, column: string, textOf: (row: string) => string): string[] {
  const index = `"devices_${name}_text"`;
  const isIn = (row: string) => `${row}"deleted" IS NULL AND ${textOf(row)} IS NOT NULL`;
  const select = (row: string) => `SELECT ${row}"row", grams(substr(${row}"accountId", 27), ${textOf(row)})`;
  const bytes = (row: string) => `${timesStored} * octet_length(${textOf(row)})`;
  const add = `INSERT INTO ${index} (rowid, "text") ${select('NEW.')} WHERE ${isIn('NEW.')};
    ${addKept('NEW', 'entityBytes', bytes('NEW.'), isIn('NEW.'))}`;
  const remove = `DELETE FROM ${index} WHERE rowid = OLD."row" AND ${isIn('OLD.')};
    ${addKept('OLD', 'entityBytes', `-${bytes('OLD.')}`, isIn('OLD.'))}`;
  return [
    `CREATE VIRTUAL TABLE ${index}
     USING fts5("text", tokenize = ${tokenizer}, detail = none, content = '', contentless_delete = 1)`,
    `INSERT INTO ${index} (rowid, "text") ${select('')} FROM "devices" WHERE ${isIn('')}`,
    `INSERT INTO "kept" SELECT "accountId", 'entityBytes', sum(${bytes('')}) FROM "devices" WHERE ${isIn('')} GROUP BY "accountId"
     ON CONFLICT DO UPDATE SET "amount" = "amount" + excluded."amount"`,
    `CREATE TRIGGER "devices_${name}_text_added" AFTER INSERT ON "devices" WHEN ${isIn('NEW.')} BEGIN ${add} END`,
    `CREATE TRIGGER "devices_${name}_text_removed" AFTER DELETE ON "devices" WHEN ${isIn('OLD.')} BEGIN ${remove} END`,
    `CREATE TRIGGER "devices_${name}_text_changed" AFTER UPDATE OF "${column}", "deleted" ON "devices"
     WHEN ${textOf('NEW.')} IS NOT ${textOf('OLD.')} OR NEW."deleted" IS NOT OLD."deleted"
     BEGIN ${remove} ${add} END`,
  ];
}
