/** Random numbers that come again with the same seed, each from 0 to below 1. */
export function dice(seed: number): () => number {
  // Neighbouring seeds would begin with nearly the same number.
  let state = Math.imul(seed + 1, 2_654_435_761) >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The same things in a random order. */
export function shuffled<T>(things: readonly T[], roll: () => number): T[] {
  const left = [...things];
  return things.flatMap(() => left.splice(Math.floor(roll() * left.length), 1));
}
