/** `npm run demo -- --keep`: an account with a believable fleet, to look at in the console. It stays in `demo-data`. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fillFleet, makePassword } from './fleet.js';
import { startServer } from './server.js';

const emailAddress = 'admin@demo.example';
/** Milliseconds between two readings of a device. */
const publishEvery = 10_000;

/** Fills a new data directory, and serves it until Ctrl-C. */
export async function keep(): Promise<void> {
  const directory = process.cwd();
  const data = join(directory, 'demo-data');
  if (existsSync(data))
    throw new Error(`${data} exists. Start it with SLIPWAY_DATA_DIR=demo-data npm start, or remove it to start again.`);
  const password = makePassword();
  const running = await startServer({ directory, password, env: { SLIPWAY_DATA_DIR: data } });
  const { server, url, port: mqttPort, accountId } = running;
  const stop = () => server.kill('SIGTERM');
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  const ended = once(server, 'exit');
  try {
    const login = { url, mqttPort, accountId, emailAddress, password };
    const fleet = await fillFleet({
      ...login,
      deviceCount: 500,
      onlineCount: 120,
      say: (line) => process.stdout.write(`  ✓ ${line}\n`),
    });
    process.stdout.write(
      `\nOpen ${url}/console/\n  email address  ${emailAddress}\n  password       ${password}\n\nCtrl-C ends it.\n`,
    );
    const timer = setInterval(() => fleet.publish().catch(() => {}), publishEvery);
    await ended;
    clearInterval(timer);
    fleet.close();
  } finally {
    server.kill('SIGKILL');
  }
}
