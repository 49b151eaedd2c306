/** The first lines of the process: what must hold before any other module is loaded. The rest is in process/run.ts. */

// Databases, keys and the outbox are for the owner of the process alone.
process.umask(0o077);

/** Where no npm script has looked at the version (systemd, say): better-sqlite3 needs Node-API 10 and would end the process without a word. */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 14)) {
  process.stderr.write(`slipway cannot start: it needs Node 22.14 or newer; this is Node ${process.versions.node}.\n`);
  process.exitCode = 1;
} else {
  const [{ run }, { boundHeap }] = await Promise.all([import('./process/run.ts'), import('./core/threads/heap.ts')]);
  await run();
  boundHeap();
}
