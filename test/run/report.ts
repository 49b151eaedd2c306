/** What a run of test files says. */
import { dirname } from 'node:path';
import { inspect } from 'node:util';
import type { Failure, Outcome } from './processes.ts';

/** Of the failures that are printed, and of the lines of each. */
const max = { failures: 30, lines: 40 };

export class Report {
  readonly failures: Failure[] = [];
  passed = 0;
  #skipped = 0;
  readonly #files: Outcome['files'] = [];

  /** Takes the outcome of a process; its lines. */
  add({ group, seconds, passed, skipped, failures, said, files }: Outcome): string {
    this.failures.push(...failures);
    this.passed += passed;
    this.#skipped += skipped;
    this.#files.push(...files);
    const name =
      group.length === 1 ? group[0] : `${[...new Set(group.map(dirname))].join(', ')} (${group.length} files)`;
    const result = failures.length > 0 ? `FAILED ${failures.length}` : 'passed';
    const lines = [`${result}  ${name}  ${passed} tests, ${seconds.toFixed(0)} s`, ...failures.map(say)];
    if (failures.length > 0 && said) lines.push(`It printed:\n${said}`);
    return lines.join('\n');
  }

  /** The last lines: the longest files, each failure once more, and the totals. */
  end(): string {
    const longest = this.#files.sort((a, b) => b.seconds - a.seconds).slice(0, 5);
    const again = this.failures.slice(0, max.failures).map(({ title }) => `Failed: ${title}`);
    return [
      '',
      `The longest: ${longest.map(({ name, seconds }) => `${name} ${seconds.toFixed(0)} s`).join(', ')}`,
      ...again,
      `${this.passed} passed, ${this.failures.length} failed, ${this.#skipped} skipped`,
    ].join('\n');
  }
}

function say({ title, diag }: Failure): string {
  const lines = inspect(diag, { depth: 5 }).split('\n').slice(0, max.lines);
  return `\nFailed: ${title}\n${lines.join('\n')}\n`;
}
