/** On whose behalf something is done: each log line says it, and writes of the registry take turns by it. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type DestinationStream, type Logger, pino } from 'pino';
import { PlatformError } from './errors.ts';
import { LogOutput } from './log-output.ts';
import type { Lane } from './scheduler/lanes.ts';

/** The cause of a log line: a request, an MQTT connection, or a job. */
export type Cause = { requestId: string } | { connectionId: string } | { jobId: string };

/** Without a cause a line says nothing of it. Without a lane it is the service itself that writes. */
export interface Behalf {
  cause?: Cause | undefined;
  /** A function where it is known later, or changes. */
  lane?: Lane | (() => Lane) | undefined;
  /** Whether the client is still there, that asked for it. */
  isAwaited?: () => boolean;
}

const behalves = new AsyncLocalStorage<Behalf>();

/** A log that says of each line what has caused it, when that is known; `destination` is standard output without one. */
export function openLog(level: string, destination: DestinationStream = new LogOutput()): Logger {
  const options = { level, mixin: () => ({ ...causeNow() }) };
  return pino(options, destination);
}

/** Runs `work`; what it logs and writes, and what it waits for logs and writes, is on this behalf; `{}` is the service itself. */
export function onBehalfOf<R>(behalf: Behalf, work: () => R): R {
  return behalves.run(behalf, work);
}

/** On whose behalf something is done now: for what is called back from elsewhere, where that is not known any more. */
export function causeNow(): Cause | undefined {
  return behalves.getStore()?.cause;
}

/** In whose lane something is written now; undefined for the service itself. */
export function laneNow(): Lane | undefined {
  const lane = behalves.getStore()?.lane;
  return typeof lane === 'function' ? lane() : lane;
}

/** Call it before what takes long and is for an answer alone. @throws PlatformError 503 when the client has gone. */
export function demandAwaited(): void {
  if (behalves.getStore()?.isAwaited?.() === false)
    throw new PlatformError('stopping', { message: 'The client has gone.' });
}
