/** Holds docs/configuration.md and docs/limits.md against the variables that the source reads. */
import { readFileSync } from 'node:fs';
import t from 'tap';

const variablesIn = (path: string) => new Set(readFileSync(path, 'utf8').match(/\bSLIPWAY_[A-Z_]*[A-Z]\b/g));

t.test('every environment variable is documented, and every documented one is read', async (t) => {
  const read = new Set([...variablesIn('src/config.ts'), ...variablesIn('src/limits.ts')]);
  const rows = (path: string) =>
    readFileSync(path, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('| '))
      .flatMap(
        (line) =>
          line
            .split(' | ')
            .slice(0, 2)
            .join(' ')
            .match(/`SLIPWAY_[A-Z_]+`/g) ?? [],
      )
      .map((name) => name.slice(1, -1));
  const documented = new Set([...rows('docs/configuration.md'), ...rows('docs/limits.md')]);
  t.ok(read.size > 50);
  for (const name of read) t.ok(documented.has(name), `${name} has a row`);
  for (const name of documented) t.ok(read.has(name), `${name} is read`);
});
