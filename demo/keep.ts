/** `npm run demo -- --keep`: an account with a believable fleet, to look at in the console. It stays in `demo-data`. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fillFleet, makePassword } from './fleet.ts';
import { writePast } from './past.ts';
import { type Running, startServer, whileRunning } from './server.ts';
import { troubleEnv } from './troubles.ts';

const emailAddress = 'admin@demo.example';
/** Milliseconds between two readings of a device. */
const publishEvery = 10_000;

/** Fills a new data directory, and serves it until `signal`. A directory that could not be filled is removed. */
export async function keep(signal: AbortSignal): Promise<void> {
  const directory = process.cwd();
  const data = join(directory, 'demo-data');
  makeDirectory(data);
  let isFilled = false;
  let running: Running | undefined;
  try {
    const password = makePassword();
    running = await startServer({ directory, password, env: { ...troubleEnv, SLIPWAY_DATA_DIR: data }, signal });
    const { url, port: mqttPort, accountId } = running;
    const filling = fillFleet({
      ...{ url, mqttPort, accountId, emailAddress, password },
      deviceCount: 500,
      onlineCount: 120,
      say: (line) => process.stdout.write(`  ✓ ${line}\n`),
    });
    const fleet = await whileRunning(running, filling);
    writePast(data, accountId, 120);
    isFilled = true;
    signal.addEventListener('abort', fleet.close, { once: true });
    process.stdout.write(
      `\nOpen ${url}/console/\n  email address  ${emailAddress}\n  password       ${password}\n\nCtrl-C ends it. The data stays in demo-data:\nstart it again with SLIPWAY_DATA_DIR=demo-data npm start, or remove it.\n`,
    );
    const timer = setInterval(() => fleet.publish().catch(() => {}), publishEvery);
    const code = await running.ended;
    clearInterval(timer);
    fleet.close();
    if (code !== 0) throw new Error(`the server ended with ${code}`);
  } finally {
    await running?.stop();
    if (!isFilled) removeDirectory(data);
  }
}

function removeDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true });
  process.stderr.write(`\n${path} was not filled, and has been removed.\n`);
}

/** Creates it for its owner alone, as the server demands. @throws Error if it exists: it belongs to somebody. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new Error(`${path} exists. Start it with SLIPWAY_DATA_DIR=demo-data npm start, or remove it to start again.`);
  }
}
