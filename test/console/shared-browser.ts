/** The browser that all test files of a process share. It stands apart: programs that are no tests must not load tap. */
import type { Browser } from 'playwright-core';
import { root } from '../support/tap.ts';
import { launchBrowser } from './browser.ts';

let shared: Promise<Browser> | undefined;

/** Headless Chromium: one for all test files of the process. Each test has windows of its own. */
export function openBrowser(): Promise<Browser> {
  if (shared) return shared;
  shared = launchBrowser();
  root.teardown(async () => (await shared)?.close());
  return shared;
}
