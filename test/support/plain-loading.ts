/**
 * Imported into every test process before tap's own loaders (package.json, `test-env`). They follow each module that is
 * loaded, for TypeScript, mocks, source maps and coverage; these tests are compiled and use none of that. Neither does a
 * hook follow every promise, to say in which test a stray error was thrown: one ends the file, and its stack says where.
 */
import hooks from 'node:async_hooks';
import module from 'node:module';
import { fileURLToPath } from 'node:url';

module.register = () => {};
module.registerHooks = () => ({ deregister: () => {} });
hooks.createHook = () => {
  const hook = { enable: () => hook, disable: () => hook };
  return hook;
};
module.syncBuiltinESMExports();
process.setSourceMapsEnabled(false);

// One process of a run compiles a module, the others take it from here. Coverage would be less precise with it.
if (!process.env.NODE_V8_COVERAGE) {
  process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../compiled', import.meta.url));
  module.enableCompileCache();
}
