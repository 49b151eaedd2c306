/** Several test files run in one process, one after another: most of a short file is the start of its process. */
import { relative } from 'node:path';
import root, { type Test } from 'tap';

/** Milliseconds that a file may take. */
const timeout = Number(process.env.TEST_FILE_SECONDS ?? 120) * 1000;

/**
 * The test of one file, once those before it have ended; its hooks are its own. The file ends it with `t.end()`. In a process of
 * its own, under `npx tap`, the file is the only one.
 */
export function part({ filename }: ImportMeta): Promise<Test> {
  return new Promise((begin) => {
    root.test(relative('test', filename), { timeout }, (t) => {
      // A test that hangs leaves time for those after it.
      t.on('subtestStart', (one) => one.setTimeout(timeout / 2));
      begin(t);
    });
  });
}
