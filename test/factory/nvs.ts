/**
 * Espressif's NVS partition generator, as far as it reads its CSV: written from its documentation ("NVS Partition Generator
 * Utility", "CSV File Format") and what the tool is known to do with text. Every fault is an Error.
 */

export type NvsValue = { encoding: string; value: string | number | Buffer };
/** Values by `namespace/key`. */
export type Nvs = Map<string, NvsValue>;

const integers: Record<string, [bigint, bigint]> = {};
for (const bits of [8, 16, 32, 64]) {
  integers[`u${bits}`] = [0n, 2n ** BigInt(bits) - 1n];
  integers[`i${bits}`] = [-(2n ** BigInt(bits - 1)), 2n ** BigInt(bits - 1) - 1n];
}

export function readNvs(file: string): Nvs {
  // It opens the file as text (CR LF becomes LF) and leaves out lines that begin with #, also inside a quoted value.
  const lines = file
    .replace(/\r\n?/g, '\n')
    .split(/(?<=\n)/)
    .filter((line) => !line.startsWith('#'));
  const [header, ...rows] = readCsv(lines.join(''));
  if (header?.join(',') !== 'key,type,encoding,value') throw new Error('the first line is the header');
  const values: Nvs = new Map();
  const namespaces = new Set<string>();
  let namespace: string | undefined;
  for (const row of rows) {
    if (row.length !== 4) throw new Error(`4 columns, not ${row.length}: ${row}`);
    const [key = '', type, encoding = '', value = ''] = row;
    // NVS: keys and namespaces are ASCII, at most 15 characters; a namespace fits 254 times.
    if (!/^[\x21-\x7e]{1,15}$/.test(key)) throw new Error(`no key: ${key}`);
    if (type === 'namespace') {
      if (encoding !== '' || value !== '') throw new Error('a namespace has neither encoding nor value');
      if (namespaces.has(key)) throw new Error(`namespace ${key} twice`);
      namespace = key;
      namespaces.add(key);
      if (namespaces.size > 254) throw new Error('more than 254 namespaces');
      continue;
    }
    if (namespace === undefined) throw new Error('the first entry is a namespace');
    // Of type file the value is a path on the machine of the generator: then this file would not be all.
    if (type !== 'data') throw new Error(`type ${type}: a file would be another one`);
    const place = `${namespace}/${key}`;
    if (values.has(place)) throw new Error(`${place} twice`);
    values.set(place, { encoding, value: readValue(key, encoding, value) });
  }
  return values;
}

function readValue(key: string, encoding: string, value: string): string | number | Buffer {
  const range = integers[encoding];
  if (range) {
    if (!/^-?\d+$/.test(value) || BigInt(value) < range[0] || BigInt(value) > range[1])
      throw new Error(`${key}: ${value} is no ${encoding}`);
    return Number(value);
  }
  if (encoding === 'string') {
    // The length that it stores is that of the characters: other than ASCII is cut off, and fails the checksum.
    if (/[^\0-\x7f]/.test(value)) throw new Error(`${key}: not ASCII`);
    if (Buffer.byteLength(value) + 1 > 4000) throw new Error(`${key}: more than 4000 bytes with its NUL`);
    // An entry may not span pages: 126 entries of 32 bytes, one of them the header, and one has to stay free.
    if (Math.ceil((value.length + 1) / 32) + 1 >= 126) throw new Error(`${key}: does not fit into a page`);
    return value;
  }
  if (encoding === 'base64') {
    if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(value))
      throw new Error(`${key}: no base64`);
    return blob(key, Buffer.from(value, 'base64'));
  }
  if (encoding === 'hex2bin') {
    if (!/^(?:[0-9a-fA-F]{2})*$/.test(value)) throw new Error(`${key}: no hex`);
    return blob(key, Buffer.from(value, 'hex'));
  }
  throw new Error(`${key}: encoding ${encoding}`);
}

/** Blobs span pages, up to the 508000 bytes that NVS holds of one. */
function blob(key: string, value: Buffer): Buffer {
  if (value.length > 508_000) throw new Error(`${key}: more than 508000 bytes`);
  return value;
}

/** The text of a value, be it a string or a blob that ends with NUL. */
export function nvsText(nvs: Nvs, place: string): string | undefined {
  const value = nvs.get(place)?.value;
  if (!Buffer.isBuffer(value)) return typeof value === 'string' ? value : undefined;
  if (value.at(-1) !== 0) throw new Error(`${place} does not end with NUL`);
  return value.subarray(0, -1).toString();
}

/** CSV as Python's csv module reads it (dialect excel), where a blank line is not a row. */
export function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = '';
  let state: 'start' | 'plain' | 'quoted' | 'closing' = 'start';
  const endCell = () => {
    row.push(cell);
    cell = '';
    state = 'start';
  };
  const endRow = () => {
    if (row.length > 0 || state !== 'start') {
      endCell();
      rows.push(row);
    }
    row = [];
  };
  for (const character of text) {
    if (state === 'quoted') {
      if (character === '"') state = 'closing';
      else cell += character;
    } else if (character === ',') endCell();
    else if (character === '\n') endRow();
    else if (character === '"' && state === 'start') state = 'quoted';
    else if (character === '"' && state === 'closing') {
      cell += '"';
      state = 'quoted';
    } else {
      if (state === 'closing') throw new Error(`text after a closing quote: ${character}`);
      cell += character;
      state = 'plain';
    }
  }
  if (state === 'quoted') throw new Error('a quote is open at the end');
  if (row.length > 0 || cell !== '') endRow();
  return rows;
}
