/** Names that people mistype. */

/** Of `known` the name that was probably meant: one that only case or one letter keeps from `given`. */
export function nearName(given: string, known: Iterable<string>): string | undefined {
  for (const one of known) if (isNear(given, one)) return one;
  return undefined;
}

/** One letter is missing, too many, another one or swapped with the next. */
function isNear(given: string, known: string): boolean {
  if (Math.abs(given.length - known.length) > 1) return false;
  const [one, other] = [given.toLowerCase(), known.toLowerCase()];
  if (one === other) return true;
  // Of two letters, one is half of the name.
  if (known.length < 3) return false;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  const [rest, otherRest] = [one.slice(at), other.slice(at)];
  const swapped = `${rest.charAt(1)}${rest.charAt(0)}${rest.slice(2)}`;
  return [
    [rest.slice(1), otherRest],
    [rest, otherRest.slice(1)],
    [rest.slice(1), otherRest.slice(1)],
    [swapped, otherRest],
  ].some(([left, right]) => left === right);
}
