/** A release has one version, wherever it is written. */
import { readFileSync } from 'node:fs';
import { part } from '../support/part.ts';

const t = await part(import.meta);

t.test('the package, its lock, the pages and the newest heading of the changelog have one version', (t) => {
  const page = (name: string) => readFileSync(name, 'utf8');
  const { version } = JSON.parse(page('package.json'));
  const lock = JSON.parse(page('package-lock.json'));
  t.strictSame([lock.version, lock.packages[''].version], [version, version]);
  t.equal(/^## (\S+)/m.exec(page('CHANGELOG.md'))?.[1], version);
  const released = [...page('CHANGELOG.md').matchAll(/^## (\d+)\.(\d+)\.(\d+)/gm)].map((found) =>
    found.slice(1).reduce((sum, part) => sum * 1000 + Number(part), 0),
  );
  t.strictSame(
    released,
    [...new Set(released)].sort((a, b) => b - a),
    'it rises with each release',
  );
  t.match(page('docs/operations.md'), `slipway-${version}.tgz`);
  t.match(page('docs/high-availability.md'), `slipway:${version} `);
  t.end();
});

t.end();
