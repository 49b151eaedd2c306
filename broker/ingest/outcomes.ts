/** What a stage has come to, at once or later: the error when it has failed. */
export type Outcome = Error | undefined | Promise<Error | undefined>;

/** Goes on with a value at once, and with a promise when it has resolved. */
export function after<T, R>(value: T | Promise<T>, next: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/** Goes on when `stage` is over: at once when it waits for nothing. What it throws, or rejects with, is its outcome. */
export function settle<R>(stage: () => Outcome, next: (failure: Error | undefined) => R | Promise<R>): R | Promise<R> {
  let outcome: Outcome;
  try {
    outcome = stage();
  } catch (error) {
    outcome = error as Error;
  }
  return outcome instanceof Promise ? outcome.then(next, next) : next(outcome);
}

/** Of work that calls back, at once or later. */
export function outcomeOf(work: (done: (failure?: Error) => void) => void): Outcome {
  let isOver = false;
  let outcome: Error | undefined;
  let over = (failure?: Error) => {
    isOver = true;
    outcome = failure;
  };
  work((failure) => over(failure));
  if (isOver) return outcome;
  return new Promise((resolve) => {
    over = resolve;
  });
}
