/** Runs of work by key. Who owns the map can await all that is under way. */

/** Joins the run of this key, or begins one. */
export function joinRun<K, R>(runs: Map<K, Promise<R>>, key: K, work: () => Promise<R>): Promise<R> {
  const joined = runs.get(key);
  if (joined) return joined;
  const run = work().finally(() => runs.delete(key));
  runs.set(key, run);
  return run;
}

/** Runs work after all that was begun before with this key, however that has ended. */
export function queueRun<K, R>(runs: Map<K, Promise<void>>, key: K, work: () => Promise<R>): Promise<R> {
  const run = (runs.get(key) ?? Promise.resolve()).then(work);
  const forget = () => {
    if (runs.get(key) === ended) runs.delete(key);
  };
  const ended = run.then(forget, forget);
  runs.set(key, ended);
  return run;
}

/** As `queueRun`, for work that ends elsewhere: resolves when it may begin, with what is to be called at its end. */
export function queueTurn<K>(runs: Map<K, Promise<void>>, key: K): Promise<() => void> {
  return new Promise((begin) => {
    void queueRun(runs, key, () => new Promise<void>((end) => begin(end)));
  });
}
