/**
 * Bundles the console into dist/console: hashed files, each also compressed, and a page that names them. The server puts the
 * prefix of headers into the page.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const root = join(import.meta.dirname, '..');
const outdir = join(root, 'dist/console');

/** The pages, and where each begins. */
const pages = { 'index.html': 'app', 'claim.html': 'claim' };

rmSync(outdir, { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: [...Object.values(pages).map((folder) => `console/${folder}/main.tsx`), 'console/app/style.css'],
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
const files = Object.entries(metafile.outputs);
const fileOf = (entry) => basename(files.find(([, { entryPoint }]) => entryPoint === entry)[0]);
for (const [name, folder] of Object.entries(pages)) {
  const page = readFileSync(join(root, `console/${folder}/index.html`), 'utf8')
    .replace('main.js', fileOf(`console/${folder}/main.tsx`))
    .replace('style.css', fileOf('console/app/style.css'));
  writeFileSync(join(outdir, name), page);
}
for (const [file] of files) {
  const content = readFileSync(join(root, file));
  writeFileSync(join(root, `${file}.br`), brotliCompressSync(content));
  writeFileSync(join(root, `${file}.gz`), gzipSync(content, { level: 9 }));
}
