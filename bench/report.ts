/** Writes what runs have shown into docs/performance.md, between its two markers. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { cells, type Row, shown } from './figures.ts';
import { isBusy, type Results, readResults } from './results.ts';

const page = fileURLToPath(new URL('../docs/performance.md', import.meta.url));
const [begin, end] = ['<!-- written by: npm run bench -- report -->', '<!-- end -->'];
/** Of all versions, those that a figure may change with. */
const telling = [
  'node',
  'sqlite',
  'better-sqlite3',
  'aedes',
  'mqtt-packet',
  'fastify',
  'argon2',
  'mosquitto',
  'nats-server',
];

/**
 * Takes the results of these files; where a scenario is in several, the last has it. `before` has those of an earlier version,
 * measured on the same machine. @throws Error for a page without markers.
 */
export function writeReport(files: readonly string[], before?: string): void {
  const runs = files.map(readResults);
  const former = before === undefined ? undefined : readResults(before);
  const text = readFileSync(page, 'utf8');
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`${page} has no place for it`);
  writeFileSync(page, `${text.slice(0, from + begin.length)}\n\n${tables(runs, former)}\n\n${text.slice(to)}`);
}

export function tables(runs: readonly Results[], former?: Results): string {
  const scenarios = new Map(runs.flatMap(({ results }) => results.map((one) => [one.scenario, one] as const)));
  const measured = [...scenarios.values()].filter(({ scenario }) => scenario !== 'growth');
  const blank = former ? [''] : [];
  const lines = measured.flatMap((shown) => {
    const { scenario, rows, error } = shown;
    return error === undefined
      ? rows.map((row) => {
          const [what = '', figure = '', ours = '', peer = '', ratio = '', verdict = ''] = cells(row, isBusy(shown));
          const earlier = former ? [formerly(former, scenario, row)] : [];
          return [`\`${scenario}\`: ${what}`, figure, ...earlier, ours, peer, [ratio, verdict].join(' ').trim()];
        })
      : [[`\`${scenario}\`: failed`, '', ...blank, '', '', error]];
  });
  const crash = 'Acknowledged messages or 2xx writes lost over 50 × kill -9 under load';
  lines.push([`\`npm run test:crash\`: ${crash}`, '0', ...blank, '', '', '']);
  const headings = ['scenario', 'figure', ...(former ? ['before'] : []), 'Slipway', 'peer', 'ratio'];
  return [
    ...described(runs),
    ...(former ? [`Before: slipway ${former.versions.slipway} with its own benchmark, on the same machine.`] : []),
    table(headings, lines),
    'Rows say BUSY where other programs used more than a third of a core.',
    ...grown(scenarios.get('growth')?.rows ?? []),
  ].join('\n\n');
}

/** What an earlier version has shown of the same thing, and its ratio to the peer of then. */
function formerly(former: Results | undefined, scenario: string, { what, devices, peer }: Row): string {
  const rows = former?.results.find((one) => one.scenario === scenario)?.rows ?? [];
  const row = rows.find((one) => one.what === what && one.devices === devices && one.peer?.name === peer?.name);
  if (!row) return '';
  const ratio = row.peer ? `; ${(row.ours / row.peer.value).toFixed(2)}` : '';
  return `${shown(row.ours)} ${row.unit}${ratio}`;
}

/** Machine and versions, once for all runs that had the same, with the days and commits of those. */
export function described(runs: readonly Results[]): string[] {
  const same = new Map<string, Results[]>();
  for (const run of runs) {
    const { cpu, cores, memoryGb, kernel } = run.machine;
    const used = telling.flatMap((name) => (run.versions[name] === undefined ? [] : `${name} ${run.versions[name]}`));
    const sizes = run.scale === 'full' ? '' : ` **With \`--${run.scale}\`: these figures say little.**`;
    const machine = `${cores} cores (${cpu}), ${memoryGb} GB, Linux ${kernel.replace(/-.*/, '')}`;
    const text = `${machine}; ${used.join(', ')}.${sizes}`;
    same.set(text, [...(same.get(text) ?? []), run]);
  }
  return [...same].map(([text, group]) => {
    const days = new Set(group.map(({ begun }) => begun.slice(0, 10)));
    const commits = new Set(group.map(({ versions }) => versions.slipway));
    return `Measured on ${[...days].join(', ')}: slipway ${[...commits].join(', ')}; ${text}`;
  });
}

/** What was measured down, the smallest and the largest number of devices across. */
function grown(rows: readonly Row[]): string[] {
  if (rows.length === 0) return [];
  const all = rows.map(({ devices = 0 }) => devices);
  const numbers = [...new Set([Math.min(...all), Math.max(...all)])];
  const names = [...new Set(rows.map(({ what }) => what))];
  const lines = names.map((name) => [
    name,
    ...numbers.map((number) => {
      const row = rows.find(({ what, devices }) => what === name && devices === number);
      return row ? `${shown(row.ours)} ${row.unit}` : '';
    }),
  ]);
  return ['### How cost grows', table(['', ...numbers.map((number) => `${shown(number)} devices`)], lines)];
}

function table(headings: string[], lines: string[][]): string {
  const line = (all: string[]) => `| ${all.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(headings), line(headings.map(() => '---')), ...lines.map(line)].join('\n');
}
