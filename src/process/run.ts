/** The process: configuration, context, listen; signals close it in order. */
import { Fenced } from '../../db/files/lock.ts';
import { aboutQuotes, ConfigError, loadConfig } from '../core/config.ts';
import type { CreatedAccount } from '../registry/accounts.ts';
import { FirstWords, greeting, introduction } from './greeting.ts';
import { type Server, startServer } from './server.ts';

/** After a signal everything is closed in this time, in milliseconds, or the process is ended. */
const closeTime = 4500;

/** How long the last lines of the log may wait for their reader, in milliseconds. */
const logTime = 200;

/** Milliseconds between two looks at who holds the data directory; each commit looks, too. */
const fenceInterval = 500;
/** The exit code of a process whose data directory another one has taken over: it must not be started again there. */
const fencedCode = 3;

/** Starts the service. @returns when it listens, or when the start has failed and said why. */
export async function run(): Promise<void> {
  // Who reads the output may go away. The service goes on without it, as pino does.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => {});
  let server: Server;
  let created = '';
  const words = new FirstWords((text) => console.log(text));
  try {
    const config = loadConfig();
    const onChecked = () => {
      if (config.httpPort > 0) words.printConsole(config, config.httpPort);
    };
    const onFirstAccount = (account: CreatedAccount) => {
      words.printLater(introduction(config, account));
      created = '\nThe account above exists now: the next start uses it, and does not show its password again.';
    };
    server = await startServer(config, { onChecked, onFirstAccount });
    words.printConsole(config, Number(new URL(server.url).port));
  } catch (error) {
    words.printWaiting();
    if (error instanceof ConfigError) console.error(`slipway cannot start: ${error.message}${created}`);
    else console.error('slipway cannot start:', error, created);
    process.exitCode = 1;
    return;
  }
  const { log, config } = server.ctx;
  for (const variable of config.unknown) log.warn({ variable }, 'no setting of this version');
  for (const variable of config.quoted) log.warn({ variable }, aboutQuotes);

  const watch = setInterval(() => {
    try {
      server.ctx.fence.checkHolder();
    } catch (error) {
      // A file that cannot be read fails the commits, and readiness with them.
      if (!(error instanceof Fenced)) return;
      log.fatal('another process has taken over the data directory; nothing was acknowledged since');
      process.exit(fencedCode);
    }
  }, fenceInterval);
  watch.unref();

  let closing = false;
  const hurry = new AbortController();
  const stop = async (reason: string) => {
    if (closing || reason === 'uncaughtException') hurry.abort();
    if (closing) return;
    closing = true;
    clearInterval(watch);
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
      // What nobody reads of the log does not hold the process.
      setTimeout(() => process.exit(), logTime).unref();
    } catch (error) {
      log.fatal({ err: error }, 'stopping failed');
      process.exitCode = 1;
    }
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  // Without a certificate and a terminal it has nothing to do, and must not end the process: `systemctl reload` sends it.
  if (server.rereadCertificate || !process.stdout.isTTY) process.on('SIGHUP', () => server.rereadCertificate?.());
  process.on('unhandledRejection', (error) => log.error({ err: error }, 'a promise was rejected and nobody looked'));
  process.on('uncaughtException', (error) => {
    // The state is unknown now: what was acknowledged is on disk, and a fresh process is the safe one.
    log.fatal({ err: error }, 'an exception was not caught');
    process.exitCode = 1;
    void stop('uncaughtException');
  });
  // Last: anyone who reads that it listens may send a signal at once.
  words.printLater(greeting(server));
}
