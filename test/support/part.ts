/** The test files of a wing run in one process, one after another: most of a short file is the start of its process. */
import { relative } from 'node:path';
import root, { type Test } from 'tap';

/**
 * The test of one file, once those before it have ended; its hooks are its own. The file ends it with `t.end()`. In a process of
 * its own, under `npx tap`, the file is the only one.
 */
export function part({ filename }: ImportMeta): Promise<Test> {
  return new Promise((begin) => {
    root.test(relative('test', filename), (t) => begin(t));
  });
}
