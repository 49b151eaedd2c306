/** `npm run bench`: measures what the README promises in figures. Each scenario can be run singly. */
import { parseArgs } from 'node:util';
import { measureBridges } from './bridges.ts';
import { measureCells } from './cells.ts';
import { measureConsole } from './console.ts';
import { Directories } from './directories.ts';
import { measureDisturbance } from './disturbance.ts';
import { measureDownloads } from './downloads.ts';
import { measureEnrollment } from './enroll.ts';
import { measureCreates, measureReads } from './entities.ts';
import { measureFan } from './fan.ts';
import { measureGrowth } from './growth.ts';
import { measureLatency } from './latency.ts';
import { measureLevels } from './levels.ts';
import { measureLists } from './lists.ts';
import { measureMemory } from './memory.ts';
import { measureOne } from './one.ts';
import { measureOverview } from './overview.ts';
import { processes } from './processes.ts';
import { sayProfiles } from './profile.ts';
import { measureProvisioning } from './provision.ts';
import { measureReconnect } from './reconnect.ts';
import { writeReport } from './report.ts';
import { begin, loadNow, machineCpu, pressureNow, pressureSince, sayResults, writeResults } from './results.ts';
import { measureSearch } from './search.ts';
import { seed } from './seed.ts';
import { measureSeries } from './series.ts';
import { full, quick, type Scenario, type Size } from './sizes.ts';
import { measureStarts } from './starts.ts';
import { measureStored } from './stored.ts';

interface Listed {
  shows: string;
  run: Scenario;
}

/** Those with a figure of the design; without a name all of them run. */
const figures: Record<string, Listed> = {
  get: { shows: 'GET a device by id next to a bare Fastify route', run: measureReads },
  create: { shows: 'POST /devices', run: measureCreates },
  reconnect: { shows: 'a fleet connects: cold, and with stored sessions after a restart', run: measureReconnect },
  stored: { shows: 'QoS 1 that is on disk before it is acknowledged', run: measureStored },
  levels: { shows: 'MQTT 5 next to MQTT 3.1.1: a stored message, a CONNECT, a connection', run: measureLevels },
  latency: { shows: 'publish → receive on an idle broker', run: measureLatency },
  fan: { shows: 'many publishers and one subscriber, and the other way round', run: measureFan },
  provision: { shows: 'one job of many units next to others, and single requests', run: measureProvisioning },
  enroll: {
    shows: 'devices that get and renew their credential by themselves, next to others',
    run: measureEnrollment,
  },
  lists: { shows: 'every filter and sort of GET /devices in a large registry', run: measureLists },
  search: { shows: 'GET /search with what people type', run: measureSearch },
  overview: { shows: 'GET /overview in a large registry', run: measureOverview },
  series: { shows: 'pages, latest, rollups, a month as CSV while devices publish', run: measureSeries },
  memory: { shows: 'memory of an idle process, and with a fleet connected', run: measureMemory },
  start: { shows: 'how long a start takes with a large registry, and with stored sessions', run: measureStarts },
  growth: { shows: 'what the same costs from a thousand to a million devices', run: measureGrowth },
};
const others: Record<string, Listed> = {
  disturbance: { shows: 'what honest clients feel of those who do harm', run: measureDisturbance },
  cells: {
    shows: 'two cells behind HAProxy: CPU of a message, and what one feels when the other is killed',
    run: measureCells,
  },
  console: { shows: 'the console in a real browser: first view, keystrokes, scrolling, memory', run: measureConsole },
  downloads: { shows: 'what others feel of 200 firmware downloads at once', run: measureDownloads },
  bridges: { shows: 'the rate of bridges to NATS and a webhook, and what they cost publishers', run: measureBridges },
  one: { shows: 'one unit by a process of its own, as a line makes it', run: measureOne },
};
const scenarios = { ...figures, ...others };

const listed = (scenarios: Record<string, Listed>) =>
  Object.entries(scenarios).map(([name, { shows }]) => `  ${name.padEnd(12)} ${shows}`);
const usage = `npm run bench -- [--quick] [--json FILE] [SCENARIO]...
npm run bench -- seed --data-dir D [--devices N]   makes a large registry in D
npm run bench -- report [--before FILE] FILE...    writes such results into docs/performance.md
npm run bench -- profile [--skip S] FILE...        shares of what a profile of the service was busy with, by area

Without a scenario these run, one after the other:
${listed(figures).join('\n')}
These take long, need other programs or are about a single part, and run by name:
${listed(others).join('\n')}

  --quick       small sizes: shows that everything works, and figures that say little
  --json FILE   the results with machine, load and versions
  --devices N   instead of the usual number of devices or units
  --points N    instead of the usual number of points
  --only PART   of disturbance, the named attack alone; of console: views, keys, scrolling, live, memory; of levels: messages,
                connections; of bridges: device; of start: sessions; can be given several times
  --before FILE of report: the results of an earlier version on the same machine
  --skip S      of profile: without the first seconds, in which the service starts
  --data-dir D  a directory with a seeded registry, which is used as it is
The row "lost over 50 × kill -9" is npm run test:crash -- --rounds 50.
`;

const options = {
  quick: { type: 'boolean' },
  json: { type: 'string' },
  devices: { type: 'string' },
  points: { type: 'string' },
  'data-dir': { type: 'string' },
  before: { type: 'string' },
  skip: { type: 'string' },
  only: { type: 'string', multiple: true },
  help: { type: 'boolean' },
} as const;

await run();

async function run(): Promise<void> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  const [devices, points] = [values.devices, values.points].map((text) =>
    text === undefined ? undefined : Number(text),
  );
  const given = values['data-dir'];
  const areNumbers = [devices, points].every(
    (number) => number === undefined || (Number.isInteger(number) && number > 0),
  );
  if (values.help || !areNumbers) return refuse(values.help ? 0 : 2);
  if (positionals[0] === 'seed')
    return given ? void (await seed(given, devices ?? full.large, (line) => console.log(line))) : refuse(2);
  if (positionals[0] === 'report')
    return positionals.length > 1 ? writeReport(positionals.slice(1), values.before) : refuse(2);
  if (positionals[0] === 'profile')
    return positionals.length > 1 ? sayProfiles(positionals.slice(1), Number(values.skip ?? 0)) : refuse(2);
  const names = positionals.length > 0 ? positionals : Object.keys(figures);
  if (!names.every((name) => Object.hasOwn(scenarios, name))) return refuse(2);

  const usual = values.quick ? quick : full;
  const size: Size = {
    ...usual,
    ...(devices && { registry: devices, large: devices, growth: [devices], fleet: devices, units: devices }),
    ...(points && { points }),
  };
  const results = begin(values.quick ? 'quick' : 'full');
  const directories = new Directories();
  const started = processes();
  try {
    for (const name of names) {
      const load = await loadNow();
      console.log(`\n── ${name}: ${scenarios[name]?.shows}; others use ${load} of ${results.machine.cores} cores\n`);
      const from = performance.now();
      const [pressure, machine, own] = [pressureNow(), machineCpu(), ownCpu() + started.cpuSoFar()];
      const directory = given === undefined ? (count: number) => directories.lend(count) : async () => given;
      const measured = await scenarios[name]?.run({ size, directory, only: values.only ?? [], ...started }).then(
        (rows) => ({ rows }),
        (error) => {
          console.error(error);
          return { rows: [], error: String(error) };
        },
      );
      await started.endAll();
      const used = machineCpu() - machine - (ownCpu() + started.cpuSoFar() - own);
      const elapsed = (performance.now() - from) / 1000;
      const others = Math.max(0, Math.round((used / elapsed) * 10) / 10);
      const waited = pressureSince(pressure);
      directories.takeBack();
      const seconds = Math.round((performance.now() - from) / 1000);
      console.log(`\n  ${name} took ${seconds} s`);
      results.results.push({
        scenario: name,
        seconds,
        load,
        others,
        ...(waited !== undefined && { pressure: waited }),
        rows: [],
        ...measured,
      });
      if (values.json !== undefined) writeResults(values.json, results);
    }
  } finally {
    directories.end();
  }
  if (!sayResults(results)) process.exitCode = 1;
}

/** Seconds of CPU time of the bench itself, with its threads. */
function ownCpu(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

function refuse(code: 0 | 2): void {
  console.error(usage);
  process.exitCode = code;
}
