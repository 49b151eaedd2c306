/** What the service was busy with, by area, from profiles that Node wrote with --cpu-prof. */
import { readFileSync } from 'node:fs';
import { aligned } from './figures.ts';

export interface Profile {
  nodes: Array<{ id: number; callFrame: Frame }>;
  samples: number[];
  /** Microseconds before each sample. */
  timeDeltas: number[];
}

interface Frame {
  functionName: string;
  url: string;
}

/** The first that fits counts. Compiled code of packages counts where it was called. */
const areas: ReadonlyArray<readonly [string, RegExp]> = [
  ['SQLite, with the code that calls it', /node_modules\/better-sqlite3\/|\/(db|dist\/db)\//],
  ['building queries (Kysely)', /node_modules\/kysely\//],
  ['hashes, keys and random bytes', /^node:(internal\/)?(crypto|webcrypto)|node_modules\/(argon2|@phc|jose|uuid)\//],
  ['sockets and HTTP of Node', /^node:(net|_http|internal\/(http|net|stream_base_commons|dtrace))/],
  [
    'streams and events of Node',
    /^node:(events|stream|_stream|internal\/(streams|events|event_target|abort|webstreams|fixed_queue))/,
  ],
  [
    'promises, timers, messages to threads',
    /^node:(timers|async_hooks|worker|internal\/(timers|process|async|worker|per_context|promise))/,
  ],
  ['buffers, URLs and the rest of Node', /^node:/],
  [
    'Aedes and packets',
    /node_modules\/(aedes|mqtt-packet|mqemitter|qlobber|bl|retimer|fastparallel|fastfall)|\/broker\/packets\//,
  ],
  [
    'Fastify with its plugins and schemas',
    /node_modules\/(@fastify|fastify|find-my-way|avvio|fast-|ajv|typebox|@sinclair|light-my-request|secure-json-parse|rfdc|ret|toad-cache|pino|sonic-boom|abstract-logging|process-warning|cookie|reusify|fastq)/,
  ],
  ['other packages', /node_modules\//],
  ['our code', /./],
];
/** Functions without a file: natives of Node, and what V8 does itself. */
const natives: Readonly<Record<string, string>> = {
  '(garbage collector)': 'garbage',
  '(program)': 'native code that is not divided',
  runMicrotasks: 'promises, timers, messages to threads',
  postMessage: 'promises, timers, messages to threads',
};
const socketNatives =
  /^(write|writev|readStart|readStop|shutdown|close|open|consume|finish|execute|free|setNoDelay|getAsyncId)/;

/** Prints the share of each area in the time in which the main thread of a profile was busy, after its first seconds. */
export function sayProfiles(files: readonly string[], skipped: number): void {
  const read = files.map((file) => sharesOf(JSON.parse(readFileSync(file, 'utf8')) as Profile, skipped));
  const names = [...new Set(read.flatMap(({ shares }) => [...shares.keys()]))];
  const most = (name: string) => Math.max(...read.map(({ shares }) => shares.get(name) ?? 0));
  names.sort((one, other) => most(other) - most(one));
  const lines = names.map((name) => [
    name,
    ...read.map(({ shares }) => `${(100 * (shares.get(name) ?? 0)).toFixed(1)} %`),
  ]);
  const busy = read.map((one) => `${(one.busy / 1e6).toFixed(1)} s busy`);
  console.log(aligned([['', ...busy], ...lines]).join('\n'));
}

/** The share of each area after the first seconds, and the microseconds in which anything ran. */
export function sharesOf({ nodes, samples, timeDeltas }: Profile, skipped: number) {
  const areaOf = new Map(nodes.map(({ id, callFrame }) => [id, areaOfFrame(callFrame)]));
  const times = new Map<string, number>();
  let [now, busy] = [0, 0];
  for (const [at, id] of samples.entries()) {
    const took = timeDeltas[at] ?? 0;
    now += took;
    const area = areaOf.get(id);
    if (area === undefined || now < skipped * 1e6) continue;
    times.set(area, (times.get(area) ?? 0) + took);
    busy += took;
  }
  return { busy, shares: new Map([...times].map(([area, time]) => [area, time / busy])) };
}

/** Undefined while nothing runs. */
function areaOfFrame(frame: Frame): string | undefined {
  const { functionName, url } = frame;
  if (functionName === '(idle)' || functionName === '(root)') return undefined;
  if (url === '')
    return (
      natives[functionName] ?? (socketNatives.test(functionName) ? 'sockets and HTTP of Node' : natives['(program)'])
    );
  return areas.find(([, pattern]) => pattern.test(url))?.[0];
}
