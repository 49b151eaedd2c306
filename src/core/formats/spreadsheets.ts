/** CSV cells for spreadsheets. Devices and customers choose texts; a spreadsheet must not run one as a formula. */

/** A formula also starts after blanks, which some programs trim, and with the full-width signs of East Asian keyboards. */
const formula = /^\s*[=+\-@＝＋－＠]|^[\t\r\n]/;

/**
 * One text as a cell of a CSV file that people open: an apostrophe in front of what a spreadsheet would take for a formula,
 * and quotes where they are needed (RFC 4180). Numbers of numeric columns are written as they are, without this function.
 */
export function spreadsheetCell(text: string): string {
  return csvCell(formula.test(text) ? `'${text}` : text);
}

/** One text as a cell of a CSV file that programs read (RFC 4180). It is raw: nothing of it is changed. */
export function csvCell(text: string, separator = ','): string {
  return /["\r\n]|^\s|\s$/.test(text) || text.includes(separator) ? `"${text.replaceAll('"', '""')}"` : text;
}
