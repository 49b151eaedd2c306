/** Many walks side by side, and the smallest walk that still goes wrong. */
import type { Place } from './client.ts';
import { show, type Walk, walkOf } from './steps.ts';
import { type Taken, take } from './walk.ts';

export interface Finding extends Taken {
  walk: Walk;
}

interface Run {
  seed: number;
  count: number;
  repeat: number;
  most: number;
}

/** Takes the walks of `count` seeds from `seed` on, each `repeat` times, one at each place at a time. A place where something went wrong is left. */
export async function walkAll(
  newPlace: () => Promise<Place>,
  { seed, count, repeat, most }: Run,
  onFinding: (finding: Finding) => void,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  let next = 0;
  const walker = async () => {
    let place = await newPlace();
    while (next < count * repeat && findings.length < most) {
      const walk = walkOf(seed + Math.floor(next / repeat));
      next += 1;
      const { faults, story } = await take(place, walk);
      if (faults.length === 0) continue;
      place = await newPlace();
      const finding = { walk, faults, story };
      findings.push(finding);
      onFinding(finding);
    }
  };
  await Promise.all(Array.from({ length: Math.min(sideBySide, count * repeat) }, walker));
  return findings;
}

/** As many walks share the service at a time. */
const sideBySide = 32;
/** Lines that somebody reads. */
const longestStory = 120;

export const kindOf = (fault: string) => fault.slice(0, fault.indexOf(':'));

/** Takes steps away while the same kind of fault remains. Each try is taken `tries` times at once. */
export async function shrink(
  newPlace: () => Promise<Place>,
  found: Finding,
  { tries = 16, rounds = 200 } = {},
): Promise<Finding> {
  const kind = kindOf(found.faults[0] ?? '');
  let best = found;
  let left = rounds;
  const fails = async (walk: Walk): Promise<Finding | undefined> => {
    left -= 1;
    if (left < 0) return undefined;
    const taken = await Promise.all(Array.from({ length: tries }, async () => take(await newPlace(), walk)));
    const failed = taken.find(({ faults }) => faults.some((fault) => kindOf(fault) === kind));
    return failed && { ...failed, walk, faults: failed.faults.filter((fault) => kindOf(fault) === kind) };
  };
  for (let size = Math.ceil(best.walk.steps.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < best.walk.steps.length; ) {
      const { steps } = best.walk;
      const smaller = await fails({ ...best.walk, steps: [...steps.slice(0, from), ...steps.slice(from + size)] });
      if (smaller) best = smaller;
      else from += size;
    }
  }
  return best;
}

export const told = ({ walk, faults, story }: Finding) =>
  [...faults.slice(0, 8), show(walk), ...(story.length <= longestStory ? story : [])].join('\n');
