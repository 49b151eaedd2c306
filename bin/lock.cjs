/**
 * Runs after npm has changed node_modules. better-sqlite3 brings its compiled code and says so with `gypfile: false`.
 * npm leaves that out of the lock file; npm 10 would then compile the package, which needs a compiler and Python.
 */
'use strict';

const { readFileSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');

const file = join(__dirname, '../package-lock.json');
const lock = JSON.parse(readFileSync(file, 'utf8'));
const entry = lock.packages['node_modules/better-sqlite3'];
if (entry.gypfile !== false) {
  entry.gypfile = false;
  writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
}
