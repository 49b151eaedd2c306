/** A geo database as small as the format allows (MaxMind DB 2.0): IPv4 addresses and where they are. */

type Value = string | number | bigint | Value[] | { double: number } | { [name: string]: Value };
type Node = [Node | number | undefined, Node | number | undefined];

const strings = 2;
const doubles = 3;
const uint32s = 6;
const maps = 7;
const uint64s = 9;
const arrays = 11;

/** `places` are `[latitude, longitude]` by address; undefined is an address without a position. */
export function geoDatabase(places: Record<string, [number, number] | undefined>): Buffer {
  const root: Node = [undefined, undefined];
  const data: Buffer[] = [];
  let size = 0;
  for (const [address, place] of Object.entries(places)) {
    const location = place && { location: { latitude: { double: place[0] }, longitude: { double: place[1] } } };
    const record = encode({ country: { iso_code: 'DE' }, ...location });
    insert(root, address, size);
    data.push(record);
    size += record.length;
  }
  const nodes: Node[] = [];
  collect(root, nodes);
  const tree = Buffer.alloc(nodes.length * 6);
  for (const [place, node] of nodes.entries())
    for (const side of [0, 1] as const) {
      const to = node[side];
      // A number is an offset of data, which begins behind 16 bytes of nothing.
      const pointer =
        to === undefined ? nodes.length : typeof to === 'number' ? nodes.length + 16 + to : nodes.indexOf(to);
      tree.writeUIntBE(pointer, place * 6 + side * 3, 3);
    }
  const metadata = encode({
    binary_format_major_version: 2,
    binary_format_minor_version: 0,
    build_epoch: 1_700_000_000n,
    database_type: 'Test-City',
    description: { en: 'test' },
    ip_version: 4,
    languages: ['en'],
    node_count: nodes.length,
    record_size: 24,
  });
  return Buffer.concat([tree, Buffer.alloc(16), ...data, Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1'), metadata]);
}

function insert(root: Node, address: string, offset: number): void {
  const bits = address.split('.').flatMap((byte) => [...Number(byte).toString(2).padStart(8, '0')].map(Number));
  let node = root;
  for (const [depth, bit] of bits.entries()) {
    if (depth === bits.length - 1) node[bit] = offset;
    else {
      const next = (node[bit] as Node | undefined) ?? [undefined, undefined];
      node[bit] = next;
      node = next;
    }
  }
}

function collect(node: Node, nodes: Node[]): void {
  nodes.push(node);
  for (const next of node) if (Array.isArray(next)) collect(next, nodes);
}

function encode(value: Value): Buffer {
  if (typeof value === 'string') return Buffer.concat([control(strings, Buffer.byteLength(value)), Buffer.from(value)]);
  if (typeof value === 'number') return Buffer.concat([control(uint32s, 4), bytes(value, 4)]);
  if (typeof value === 'bigint') return Buffer.concat([control(uint64s, 6), bytes(Number(value), 6)]);
  if (Array.isArray(value)) return Buffer.concat([control(arrays, value.length), ...value.map(encode)]);
  if (typeof value.double === 'number') {
    const double = Buffer.alloc(8);
    double.writeDoubleBE(value.double);
    return Buffer.concat([control(doubles, 8), double]);
  }
  const entries = Object.entries(value as Record<string, Value>);
  return Buffer.concat([control(maps, entries.length), ...entries.flatMap(([name, of]) => [encode(name), encode(of)])]);
}

/** The type and the size, below 29, of what follows. */
function control(type: number, size: number): Buffer {
  return type > 7 ? Buffer.from([size, type - 7]) : Buffer.from([(type << 5) | size]);
}

function bytes(value: number, length: number): Buffer {
  const written = Buffer.alloc(length);
  written.writeUIntBE(value, 0, length);
  return written;
}
