/** How the bench judges, and what it writes of it. */
import { execFile, execFileSync } from 'node:child_process';
import { promisify } from 'node:util';
import { cells, isMet, type Row } from '../../bench/figures.ts';
import { sharesOf } from '../../bench/profile.ts';
import { described, tables } from '../../bench/report.ts';
import { commitTime, isBusy, type Results } from '../../bench/results.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const measured = { what: 'messages', ours: 70, unit: '/s' };
const peer = { name: 'peer', value: 100 };

t.test('a figure is met or not by its value and by its ratio to the peer, and each of them counts', async (t) => {
  const met = (row: Partial<Row>) => isMet({ ...measured, ...row });
  t.equal(met({ figure: { atLeast: 70 } }), true);
  t.equal(met({ figure: { atLeast: 71 } }), false);
  t.equal(met({ figure: { below: 71 } }), true);
  t.equal(met({ figure: { below: 70 } }), false);
  t.equal(met({ peer, figure: { ofPeer: 0.7 } }), true);
  t.equal(met({ peer, figure: { ofPeer: 0.71 } }), false);
  t.equal(met({ peer, figure: { mostOfPeer: 0.7 } }), true);
  t.equal(met({ peer, figure: { mostOfPeer: 0.69 } }), false);
  t.equal(met({ peer, figure: { atLeast: 71, ofPeer: 0.7 } }), false);
  t.equal(met({ peer, figure: { atLeast: 70, ofPeer: 0.71 } }), false);
});

t.test('without its peer a ratio is not judged, and the table says so', async (t) => {
  const row: Row = { ...measured, ours: 1234.5, figure: { ofPeer: 0.7 } };
  t.equal(isMet(row), undefined);
  t.strictSame(cells(row), ['messages', '≥ 0.7 × peer', '1,235 /s', '', '', 'not judged']);
  const most = { ...row, figure: { mostOfPeer: 1.1 } };
  t.strictSame(cells(most), ['messages', '≤ 1.1 × peer', '1,235 /s', '', '', 'not judged']);
  t.strictSame(cells(measured), ['messages', '', '70 /s', '', '', '']);
});

t.test('each row of a busy machine says so, whether it is judged or not', async (t) => {
  t.equal(isBusy({ scenario: 'get', seconds: 1, load: 0.1, others: 0.4, rows: [] }), true);
  t.equal(isBusy({ scenario: 'get', seconds: 1, load: 0.1, others: 0.2, rows: [] }), false);
  t.equal(cells({ ...measured, figure: { atLeast: 70 } }, true).at(-1), 'met, BUSY');
  t.equal(cells(measured, true).at(-1), 'BUSY');
});

t.test('the machine and the versions of several runs are written once, without those that are not known', async (t) => {
  const machine = { cpu: 'A', cores: 2, memoryGb: 24, kernel: '6.18.44-v1' };
  const run = (slipway: string, more: Partial<Results> = {}): Results => {
    const versions = { slipway, node: '24.21.0', 'mqtt-packet': '9.0.2' };
    return { begun: '2026-11-23T01:00:00Z', scale: 'full', machine, versions, results: [], ...more };
  };
  const newer = { machine: { ...machine, kernel: '6.18.44-v2' } };
  const text = '2 cores (A), 24 GB, Linux 6.18.44; node 24.21.0, mqtt-packet 9.0.2.';
  t.strictSame(described([run('1 (a)'), run('1 (b)', newer), run('1 (a)')]), [
    `Measured on 2026-11-23: slipway 1 (a), 1 (b); ${text}`,
  ]);
  const small = described([run('1 (a)'), run('1 (a)', { scale: 'quick' })]);
  t.strictSame(small, [
    `Measured on 2026-11-23: slipway 1 (a); ${text}`,
    `Measured on 2026-11-23: slipway 1 (a); ${text} **With \`--quick\`: these figures say little.**`,
  ]);
});

t.test('what was measured is named by a time that stays when its commit is rebased', async (t) => {
  const directory = temporaryDirectory(t);
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=A', '-c', 'user.email=a@example.com', ...args], {
      cwd: directory,
      encoding: 'utf8',
    }).trim();
  git('init', '-q');
  git('commit', '-q', '--allow-empty', '-m', 'first', '--date', '2026-11-23T01:02:03+00:00');
  const hash = git('rev-parse', 'HEAD');
  t.equal(commitTime(directory), '2026-11-23T01:02:03+00:00');
  git('commit', '-q', '--allow-empty', '--amend', '-m', 'rebased');
  t.not(git('rev-parse', 'HEAD'), hash);
  t.equal(commitTime(directory), '2026-11-23T01:02:03+00:00');
});

t.test(
  'what an earlier version has shown stands next to it, where it is the same thing with the same peer',
  async (t) => {
    const machine = { cpu: 'A', cores: 2, memoryGb: 24, kernel: '6.18.44-v1' };
    const run = (slipway: string, rows: Row[]): Results => {
      const results = [{ scenario: 'get', seconds: 1, load: 0, rows }];
      return { begun: '2026-11-23T01:00:00Z', scale: 'full', machine, versions: { slipway }, results };
    };
    const now = run('2', [
      { ...measured, peer },
      { ...measured, peer: { ...peer, name: 'another' } },
    ]);
    const lines = tables([now], run('1', [{ ...measured, ours: 35, peer }])).split('\n');
    t.ok(lines.includes('| `get`: messages |  | 35 /s; 0.35 | 70 /s | peer 100 | 0.70 |'), lines.join('\n'));
    t.ok(lines.includes('| `get`: messages |  |  | 70 /s | another 100 | 0.70 |'));
    t.ok(lines.some((line) => line.startsWith('Before: slipway 1 ')));
  },
);

t.test(
  'a profile is divided into areas, without the time in which nothing ran and without its first seconds',
  async (t) => {
    const node = (id: number, functionName: string, url: string) => {
      return { id, callFrame: { functionName, url, lineNumber: 0, columnNumber: 0 } };
    };
    const profile = {
      nodes: [
        node(1, '(idle)', ''),
        node(2, '(garbage collector)', ''),
        node(3, 'writev', ''),
        node(4, 'compile', 'file:///app/node_modules/kysely/dist/query.js'),
        node(5, 'run', 'file:///app/db/sqlite/statements.js'),
      ],
      samples: [4, 1, 2, 3, 5, 5],
      timeDeltas: [1e6, 1e6, 1e6, 2e6, 3e6, 4e6],
    };
    const { busy, shares } = sharesOf(profile, 2);
    t.equal(busy, 10e6);
    const sorted = [...shares].sort(([, one], [, other]) => other - one);
    t.strictSame(sorted, [
      ['SQLite, with the code that calls it', 0.7],
      ['sockets and HTTP of Node', 0.2],
      ['garbage', 0.1],
    ]);
  },
);

t.test('the bench runs without tap, which would end it after 30 seconds', async (t) => {
  const program = new URL('../../bench/main.ts', import.meta.url).pathname;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [program, '--help']);
  t.match(stderr, 'npm run bench');
  t.equal(stdout, '');
});

t.end();
