/** A password in a file or on standard input, so that it stands neither in the environment nor among the processes. */
import { readFileSync } from 'node:fs';

/**
 * The one line of a file, without its end; `-` is standard input.
 * @throws Error with a sentence that the name of the file's option is the subject of.
 */
export function readPasswordFile(file: string): string {
  let text: string;
  try {
    text = readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new Error(`names a file that cannot be read: ${file} (${(error as NodeJS.ErrnoException).code}).`);
  }
  const password = text.replace(/\r?\n$/, '');
  if (password === '' || /[\r\n]/.test(password)) throw new Error('must hold one line, the password.');
  return password;
}
