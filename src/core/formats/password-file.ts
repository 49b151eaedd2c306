/** A password in a file or on standard input, so that it stands neither in the environment nor among the processes. */
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';

/**
 * The one line of a file, without its end and without a byte order mark.
 * @throws Error with a sentence that the name of the file's option is the subject of.
 */
export function readPasswordFile(file: string): string {
  try {
    return lineOf(readFileSync(file, 'utf8'));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw code === undefined ? error : new Error(`names a file that cannot be read: ${file} (${code}).`);
  }
}

/** The same of standard input, which may come later. @throws Error as `readPasswordFile`. */
export async function readPasswordInput(): Promise<string> {
  return lineOf(await text(process.stdin));
}

function lineOf(content: string): string {
  const password = content.replace(/^\uFEFF/, '').replace(/\r?\n$/, '');
  if (password === '' || /[\r\n]/.test(password)) throw new Error('must hold one line, the password.');
  return password;
}
