/** Holds the pages of docs/, README.md and CONTRIBUTING.md against the repository: paths, links, packages. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { filesAt, groupsOf } from '../run/files.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const pages = [
  ...['README.md', 'CONTRIBUTING.md', 'SECURITY.md'],
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join('docs', name)),
];

/** Paths of our own in a text; `dist` is made by the build. */
function pathsIn(text: string): string[] {
  const found = text.matchAll(
    /(?<![\w/.$~-])(?:src|cells|cli|broker|db|test|bench|demo|docs|bin|console|deploy|examples)\/[\w./*-]+/g,
  );
  return [...found].map(([path]) => path.replace(/[.*/]+$/, '')).filter((path) => !/\*|NNN/.test(path));
}

/** Places within the repository that a page links to, as paths from its root, with the anchor. */
function linksIn(page: string, text: string): Array<[path: string, anchor: string | undefined]> {
  const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
  return targets
    .filter((target) => !/^(?:https?|mailto):/.test(target))
    .map((target) => {
      const [path = '', anchor] = target.split('#');
      return [path === '' ? page : join(dirname(page), path), anchor];
    });
}

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  const headings = [...readFileSync(page, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replace(/ /g, '-'),
  );
}

t.test('every path that a page names exists', async (t) => {
  t.ok(pages.length > 12);
  for (const page of pages)
    for (const path of pathsIn(readFileSync(page, 'utf8'))) t.ok(existsSync(path), `${page}: ${path}`);
});

t.test('every link within the pages leads somewhere', async (t) => {
  for (const page of pages)
    for (const [path, anchor] of linksIn(page, readFileSync(page, 'utf8'))) {
      t.ok(existsSync(path), `${page}: ${path}`);
      if (anchor !== undefined) t.ok(anchorsOf(path).includes(anchor), `${page}: ${path}#${anchor}`);
    }
});

t.test('every test file is run once, and one that shares a process is a part of it', async (t) => {
  const files = filesAt(['test', 'test/slow']);
  const groups = groupsOf(files);
  t.ok(files.length > 250);
  t.strictSame(groups.flat().sort(), files.sort());
  for (const file of groups.filter((group) => group.length > 1).flat()) {
    const text = readFileSync(file, 'utf8');
    t.match(text, /^const t = await part\(import\.meta\);$/m, file);
    t.match(text, /^t\.end\(\);$/m, file);
  }
});

t.test('the tree of docs/architecture.md has every folder of the source', async (t) => {
  const text = readFileSync('docs/architecture.md', 'utf8');
  for (const top of ['src', 'cells', 'cli', 'broker', 'db']) {
    const folders = readdirSync(top, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    for (const folder of new Set(folders.map(({ parentPath }) => parentPath)))
      if (folder !== 'db') t.ok(text.includes(`| \`${folder}\` |`), `the tree has ${folder}`);
  }
});

t.test('the functions that docs/architecture.md names are in their files', async (t) => {
  const text = readFileSync('docs/architecture.md', 'utf8').replace(/\s+/g, ' ');
  const named = [...text.matchAll(/`(#?[a-z]\w*)` of `([\w./-]+\.ts)`/g)];
  t.ok(named.length > 5);
  for (const [, name = '', file = ''] of named)
    t.match(readFileSync(file, 'utf8'), new RegExp(`(?<!\\w)${name}(?:<[^(]*>)?\\(`), `${name} of ${file}`);
});

/** Everything that a file loads: files of ours, and packages by name. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  const imports = readFileSync(file, 'utf8').matchAll(/^(?:im|ex)port (?!type )(?:[^;]*?from )?'([^']+)';/gm);
  for (const [, path = ''] of imports)
    if (path.startsWith('.')) loadedBy(join(dirname(file), path), seen);
    else seen.add(path);
  return seen;
}

t.test('no thread loads the hundreds of files of kysely and typebox, which take longer than its work', async (t) => {
  const sources = ['src', 'broker', 'db'].flatMap((top) =>
    readdirSync(top, { recursive: true, encoding: 'utf8' }).map((name) => join(top, name)),
  );
  const threads = sources.filter((name) => name.endsWith('-worker.ts'));
  t.ok(threads.length >= 4);
  for (const thread of threads) {
    const loaded = loadedBy(thread);
    for (const library of ['kysely', 'typebox']) t.notOk(loaded.has(library), `${thread}: ${library}`);
  }
});

/** The layers of docs/architecture.md: each path with the number of its layer, from the lowest. */
function layersIn(text: string): Map<string, number> {
  const [, section = ''] = text.split('\n## Layers\n');
  const rows = [...(section.split('\n## ')[0] ?? '').matchAll(/^\| \w+ \| (`.*`) \|$/gm)];
  return new Map(
    rows.flatMap(([, cell = ''], layer) => [...cell.matchAll(/`([^`]+)`/g)].map(([, path = '']) => [path, layer])),
  );
}

function layerOf(layers: Map<string, number>, file: string): number | undefined {
  for (let path = file; path !== '.'; path = dirname(path)) {
    const layer = layers.get(path);
    if (layer !== undefined) return layer;
  }
  return undefined;
}

t.test('no file imports from a layer above its own', async (t) => {
  const layers = layersIn(readFileSync('docs/architecture.md', 'utf8'));
  t.ok(layers.size > 20);
  for (const path of layers.keys()) t.ok(existsSync(path), path);
  const upward: string[] = [];
  let count = 0;
  for (const top of ['src', 'cells', 'cli', 'broker', 'db'])
    for (const name of readdirSync(top, { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts')) continue;
      const file = join(top, name);
      const imports = readFileSync(file, 'utf8').matchAll(
        /(?:(?:im|ex)port (?:[^;]*?from )?|import\()'(\.[^']+\.ts)'/g,
      );
      for (const [, path = ''] of imports) {
        const target = join(dirname(file), path);
        const [own, other] = [layerOf(layers, file), layerOf(layers, target)];
        if (own === undefined || other === undefined) upward.push(`${file} or ${target} has no layer`);
        else if (other > own) upward.push(`${file} imports ${target}`);
        count += 1;
      }
    }
  t.strictSame(upward, []);
  t.ok(count > 2000, `${count} imports`);
});

t.test('docs/dependencies.md gives a reason for every dependency, and for no other', async (t) => {
  const { workspaces, ...root } = JSON.parse(readFileSync('package.json', 'utf8'));
  const parts = workspaces.map((folder: string) => JSON.parse(readFileSync(`${folder}/package.json`, 'utf8')));
  const packages = new Set(
    [root, ...parts].flatMap((one) => Object.keys({ ...one.dependencies, ...one.devDependencies })),
  );
  const table = readFileSync('docs/dependencies.md', 'utf8');
  const cells = [...table.matchAll(/^\| (`.*?) \|/gm)].map(([, cell = '']) => cell);
  const named = cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name)).sort();
  const types = named.splice(named.indexOf('@types/…'), 1);
  t.strictSame(types, ['@types/…']);
  t.strictSame(named, [...packages].filter((name) => !/^@(types|slipway)\//.test(name)).sort());
});

t.test(
  'what a part imports is in its own list of packages, and what the server imports in that of the server',
  async (t) => {
    const packagesOf = (folder: string): string[] => {
      const { dependencies, peerDependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      return Object.keys({ ...dependencies, ...peerDependencies });
    };
    const server = packagesOf('.');
    const lists = { src: server, broker: server, db: server, demo: server, console: packagesOf('console') };
    const all = Object.entries({
      ...lists,
      cli: [...server, ...packagesOf('cli')],
      cells: [...server, ...packagesOf('cells')],
    });
    for (const [top, listed] of all) {
      const imported = new Set<string>();
      for (const name of readdirSync(top, { recursive: true, encoding: 'utf8' })) {
        if (!/\.tsx?$/.test(name) || /^(document\.ts|api-types\.d\.ts)$/.test(name)) continue;
        const found = readFileSync(join(top, name), 'utf8').matchAll(
          /(?:^(?:im|ex)port (?!type )(?:[^;]*?from )?|import\()'((?:@[^/']+\/)?[^./'#:@][^/':]*)(?:\/[^':]*)?'/gm,
        );
        for (const [, name = ''] of found) imported.add(name);
      }
      t.ok(imported.size > 0, top);
      t.strictSame([...imported].filter((name) => !listed.includes(name)).sort(), [], top);
      for (const name of top === 'console' ? listed : []) t.ok(imported.has(name) || name === 'world-atlas', name);
    }
  },
);

t.test('broker/routing.ts alone imports Aedes', async (t) => {
  const importing = ['src', 'cells', 'cli', 'broker', 'db'].flatMap((top) =>
    readdirSync(top, { recursive: true, encoding: 'utf8' })
      .map((name) => join(top, name))
      .filter(
        (file) => file.endsWith('.ts') && /(?:from|import) '(?:aedes|mqemitter)/.test(readFileSync(file, 'utf8')),
      ),
  );
  t.strictSame(importing, ['broker/routing.ts']);
});

t.test('every test that docs/aedes.md names is there', async (t) => {
  const facts = readFileSync('test/broker/facts.test.ts', 'utf8');
  const rows = readFileSync('docs/aedes.md', 'utf8').split('\n');
  const titles = rows.flatMap((row) => [...(row.split(' | ').at(-1) ?? '').matchAll(/"([^"]+)"/g)]);
  t.ok(titles.length > 4);
  // A title that is cut off ends with dots.
  for (const [, title = ''] of titles)
    t.equal(facts.split(`t.test('${`${title}'`.replace("…'", '')}`).length, 2, title);
});

t.test('every promise of docs/guarantees.md names what holds it', async (t) => {
  const [, promises = ''] = readFileSync('docs/guarantees.md', 'utf8').split('\n## Promises\n');
  const rows = (promises.split('\n## ')[0] ?? '').split('\n').filter((line) => /^\| (?!promise )\w/.test(line));
  t.ok(rows.length > 30);
  for (const row of rows) t.match(row, /\| (?:`(?:test\/[\w./-]+\.ts|npm run test:\w+)`(?:, )?)+ \|$/);
});

t.end();
