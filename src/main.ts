/** The first lines of the process: what must hold before any other module is loaded. The rest is in process.ts. */
import { setFlagsFromString } from 'node:v8';

// Databases, keys and the outbox are for the owner of the process alone.
process.umask(0o077);

/**
 * By which factor V8 grows the space of new objects while they survive; 2 is its default. Loading and starting make many
 * objects once and would leave 16 MB of that space behind. With 1 it keeps its size until traffic makes it grow.
 */
const setGrowth = (factor: 1 | 2) => setFlagsFromString(`--semi-space-growth-factor=${factor}`);

/** Where no npm script has looked at the version (systemd, say): better-sqlite3 would end the process without a word. */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 12)) {
  process.stderr.write(`slipway cannot start: it needs Node 22.12 or newer; this is Node ${process.versions.node}.\n`);
  process.exitCode = 1;
} else {
  setGrowth(1);
  const { run } = await import('./process.js');
  await run();
  setGrowth(2);
}
