/**
 * `npm test [-- test/registry test/http/pages.test.ts]`: runs the test files of these folders, or of all but the slow ones. Ends 1
 * when one fails. A folder is cut into processes, and files need to be listed nowhere.
 */
import { parseArgs } from 'node:util';
import { filesAt, groupsOf } from './files.ts';
import { runGroups } from './processes.ts';
import { Report } from './report.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    /** Processes at once. */
    jobs: { type: 'string', default: '3' },
    /** Seconds that one file may take; a slow one may take five times as long. */
    limit: { type: 'string', default: '120' },
  },
});
const report = new Report();
const groups = groupsOf(filesAt(positionals.length > 0 ? positionals : ['test']));
await runGroups(groups, {
  jobs: Number(values.jobs),
  limit: Number(values.limit),
  ended: (outcome) => console.log(report.add(outcome)),
});
console.log(report.end());
process.exitCode = report.failures.length > 0 ? 1 : 0;
