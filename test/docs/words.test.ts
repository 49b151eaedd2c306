/** `npm run words`: finds what the glossary forbids in comments, texts, names and documents, and nothing else. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

function words(directory: string, name: string, text: string) {
  const file = join(directory, name);
  writeFileSync(file, text);
  const { status, stdout } = spawnSync(process.execPath, ['bin/words.mjs', file], { encoding: 'utf8' });
  return { status, lines: stdout.split('\n').filter(Boolean) };
}

t.test('forbidden words are listed with their line and what to write instead', (t) => {
  const directory = t.testdir({});
  const source = [
    '/** Reads the row (decisions ' + '7). */',
    'const most' + "Rows = 'Who" + "ever asks';",
    'const pattern = /who' + 'ever/;',
  ].join('\n');
  const { status, lines } = words(directory, 'source.ts', source);
  t.equal(status, 1);
  t.same(
    lines.map((line) => line.slice(line.indexOf('source.ts:') + 10).split(':')[0]),
    ['1', '2', '2'],
    'a comment, a name and a text; not the regular expression',
  );
  t.match(lines[1], /maxX, minX/);
  t.equal(words(directory, 'page.md', 'The id is ' + 'none.\n').status, 1);
  t.end();
});

t.test('plain words pass', (t) => {
  const text = 'Letters and digits. There is none. Any caller may stand in for another.\n';
  t.same(words(t.testdir({}), 'page.md', text), { status: 0, lines: [] });
  t.end();
});
