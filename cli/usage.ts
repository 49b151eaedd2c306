/** How a command ends when it cannot do what it was asked for. */
import { UsageError } from '../src/core/usage-error.ts';

export { UsageError };

/** Exit codes of the commands for the line (docs/factory.md). */
export const exitCodes = { failed: 1, trouble: 3, refused: 4 } as const;

/** The command ends with this exit code; the sentence says why. */
export class Ending extends Error {
  readonly exitCode: number;

  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Server, network or disk: whatever was begun goes on when the command is run again. */
export function trouble(message: string): Ending {
  return new Ending(exitCodes.trouble, message);
}

/** The server does not let this caller do it. */
export function refused(message: string): Ending {
  return new Ending(exitCodes.refused, message);
}

/** Whether its message is a sentence for the person who typed the command. */
export function isKnown(error: unknown): error is Error {
  return (
    error instanceof UsageError || error instanceof Ending || (error instanceof Error && error.name === 'ConfigError')
  );
}
