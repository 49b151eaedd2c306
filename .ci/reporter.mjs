/**
 * A reporter for tap: its output as it comes, and at the end what failed, with the titles above it, and the totals.
 */
import { Transform } from 'node:stream';
import { inspect } from 'node:util';
import { Parser } from 'tap-parser';

/** Of the failures that are printed again, and of the lines of each. */
const max = { failures: 30, lines: 40 };

export default class Reporter extends Transform {
  #parser = new Parser();
  #counts = { passed: 0, failed: 0, skipped: 0 };
  #failures = [];

  constructor() {
    super();
    this.#follow(this.#parser, []);
  }

  #follow(parser, titles) {
    /** Failures before the test that comes to its end. */
    let before;
    parser.on('child', (child) => {
      before = this.#counts.failed;
      this.#follow(child, [...titles, child.name]);
    });
    parser.on('assert', ({ ok, skip, todo, name, diag }) => {
      // What is in a test has been counted; it fails by itself when its process was killed, say.
      const isCounted = before !== undefined && (ok || before < this.#counts.failed);
      before = undefined;
      if (isCounted && !skip) return;
      const result = skip ? 'skipped' : ok || todo ? 'passed' : 'failed';
      this.#counts[result] += 1;
      if (result === 'failed') this.#failures.push({ title: [...titles, name].join(' > '), diag });
    });
  }

  _transform(chunk, _encoding, done) {
    this.#parser.write(chunk);
    done(null, chunk);
  }

  _flush(done) {
    this.#parser.end();
    for (const { title, diag } of this.#failures.slice(0, max.failures))
      this.push(`\nFailed: ${title}\n${inspect(diag, { depth: 5 }).split('\n').slice(0, max.lines).join('\n')}\n`);
    const { passed, failed, skipped } = this.#counts;
    this.push(`\n${passed} passed, ${failed} failed, ${skipped} skipped\n`);
    done();
  }
}
