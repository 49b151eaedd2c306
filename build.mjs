/**
 * The build: one file for each program and each thread, and chunks for what they share, because loading some thousand
 * modules one by one takes longer than all the rest of a start. Types are checked by `npm run types`, not here.
 * `node build.mjs` builds the product, `node build.mjs --tests` the tests and benchmarks too, and with
 * `--apart` each module by itself, with maps: slower, but stacks and coverage name lines of the sources.
 * `node build.mjs --types` builds the program that writes the types of the API for the console.
 * `node build.mjs --image DIR` puts into DIR all that the service needs to run, and nothing else: the Dockerfile takes it.
 */
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const root = dirname(fileURLToPath(import.meta.url));

const product = [
  'src/main.ts',
  'src/cli.ts',
  'src/factory/provisioning/equip-worker.ts',
  'src/factory/results/label-worker.ts',
  'src/messages/payload/worker.ts',
  'src/threads/long-reads-worker.ts',
  'db/sqlite/writer-thread-worker.ts',
  'db/messages/threads/reader-worker.ts',
  'db/messages/threads/writer-worker.ts',
  'demo/demo.ts',
];
const tests = [
  'test/**/*.test.ts',
  'test/bridges/kills/main.ts',
  'test/console/pictures.ts',
  'test/crash/main.ts',
  'test/downlink/long/main.ts',
  'test/fuzz/main.ts',
  'test/move/main.ts',
  'test/nodes/main.ts',
  'test/soak/main.ts',
  'test/soak/probe.ts',
  'test/db/killed-writer.ts',
  'test/factory/fixture.ts',
  'test/support/command-runner.ts',
  'test/support/loop-probe.ts',
  'test/support/plain-loading.ts',
  'test/support/tap.ts',
  'bench/*.ts',
];

/** Packages that stay in node_modules: they hold compiled code, read files next to themselves, or belong to tap. */
const external = [
  '@seriousme/openapi-schema-validator',
  'argon2',
  'better-sqlite3',
  'axe-core',
  '@sparticuz/chromium',
  'esbuild',
  'openapi-typescript',
  'playwright-core',
  'tap',
];

/** Packages whose code is bundled, and whose files are read where they lie, in node_modules. */
const besideCode = ['@fastify/swagger-ui'];

/** Packages that read a file next to themselves, and have a form with that file inside. */
const selfContained = { '@platformatic/wasm-utils': '@platformatic/wasm-utils/bundled' };

/** Packages that are CommonJS ask for `require` and, two of them, for a place of their own, to look for what is optional. */
const banner = `import { createRequire as bannerRequire } from 'node:module';
import { dirname as bannerDirname } from 'node:path';
import { fileURLToPath as bannerPath } from 'node:url';
const require = bannerRequire(import.meta.url);
const __filename = bannerPath(import.meta.url), __dirname = bannerDirname(__filename);`;

const common = { absWorkingDir: root, outbase: '.', format: 'esm', platform: 'node', target: 'node22' };

/** A module says where it lies by `import.meta.url`: in a chunk that is still the place it has in the source. */
const ownPlaces = {
  name: 'own places',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const place = relative(root, path).replace(/\.ts$/, '.js');
      if (place.startsWith('node_modules')) return null;
      const url = `(import.meta.url.slice(0, import.meta.url.lastIndexOf('/dist/') + 6) + '${place}')`;
      return { loader: 'ts', contents: readFileSync(path, 'utf8').replaceAll('import.meta.url', url) };
    });
  },
};

/** Of the list of common passwords the part that passwords.ts refuses: all of it takes 12 MB of memory. */
const commonPasswords = {
  name: 'common passwords',
  setup({ onLoad }) {
    onLoad({ filter: /@zxcvbn-ts\/language-common\/dist\/index\.[cm]js$/ }, async () => {
      const { dictionary } = await import('@zxcvbn-ts/language-common');
      const kept = JSON.stringify({ 'passwords-common': dictionary['passwords-common'].slice(0, 10_000) });
      return { contents: `export const dictionary = ${kept};\nexport default { dictionary };\n` };
    });
  },
};

/** A test file's `t` is a test of its own when its process runs several files. */
const sharedTap = {
  name: 'shared tap',
  setup({ onResolve }) {
    onResolve({ filter: /^tap$/ }, ({ importer }) =>
      importer.endsWith('test/support/tap.ts') ? undefined : { path: join(root, 'test/support/tap.ts') },
    );
  },
};

/** Swagger UI finds its files from any place. */
const documentationPages = {
  name: 'documentation pages',
  setup({ onLoad }) {
    onLoad({ filter: /@fastify\/swagger-ui\/(index|lib\/routes)\.js$/ }, ({ path }) => {
      const folder = basename(dirname(path)) === 'lib' ? 'lib' : '';
      const place = `path.join(require.resolve('@fastify/swagger-ui/package.json'), '..', '${folder}')`;
      return { contents: readFileSync(path, 'utf8').replaceAll('__dirname', place) };
    });
  },
};

/** No document is written as YAML: the packages that could would load 170 kB at each start. */
const withoutYaml = {
  name: 'without YAML',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^yaml$/ }, ({ importer }) =>
      importer.includes('/@fastify/') ? { path: 'yaml', namespace: 'unused' } : undefined,
    );
    onLoad({ filter: /./, namespace: 'unused' }, () => ({ contents: 'module.exports = {};' }));
  },
};

/** The router compiles a function for each piece of a path, hundreds of them: 0.03 s, to win nanoseconds of a request. */
const plainRouter = {
  name: 'plain router',
  setup({ onLoad }) {
    onLoad({ filter: /find-my-way\/lib\/node\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const contents = text.replace(
        /return new Function\('path', 'i',.*/,
        'return (path, i) => path.startsWith(prefix, i)',
      );
      if (contents === text) throw new Error(`${path} has another form now: plainRouter in build.mjs does nothing.`);
      return { contents };
    });
  },
};

/** An import of node:http reads its lazy properties, and thereby loads undici: 0.05 s and 3 MB. To require it loads nothing more. */
const requiredHttp = {
  name: 'required http',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?http$/ }, ({ kind, namespace }) =>
      kind === 'import-statement' && namespace === 'file' ? { path: 'http', namespace: 'required' } : undefined,
    );
    onLoad({ filter: /^http$/, namespace: 'required' }, () => ({ contents: "module.exports = require('node:http');" }));
  },
};

function bundle(entryPoints, { outdir = 'dist', chunks, sourcemap, isProduct = true }) {
  return build({
    ...common,
    entryPoints,
    outdir,
    chunkNames: `${chunks}/[name]-[hash]`,
    bundle: true,
    splitting: true,
    sourcemap,
    external: [...external, ...besideCode.map((name) => `${name}/package.json`)],
    alias: selfContained,
    banner: { js: banner },
    plugins: [sharedTap, ownPlaces, commonPasswords, documentationPages, withoutYaml, plainRouter, requiredHttp],
    metafile: true,
    // V8 keeps the text of a program, and one letter beyond Latin 1 in a comment doubles it. Licences are in LICENSES.txt.
    legalComments: 'none',
    minifyWhitespace: isProduct,
    lineLimit: 160,
    logLevel: 'warning',
  });
}

function transform(entryPoints) {
  return build({ ...common, outdir: 'dist', entryPoints, sourcemap: true, logLevel: 'warning' });
}

/** The console: hashed files, each also compressed, and a page that names them. The server puts the prefix of headers into the page. */
async function bundleConsole(outdir) {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: ['console/app/main.tsx', 'console/app/style.css'],
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
  const page = readFileSync(join(root, 'console/app/index.html'), 'utf8')
    .replace('main.js', fileOf('console/app/main.tsx'))
    .replace('style.css', fileOf('console/app/style.css'));
  writeFileSync(join(outdir, 'index.html'), page);
  for (const [file] of files) {
    const content = readFileSync(join(root, file));
    writeFileSync(join(root, `${file}.br`), brotliCompressSync(content));
    writeFileSync(join(root, `${file}.gz`), gzipSync(content, { level: 9 }));
  }
  return metafile;
}

/** The product without the demo, and of the packages next to it the files that run. What is missing shows in test/operations. */
async function makeImage(directory) {
  // Never emptied: anyone who mistypes it would lose what is there, this repository even.
  if (directory === '' || (existsSync(directory) && readdirSync(directory).length > 0))
    throw new Error(`--image takes a directory that is empty or not there yet, not "${directory}".`);
  const ours = await bundle(
    product.filter((one) => !one.startsWith('demo/')),
    { outdir: join(directory, 'dist'), chunks: 'chunks', sourcemap: false },
  );
  for (const file of ['package.json', 'LICENSE']) cpSync(join(root, file), join(directory, file));
  const imported = new Set(
    Object.values(ours.metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path)),
  );
  const theirs = await build({
    absWorkingDir: root,
    entryPoints: external.filter((name) => imported.has(name)),
    bundle: true,
    write: false,
    metafile: true,
    outdir: directory,
    platform: 'node',
    logLevel: 'error',
  });
  const loaded = packagesOf(theirs.metafile);
  for (const [place, modules] of loaded) copyPackage(place, modules, directory);
  for (const name of besideCode) copyPackage(join('node_modules', name), [], directory);
  const page = await bundleConsole(join(directory, 'dist/console'));
  const packages = [ours.metafile, page].flatMap((one) => [...packagesOf(one).keys()]);
  writeFileSync(join(directory, 'LICENSES.txt'), licences([...packages, ...loaded.keys()]));
}

/** Where the packages lie whose modules have been read, with those modules. */
function packagesOf({ inputs }) {
  const packages = new Map();
  for (const input of Object.keys(inputs)) {
    const [, place, file] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\/(.+)$/.exec(input) ?? [];
    if (place) packages.set(place, [...(packages.get(place) ?? []), file]);
  }
  return packages;
}

/** Takes a package's modules, its compiled code for this kind of machine, and its pages; most of a package is other things. */
function copyPackage(place, modules, directory) {
  const from = join(root, place);
  const to = join(directory, place.slice(place.indexOf('node_modules/')));
  const asset = new RegExp(
    `^(static/.+|prebuilds/${process.platform}(musl)?-${process.arch}(/[^/]+)?\\.node|(.+/)?package\\.json)$`,
  );
  for (const file of new Set([...modules, ...readdirSync(from, { recursive: true }).filter((one) => asset.test(one))]))
    cpSync(join(from, file), join(to, file));
}

/** The texts that have to go with the code of others. */
function licences(places) {
  const texts = [...new Set(places)].sort().map((place) => {
    const { name, version, license } = JSON.parse(readFileSync(join(root, place, 'package.json'), 'utf8'));
    const files = readdirSync(join(root, place)).filter((file) => /^(licen[cs]e|notice)/i.test(file));
    return [
      `${name} ${version}: ${license}`,
      ...files.map((file) => readFileSync(join(root, place, file), 'utf8')),
    ].join('\n\n');
  });
  return `${texts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

const { values: asked } = parseArgs({
  options: {
    tests: { type: 'boolean' },
    apart: { type: 'boolean' },
    types: { type: 'boolean' },
    image: { type: 'string' },
  },
});
if (asked.image !== undefined) await makeImage(asked.image);
else if (asked.types) {
  rmSync(`${root}/dist/types`, { recursive: true, force: true });
  // With threads of its own: the product itself may be running, or not be built.
  const entryPoints = ['console/document.ts', ...product.filter((one) => one.endsWith('-worker.ts'))];
  await bundle(entryPoints, { outdir: 'dist/types/dist', chunks: 'chunks', sourcemap: false });
  cpSync(`${root}/package.json`, `${root}/dist/types/package.json`);
} else {
  rmSync(`${root}/dist`, { recursive: true, force: true });
  if (asked.apart)
    await transform(['src', 'broker', 'db', 'demo', 'bench', 'test'].map((folder) => `${folder}/**/*.ts`));
  else {
    const { metafile } = await bundle(product, { chunks: 'chunks', sourcemap: true });
    const page = await bundleConsole(join(root, 'dist/console'));
    writeFileSync(
      join(root, 'dist/LICENSES.txt'),
      licences([...packagesOf(metafile).keys(), ...packagesOf(page).keys()]),
    );
  }
  if (asked.tests && !asked.apart) {
    // Each test process would read the maps, with tap, whether it needs them or not.
    await bundle(tests, { chunks: 'test/chunks', sourcemap: false, isProduct: false });
    // Where the product alone is built, test/ may be missing.
    const { writeGroups } = await import('./test/groups.mjs');
    writeGroups(join(root, 'dist/test'));
  }
}
