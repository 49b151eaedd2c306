import { mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

// As every process of the service: it does not start on data that others can open.
process.umask(0o077);

const memory = '/dev/shm';
/** What must be free there; a container often has 64 MiB. */
const room = 4 * 1024 ** 3;

/** A temporary directory that goes with the test: in memory where there is room, because thousands of commits wait for the disk. */
export function temporaryDirectory(t: Test): string {
  const directory = mkdtempSync(join(hasRoom() ? memory : tmpdir(), 'slipway-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(memory);
    return bavail * bsize > room;
  } catch {
    return false;
  }
}
