/** The browser of a test file. It is a file of its own: programs that are no tests must not load tap. */
import type { Browser } from 'playwright-core';
import t from 'tap';
import { launchBrowser } from './browser.ts';

let shared: Promise<Browser> | undefined;

/** Headless Chromium: one for all tests of the file. Each has windows of its own. */
export function openBrowser(): Promise<Browser> {
  if (shared) return shared;
  shared = launchBrowser();
  t.teardown(async () => (await shared)?.close());
  return shared;
}
