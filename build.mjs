/**
 * The build: one file for each program and each thread, and chunks for what they share, because loading some thousand
 * modules one by one takes longer than all the rest of a start. Types are checked by `npm run types`, not here.
 * `node build.mjs` builds the product, `node build.mjs --tests` the tests and benchmarks too, and with
 * `--apart` each module by itself, with maps: slower, but stacks and coverage name lines of the sources.
 */
import { readFileSync, rmSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = dirname(fileURLToPath(import.meta.url));

const product = [
  'src/main.ts',
  'src/cli.ts',
  'src/factory/equip-worker.ts',
  'db/far-writer-worker.ts',
  'db/message-reader-worker.ts',
  'db/series-worker.ts',
  'demo/demo.ts',
];
const tests = [
  'test/**/*.test.ts',
  'test/crash/main.ts',
  'test/fuzz/main.ts',
  'test/soak/main.ts',
  'test/soak/probe.ts',
  'test/db/killed-writer.ts',
  'test/factory/fixture.ts',
  'test/support/plain-loading.ts',
  'bench/*.ts',
];

/** Compiled for the machine, or reading files beside themselves, or tap's: these stay in node_modules. */
const external = ['@fastify/swagger-ui', '@seriousme/openapi-schema-validator', 'argon2', 'better-sqlite3', 'tap'];

/** Packages that are CommonJS ask for `require` and, two of them, for a place of their own, to look for what is optional. */
const banner = `import { createRequire as bannerRequire } from 'node:module';
import { dirname as bannerDirname } from 'node:path';
import { fileURLToPath as bannerPath } from 'node:url';
const require = bannerRequire(import.meta.url);
const __filename = bannerPath(import.meta.url), __dirname = bannerDirname(__filename);`;

const common = { absWorkingDir: root, outbase: '.', outdir: 'dist', format: 'esm', platform: 'node', target: 'node20' };

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

function bundle(entryPoints, { chunks, sourcemap }) {
  return build({
    ...common,
    entryPoints,
    chunkNames: `${chunks}/[name]-[hash]`,
    bundle: true,
    splitting: true,
    sourcemap,
    external,
    banner: { js: banner },
    plugins: [ownPlaces],
    logLevel: 'warning',
  });
}

function transform(entryPoints) {
  return build({ ...common, entryPoints, sourcemap: true, logLevel: 'warning' });
}

rmSync(`${root}/dist`, { recursive: true, force: true });
if (process.argv.includes('--apart'))
  await transform(['src', 'broker', 'db', 'demo', 'bench', 'test'].map((folder) => `${folder}/**/*.ts`));
else {
  await bundle(product, { chunks: 'chunks', sourcemap: true });
  // Each test process would read the maps, with tap, whether it needs them or not.
  if (process.argv.includes('--tests')) await bundle(tests, { chunks: 'test/chunks', sourcemap: false });
}
