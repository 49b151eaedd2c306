/** Between two grams, because no stored text has it. */
const separator = '\0';

/** Every part of a folded text of up to three characters, once each, behind `key`: the words of an index of texts. */
export function gramsOf(key: string, folded: string): string {
  const characters = [...folded];
  const grams = new Set<string>();
  for (const [n, first] of characters.entries()) {
    const second = characters[n + 1];
    const third = characters[n + 2];
    grams.add(key + first);
    if (second !== undefined) grams.add(key + first + second);
    if (third !== undefined) grams.add(key + first + second + third);
  }
  return [...grams].join(separator);
}
