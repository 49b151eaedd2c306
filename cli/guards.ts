/** How commands end when something outside them fails. */
import { Ending, exitCodes, isKnown } from './usage.ts';

/** Scripts rely on the exit code: an unexpected error must not look like failed rows. */
export async function forTheLine(work: () => Promise<void>): Promise<void> {
  // Anyone who read the output has gone; the work goes on, and its exit code counts.
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
    });
  process.once('SIGINT', () => {
    process.stderr.write('\nStopped. Run the command again to continue.\n');
    process.exit(130);
  });
  try {
    await work();
  } catch (error) {
    if (isKnown(error)) throw error;
    throw new Ending(exitCodes.trouble, `${(error as Error).stack}`);
  }
}

/** A disk that is full or read-only is reported in a sentence, without a stack. */
export async function onTheDisk(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (isKnown(error) || !/^(E[A-Z]+|SQLITE_[A-Z_]+)$/.test(code)) throw error;
    throw new Ending(exitCodes.trouble, `The command failed (${code}): ${(error as Error).message}.`);
  }
}
