/** Which test files run in one process: `npm test` runs these groups. Each file also runs alone. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Files that have a process of their own: they measure its memory or its turns, or set its umask. */
const alone = /^(accepting|broker\/(memory|walls)|flows\/soak|operations\/modes|threads\/heap)$/;

/** More would end late, when the other core has nothing left to do. */
const maxFiles = (folder) => (folder === 'flows' ? 4 : 8);

/** Writes a program for each group into `together`, next to the test files that have been built into `directory`. */
export function writeGroups(directory) {
  const files = readdirSync(directory, { recursive: true }).filter((file) => file.endsWith('.test.js'));
  const groups = new Map();
  for (const file of files.sort()) {
    const name = file.slice(0, -'.test.js'.length);
    const folder = dirname(file) === '.' ? 'root' : dirname(file);
    let key = name;
    if (!alone.test(name)) {
      // A group is full when its folder has another one.
      let number = 1;
      while (groups.get(`${folder}/${number}`)?.length === maxFiles(folder)) number += 1;
      key = `${folder}/${number}`;
    }
    groups.set(key, [...(groups.get(key) ?? []), file]);
  }
  mkdirSync(join(directory, 'together'));
  for (const [key, paths] of groups) {
    const list = paths.map((path) => `  '${path}',\n`).join('');
    const program = `import { together } from '../support/tap.js';\n\nawait together([\n${list}]);\n`;
    writeFileSync(join(directory, 'together', `${key.replaceAll('/', '-')}.test.js`), program);
  }
}
