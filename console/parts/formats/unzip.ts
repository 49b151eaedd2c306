/** Reads ZIP files in the browser: of their files those that are wanted, as far as they are not longer than expected. */

const endOfDirectory = 0x06054b50;
const endLength = 22;
const entryOfDirectory = 0x02014b50;
const methods = { stored: 0, deflated: 8 };

/** The files are longer than expected. */
export class TooLarge extends Error {}

/**
 * The wanted files by their names, at most `maxBytes` in all: what is larger is found out before it is unpacked.
 * @throws TooLarge for larger ones; Error for what is no ZIP, or a damaged one.
 */
export async function unzip(
  zip: ArrayBuffer,
  { wanted = () => true, maxBytes }: { wanted?: (name: string) => boolean; maxBytes: number },
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const view = new DataView(zip);
  let end = zip.byteLength - endLength;
  // A comment may follow.
  while (end >= 0 && view.getUint32(end, true) !== endOfDirectory) end -= 1;
  if (end < 0) throw new Error('not a ZIP');
  const files = new Map<string, Uint8Array<ArrayBuffer>>();
  let entry = view.getUint32(end + 16, true);
  let left = maxBytes;
  for (let count = view.getUint16(end + 10, true); count > 0; count -= 1) {
    if (view.getUint32(entry, true) !== entryOfDirectory) throw new Error('damaged');
    const [method, packed, size] = [
      view.getUint16(entry + 10, true),
      view.getUint32(entry + 20, true),
      view.getUint32(entry + 24, true),
    ];
    const [nameLength, more, comment] = [28, 30, 32].map((at) => view.getUint16(entry + at, true)) as [
      number,
      number,
      number,
    ];
    const name = new TextDecoder().decode(new Uint8Array(zip, entry + 46, nameLength));
    if (wanted(name)) {
      if (size > left) throw new TooLarge();
      const header = view.getUint32(entry + 42, true);
      const from = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
      const content = await unpacked(new Uint8Array(zip, from, packed), method, left);
      left -= content.length;
      files.set(name, content);
    }
    entry += 46 + nameLength + more + comment;
  }
  return files;
}

/** What a file says of its size need not be true: it is unpacked piece by piece. */
async function unpacked(
  bytes: Uint8Array<ArrayBuffer>,
  method: number,
  most: number,
): Promise<Uint8Array<ArrayBuffer>> {
  if (method === methods.stored) return bytes;
  if (method !== methods.deflated) throw new Error('damaged');
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > most) {
      await reader.cancel();
      throw new TooLarge();
    }
    pieces.push(value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}
