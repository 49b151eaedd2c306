/** `slipway health`: whether the server of this configuration answers. What the health check of the image runs. */
import { loadConfig } from '../src/core/config.ts';
import { askServer, doubt } from './own-server.ts';
import { Ending, exitCodes, UsageError } from './usage.ts';

/** Prints the server's answer. @throws Ending with exit code 1 when it gives none, or another than 200. */
export async function health({ ready }: { ready: boolean }): Promise<void> {
  const config = loadConfig();
  if (config.httpPort === 0) throw new UsageError('SLIPWAY_HTTP_PORT is 0, so the port of the server is not known.');
  const { status, text } = await askServer(config, ready ? '/health/ready' : '/health/live').catch((error: Error) => {
    throw new Ending(exitCodes.failed, `The server does not answer: ${error.message}. ${doubt}`);
  });
  if (status !== 200) throw new Ending(exitCodes.failed, `The server answers ${status}: ${text}`);
  process.stdout.write(`${text}\n`);
}
