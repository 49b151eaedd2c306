/** The process: configuration, context, listen; signals close it in order. */
import { ConfigError, loadConfig } from './config.js';
import { greeting } from './greeting.js';
import { type Server, startServer } from './server.js';

/** After a signal everything is closed in this time, in milliseconds, or the process is ended. */
const closeTime = 4500;

async function run(): Promise<void> {
  let server: Server;
  try {
    server = await startServer(loadConfig());
  } catch (error) {
    if (error instanceof ConfigError) console.error(`slipway cannot start: ${error.message}`);
    else console.error('slipway cannot start:', error);
    process.exitCode = 1;
    return;
  }
  const { log, config } = server.ctx;
  for (const variable of config.unknown) log.warn({ variable }, 'no setting of this version');
  console.log(greeting(server));

  let closing = false;
  const hurry = new AbortController();
  const stop = async (reason: string) => {
    if (closing || reason === 'uncaughtException') hurry.abort();
    if (closing) return;
    closing = true;
    log.info({ reason }, 'stopping');
    await server.announceEnd(hurry.signal);
    const watchdog = setTimeout(() => {
      log.fatal('closing took too long');
      process.exit(1);
    }, closeTime);
    watchdog.unref();
    try {
      await server.close();
      log.info('stopped');
    } catch (error) {
      log.fatal({ err: error }, 'stopping failed');
      process.exitCode = 1;
    }
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'a promise was rejected and nobody looked'));
  process.on('uncaughtException', (error) => {
    // The state is unknown now: what was acknowledged is on disk, and a fresh process is the safe one.
    log.fatal({ err: error }, 'an exception was not caught');
    process.exitCode = 1;
    void stop('uncaughtException');
  });
}

await run();
