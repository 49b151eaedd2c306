/** The log: each line says on whose behalf it was written. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type DestinationStream, type Logger, pino } from 'pino';

/** The cause of a log line: a request, an MQTT connection, or a job. */
export type Cause = { requestId: string } | { connectionId: string } | { jobId: string };

const causes = new AsyncLocalStorage<Cause | undefined>();

/** A log that says of each line what has caused it, when that is known; `destination` is standard output without one. */
export function openLog(level: string, destination?: DestinationStream): Logger {
  const options = { level, mixin: () => ({ ...causes.getStore() }) };
  return destination ? pino(options, destination) : pino(options);
}

/** Runs `work`; what it logs, and what it waits for logs, is on behalf of `cause`, or of nobody. */
export function onBehalfOf<R>(cause: Cause | undefined, work: () => R): R {
  return causes.run(cause, work);
}

/** On whose behalf something is done now: for what is called back from elsewhere, where that is not known any more. */
export function causeNow(): Cause | undefined {
  return causes.getStore();
}
