/** `npm run dev`: builds and starts the server, and again whenever a source changes. Ctrl-C ends both. */
import { spawn } from 'node:child_process';
import { watch } from 'node:fs';
import process from 'node:process';

let server;
let timer;

/** Resolves with whether the build succeeded. */
function build() {
  const building = spawn(process.execPath, ['build.mjs'], { stdio: 'inherit' });
  return new Promise((resolve) => building.once('exit', (code) => resolve(code === 0)));
}

async function restart() {
  const running = server;
  server = undefined;
  if (running && running.exitCode === null) {
    running.kill('SIGTERM');
    await new Promise((resolve) => running.once('exit', resolve));
  }
  if (await build()) server = spawn(process.execPath, ['dist/src/main.js'], { stdio: 'inherit' });
}

for (const folder of ['src', 'broker', 'db', 'console'])
  watch(folder, { recursive: true }, () => {
    clearTimeout(timer);
    timer = setTimeout(restart, 200);
  });
process.once('SIGINT', () => {
  server?.kill('SIGTERM');
  process.exit();
});
await restart();
