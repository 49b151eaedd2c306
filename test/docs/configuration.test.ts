/**
 * Holds docs/configuration.md against the table in src/core/settings.ts, and docs/limits.md against the limits.
 * `UPDATE_CONFIGURATION=1 npx tap test/docs/configuration.test.ts` writes the tables of docs/configuration.md.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { limits } from '../../src/core/limits/table.ts';
import { commandSettings, type Setting, settings } from '../../src/core/settings.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const file = 'docs/configuration.md';
const table = (title: string, rows: string[]) => [title, title.replace(/[^|]+/g, '---'), ...rows, ''].join('\n');

function serviceTable(): string {
  const rows = (Object.values(settings) as Array<Setting<unknown>>).map(
    ({ variable, type, default: usual, usually = 'none', meaning }) =>
      `| \`${variable}\` | ${type.name} | ${usual ? `\`${usual}\`` : usually} | ${meaning} |`,
  );
  return table('| variable | type | default | meaning |', rows);
}

function commandTable(): string {
  return table(
    '| variable | meaning |',
    commandSettings.map(({ variable, meaning }) => `| \`${variable}\` | ${meaning} |`),
  );
}

/** The page with the tables between their marks. */
function page(text: string): string {
  return text
    .replace(/(<!-- settings -->\n).*?(?=<!-- \/settings -->)/s, (_, mark) => mark + serviceTable())
    .replace(/(<!-- command -->\n).*?(?=<!-- \/command -->)/s, (_, mark) => mark + commandTable());
}

t.test('the tables of docs/configuration.md are made from the table of settings', async (t) => {
  const written = readFileSync(file, 'utf8');
  if (process.env.UPDATE_CONFIGURATION) return writeFileSync(file, page(written));
  t.match(written, /<!-- settings -->.*<!-- command -->/s);
  t.equal(written, page(written), 'UPDATE_CONFIGURATION=1 writes them');
});

t.test('every variable has one row in the docs, and only the tables name variables to read', async (t) => {
  const known = [...Object.values(settings), ...limits].map(({ variable }) => variable);
  t.equal(new Set(known).size, known.length, 'each once');
  const rows = (path: string) => readFileSync(path, 'utf8').match(/(?<=^\| .*`)SLIPWAY_[A-Z_]+(?=`)/gm) ?? [];
  const documented = new Set([...rows(file), ...rows('docs/limits.md')]);
  for (const name of known) t.ok(documented.has(name), `${name} has a row`);
  const read = new Set([...known, ...commandSettings.map(({ variable }) => variable)]);
  for (const name of documented) t.ok(read.has(name), `${name} is read`);
});

t.end();
