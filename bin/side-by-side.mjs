/**
 * `node bin/side-by-side.mjs SCRIPT...`: runs npm scripts at the same time. Prints the output of each when it ends, and how long
 * it took. Exits with 1 if one of them fails.
 */
import { spawn } from 'node:child_process';
import process from 'node:process';

/** Resolves with whether the script succeeded. */
function run(script) {
  const started = performance.now();
  const child = spawn('npm', ['run', '-s', script], {
    stdio: ['ignore', 'pipe', 'pipe'],
    shell: process.platform === 'win32',
  });
  const output = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => output.push(chunk));
  return new Promise((resolve) => {
    child.once('error', (error) => output.push(Buffer.from(`${error.message}\n`)));
    child.once('close', (code) => {
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      process.stdout.write(Buffer.concat(output));
      process.stdout.write(`${script}: ${code === 0 ? 'ok' : 'failed'} (${seconds} s)\n`);
      resolve(code === 0);
    });
  });
}

const results = await Promise.all(process.argv.slice(2).map(run));
process.exitCode = results.every(Boolean) ? 0 : 1;
