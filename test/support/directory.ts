import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

/** A temporary directory that goes with the test. */
export function temporaryDirectory(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'slipway-'));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
