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
const pages = { 'index.html': 'app', 'claim.html': 'claim', 'my.html': 'my' };
const styles = { 'style.css': 'console/app/style.css', 'guide.css': 'console/guide/guide.css' };
const bundles = [['app'], ['claim'], ['my']];
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
  ...bundles.map((folders) => bundle(folders.map(mainOf))),
  bundle(Object.values(styles)),
]);
// Files of the same content have the same name.
const files = Object.entries(Object.assign({}, ...built.map(({ metafile }) => metafile.outputs)));
const fileOf = (entry) => basename(files.find(([, { entryPoint }]) => entryPoint === entry)[0]);
const styled = (folder) =>
  Object.entries(styles).reduce(
    (page, [name, entry]) => page.replace(`/${name}`, () => `/${fileOf(entry)}`),
    readFileSync(join(root, `console/${folder}/index.html`), 'utf8'),
  );
for (const [name, folder] of Object.entries(pages))
  writeFileSync(join(outdir, name), styled(folder).replace('main.js', fileOf(mainOf(folder))));
for (const [file] of files) {
  const content = readFileSync(join(root, file));
  writeFileSync(join(root, `${file}.br`), brotliCompressSync(content));
  writeFileSync(join(root, `${file}.gz`), gzipSync(content, { level: 9 }));
}
const guide = join(root, 'dist/guide');
rmSync(guide, { recursive: true, force: true });
for (const [name, text] of Object.entries(renderGuide(root, styled('guide')))) {
  mkdirSync(dirname(join(guide, name)), { recursive: true });
  writeFileSync(join(guide, name), text);
}
