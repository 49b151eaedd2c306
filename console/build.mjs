/**
 * Bundles the console into dist/console: hashed files, each also compressed, and a page that names them. The server puts the
 * prefix of headers into the page. The guide goes into dist/guide.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { renderGuide } from './guide/render.mjs';

const root = join(import.meta.dirname, '..');
const outdir = join(root, 'dist/console');

/** The pages, and where each begins. Those of customers are bundled by themselves: what only the console needs is in none of their files. */
const pages = {
  app: { name: 'index', title: 'Slipway', more: ' The API is described at <a href="/docs/">/docs</a>.' },
  claim: { name: 'claim', title: 'Claim a device', icon: 'data:,', referrer: 'no-referrer' },
  my: { name: 'my', title: 'My devices', icon: 'data:,' },
};
/** As an address. */
const icon =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Crect width='24' height='24' rx='6' fill='%231f5eff'/%3E%3Cpath d='M5 16h14l-2 3H7zM12 4v9M12 5l5 7h-5' fill='none' stroke='white' stroke-width='1.8'/%3E%3C/svg%3E";
const styles = { 'style.css': 'console/app/style.css', 'guide.css': 'console/guide/guide.css' };
const mainOf = (folder) => `console/${folder}/main.tsx`;

const bundle = (entryPoints) =>
  build({
    absWorkingDir: root,
    entryPoints,
    outdir,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    metafile: true,
    logLevel: 'warning',
  });
rmSync(outdir, { recursive: true, force: true });
const built = await Promise.all([
  ...Object.keys(pages).map((folder) => bundle([mainOf(folder)])),
  bundle(Object.values(styles)),
]);
// Files of the same content have the same name.
const files = Object.entries(Object.assign({}, ...built.map(({ metafile }) => metafile.outputs)));
const fileOf = (entry) => basename(files.find(([, { entryPoint }]) => entryPoint === entry)[0]);
/** A page with what stands in its places; `{{prefix}}` and those of the guide are filled later. */
const filled = (file, values) =>
  Object.entries({ icon, ...values }).reduce(
    (page, [name, value]) => page.replace(`{{${name}}}`, () => value),
    Object.entries(styles).reduce(
      (page, [name, entry]) => page.replace(`/${name}`, () => `/${fileOf(entry)}`),
      readFileSync(join(root, 'console', file), 'utf8'),
    ),
  );
for (const [folder, { name, ...values }] of Object.entries(pages)) {
  const all = { referrer: 'same-origin', more: '', ...values, main: fileOf(mainOf(folder)) };
  writeFileSync(join(outdir, `${name}.html`), filled('page.html', all));
}
for (const [file] of files) {
  const content = readFileSync(join(root, file));
  writeFileSync(join(root, `${file}.br`), brotliCompressSync(content));
  writeFileSync(join(root, `${file}.gz`), gzipSync(content, { level: 9 }));
}
const guide = join(root, 'dist/guide');
rmSync(guide, { recursive: true, force: true });
for (const [name, text] of Object.entries(renderGuide(root, filled('guide/index.html', {})))) {
  mkdirSync(dirname(join(guide, name)), { recursive: true });
  writeFileSync(join(guide, name), text);
}
