/**
 * Imported into every test process before tap's own loaders (package.json, `test-env`). They send each module through a
 * thread of their own, for TypeScript, mocks and coverage; these tests are compiled and use none of that.
 */
import module from 'node:module';

module.register = () => {};
module.syncBuiltinESMExports();
