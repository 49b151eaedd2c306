/** How large a JSON text is, without building what it says: one pass over its characters. */

export interface JsonSize {
  /** Levels of objects and arrays. */
  depth: number;
  /** Members of the largest object or array on the first two levels, where the points of a payload are. */
  members: number;
}

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openArray, closeArray, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/** The size of a text that may or may not be JSON. Counting ends where `most` is exceeded. */
export function jsonSize(text: string, most: JsonSize): JsonSize {
  const size = { depth: 0, members: 0 };
  const commas = [0, 0, 0];
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === quote) {
      at = endOfString(text, at);
    } else if (unit === openObject || unit === openArray) {
      depth += 1;
      if (depth > size.depth) size.depth = depth;
      if (depth <= 2) commas[depth] = 0;
      if (depth > most.depth) return size;
    } else if (unit === closeObject || unit === closeArray) {
      depth -= 1;
    } else if (unit === comma && (depth === 1 || depth === 2)) {
      const members = (commas[depth] as number) + 2;
      commas[depth] = members - 1;
      if (members > size.members) size.members = members;
      if (members > most.members) return size;
    }
  }
  return size;
}

/** Where the string that begins at `from` ends. */
function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from + 1); at !== -1; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text.charCodeAt(at - 1 - escapes) === backslash) escapes += 1;
    if (escapes % 2 === 0) return at;
  }
  return text.length;
}

/** Levels up to which parsing is cheap, whatever is then said of the result. */
const cheapDepth = 100;

/** Whether parsing a text would take long because of how deeply it is nested. */
export function isNestedDeeply(text: string): boolean {
  return jsonSize(text, { depth: cheapDepth, members: Number.POSITIVE_INFINITY }).depth > cheapDepth;
}
