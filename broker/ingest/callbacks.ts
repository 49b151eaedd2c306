/** Called once, with an error when the work has failed. */
export type Settled = (error?: Error) => void;

/** Passes on the first call only. */
export function once(done: Settled): Settled {
  let called = false;
  return (error) => {
    if (called) return;
    called = true;
    done(error);
  };
}

/** Calls back when it has been called twice; with the first error. */
export function afterBoth(done: Settled): Settled {
  let calls = 0;
  let failure: Error | undefined;
  return (error) => {
    calls += 1;
    failure ??= error;
    if (calls === 2) done(failure);
  };
}
