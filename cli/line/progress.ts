/** How far a run is, on standard error: a bar on a terminal, a line now and then elsewhere. */

export interface Progress {
  /** Rows that the server has gone through since the last call, and units whose files are on disk. */
  made(rows: number): void;
  written(units: number): void;
  printLine(sentence: string): void;
  endProgress(): void;
}

/** Milliseconds between two lines. */
const lineEvery = 2000;

export async function startProgress(total: number): Promise<Progress> {
  return process.stderr.isTTY ? bar(total) : lines(total);
}

async function bar(total: number): Promise<Progress> {
  const { default: cliProgress } = await import('cli-progress');
  const format = '{bar} {value}/{total} units have their files, {made} rows seen by the server';
  // Neither cursor nor wrapping is touched: a run that is broken off would leave the terminal without them.
  const untouched = { hideCursor: null, linewrap: true };
  const shown = new cliProgress.SingleBar({ format, stream: process.stderr, clearOnComplete: false, ...untouched });
  let [made, units] = [0, 0];
  shown.start(total, 0, { made });
  return {
    made: (rows) => {
      made += rows;
      shown.update(units, { made });
    },
    written: (count) => {
      units += count;
      shown.update(units, { made });
    },
    printLine: (sentence) => {
      process.stderr.write(`\n${sentence}\n`);
    },
    endProgress: () => shown.stop(),
  };
}

function lines(total: number): Progress {
  let [made, units, said, last] = [0, 0, '', 0];
  const tell = () => {
    const sentence = `${units} of ${total} units have their files, ${made} rows seen by the server`;
    if (sentence === said) return;
    [said, last] = [sentence, Date.now()];
    process.stderr.write(`${sentence}\n`);
  };
  const tellSometimes = () => {
    if (Date.now() - last >= lineEvery) tell();
  };
  return {
    made: (rows) => {
      made += rows;
      tellSometimes();
    },
    written: (count) => {
      units += count;
      tellSometimes();
    },
    printLine: (sentence) => {
      process.stderr.write(`${sentence}\n`);
    },
    endProgress: () => {
      if (made > 0) tell();
    },
  };
}
