/** Reads the only file of a ZIP in which nothing is compressed, as the service makes them of one unit. */

const endOfDirectory = 0x06054b50;
const endLength = 22;

/** @throws Error for anything else. */
export function unzipOnly(bytes: ArrayBuffer): { name: string; content: Uint8Array<ArrayBuffer> } {
  const view = new DataView(bytes);
  // Nothing follows the end of the directory: a comment would.
  const end = bytes.byteLength - endLength;
  if (end < 0 || view.getUint32(end, true) !== endOfDirectory) throw new Error('not a ZIP');
  const entry = view.getUint32(end + 16, true);
  const [method, size, nameLength] = [
    view.getUint16(entry + 10, true),
    view.getUint32(entry + 20, true),
    view.getUint16(entry + 28, true),
  ];
  if (method !== 0) throw new Error('compressed');
  const header = view.getUint32(entry + 42, true);
  const from = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
  const name = new TextDecoder().decode(new Uint8Array(bytes, entry + 46, nameLength));
  return { name, content: new Uint8Array(bytes, from, size) };
}
