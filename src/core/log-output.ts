/** Standard output as the destination of the log: it never waits for a full disk or for a reader, and says what was lost. */
import { fstatSync, writeSync } from 'node:fs';
import type { DestinationStream } from 'pino';

/** Bytes that wait for a slow reader. */
const maxWaiting = 256 * 1024;
const standardOutput = 1;
/** The level of pino's warnings. */
const warn = 40;

/** Takes a text whole; false if it is lost, or a part of it. */
type Put = (text: string) => boolean;

export class LogOutput implements DestinationStream {
  readonly #put: Put;
  #lost = 0;

  constructor(put: Put = openStandardOutput()) {
    this.#put = put;
  }

  write(line: string): void {
    if (this.#lost > 0 && this.#put(`\n${lossLine(this.#lost)}`)) this.#lost = 0;
    if (this.#lost > 0 || !this.#put(line)) this.#lost += 1;
  }
}

function lossLine(lost: number): string {
  const msg = 'lines of the log are lost: standard output could not be written';
  return `${JSON.stringify({ level: warn, time: Date.now(), pid: process.pid, lost, msg })}\n`;
}

/** Files are written at once. Other outputs are streams that keep what waits, up to a bound. */
function openStandardOutput(): Put {
  if (fstatSync(standardOutput).isFile() || !isStream()) return writeWhole;
  const { stdout } = process;
  return (text) => {
    if (stdout.destroyed || stdout.writableLength > maxWaiting) return false;
    stdout.write(text);
    return true;
  };
}

function isStream(): boolean {
  const stat = fstatSync(standardOutput);
  return stat.isFIFO() || stat.isSocket() || process.stdout.isTTY;
}

function writeWhole(text: string): boolean {
  let rest = Buffer.from(text);
  try {
    while (rest.length > 0) rest = rest.subarray(writeSync(standardOutput, rest));
    return true;
  } catch {
    return false;
  }
}
