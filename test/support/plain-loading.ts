/**
 * Imported into every test process before tap's own loaders (package.json, `test-env`). They send each module through a
 * thread of their own, for TypeScript, mocks and coverage; these tests are compiled and use none of that. Neither does a
 * hook follow every promise, to say in which test a stray error was thrown: one ends the file, and its stack says where.
 */
import hooks from 'node:async_hooks';
import module from 'node:module';

module.register = () => {};
hooks.createHook = () => {
  const hook = { enable: () => hook, disable: () => hook };
  return hook;
};
module.syncBuiltinESMExports();
