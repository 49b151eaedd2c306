/**
 * Changes by the command line while a server is running: the command touches a file, and the server, which looks at it
 * every half second, forgets what it had in memory and looks at its connections again.
 */
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const interval = 500;

/** Tells a server on this data directory that something has been changed under it. */
export function announceChange(dataDir: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  writeFileSync(join(dataDir, 'changed'), `${new Date().toISOString()}\n`, { mode: 0o600 });
}

/** Calls `onChange` after each announcement until `stop`, one call at a time. */
export function watchChanges(
  dataDir: string,
  onChange: () => Promise<void>,
  onError: (error: unknown) => void,
): { stop(): Promise<void> } {
  const read = () => statSync(join(dataDir, 'changed'), { throwIfNoEntry: false })?.mtimeMs;
  let seen = read();
  let running: Promise<void> | undefined;
  const timer = setInterval(() => {
    if (running) return;
    const now = read();
    if (now === seen) return;
    seen = now;
    running = onChange()
      .catch(onError)
      .finally(() => {
        running = undefined;
      });
  }, interval);
  timer.unref();
  return {
    stop: async () => {
      clearInterval(timer);
      await running;
    },
  };
}
