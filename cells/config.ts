/** Reads `cells.yaml`: which cells there are, where each is, and which slots of accounts it has. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { basename } from 'node:path';
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  type YAMLMap,
} from 'yaml';
import { allSlots, readSlots, slotOf, slotsText } from '../src/core/ids.ts';
import { UsageError } from '../src/core/usage-error.ts';

/** One server with its data directory. */
export interface Cell {
  /** Also the first label of its host name: the cell `c01` is `c01.things.example.com`. */
  name: string;
  /** An IP address or a host name. */
  address: string;
  /** Ports. */
  http: number;
  mqtt: number;
  mqtts: number;
  /** Whether the cell has a certificate of its own (SLIPWAY_TLS_CERT). Its HTTP port then speaks TLS. */
  tls: boolean;
  /** Three hexadecimal digits each, in order. */
  slots: readonly string[];
}

/** The public side: where HAProxy listens. */
export interface PublicSide {
  /** An IP address; `::` is every address of IPv4 and IPv6. */
  address: string;
  http: number;
  mqtt: number;
  mqtts: number;
  /** A PEM file with certificate and key. Without it, HTTP is plain and MQTT over TLS ends at the cells. */
  certificate: string | undefined;
  /** The UNIX socket of HAProxy's runtime commands. */
  adminSocket: string;
  /** A PEM file with the CAs of the cells' certificates. Without it, HAProxy does not verify them. */
  cellAuthority: string | undefined;
  /** SLIPWAY_HEADER_PREFIX of the cells. */
  headerPrefix: string;
  /** Which ids that no map knows the cells are asked for: those that the product cannot have made, or all. */
  lookup: 'foreign' | 'all';
  /** The user and group that HAProxy runs as. */
  user: string;
}

/** The content of `cells.yaml`. Every slot belongs to exactly one cell. */
export interface CellsConfig {
  /** By name, in the order of the file. */
  cells: ReadonlyMap<string, Cell>;
  /** The name of the cell of each of the 4,096 slots. */
  cellOfSlot: ReadonlyMap<string, string>;
  /** Ids without the digits of their account, by the id of the account. They are where the account is. */
  accounts: ReadonlyMap<string, readonly string[]>;
  public: PublicSide;
}

const defaultPorts = { http: 3000, mqtt: 1883, mqtts: 8883 } as const;
const defaultPublic = {
  address: '0.0.0.0',
  mqtt: 1883,
  mqtts: 8883,
  adminSocket: '/run/haproxy/admin.sock',
  headerPrefix: 'platform',
  lookup: 'foreign',
  user: 'haproxy',
};
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** An id of a device may come from a certificate, so it is not always a UUID. */
const otherId = /^[A-Za-z0-9._:@-]{1,255}$/;
/** More than this is nobody's list by hand, and no file that somebody meant. */
const maxBytes = 64 * 1024 * 1024;

/** @throws UsageError with every fault of the file, one a line, each with its line number. */
export function readCellsFile(path: string): CellsConfig {
  return readCells(contentOf(path), basename(path));
}

/** The text of a configuration file. @throws UsageError when it cannot be read. */
export function contentOf(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}.`);
  }
  if (text.length > maxBytes) throw new UsageError(`${path} has more than ${maxBytes} characters.`);
  return text;
}

/** As `readCellsFile`, of a text; `name` is what messages call it. @throws UsageError */
export function readCells(text: string, name = 'cells.yaml'): CellsConfig {
  const { document, lines } = parse(text, name);
  const faults = new Faults(name, lines);
  const top = faults.mapOf(document.contents, '', ['cells', 'public', 'accounts']);
  const cells = readAllCells(top.get('cells'), faults);
  const cellOfSlot = new Map<string, string>();
  for (const { name: cell, slots } of cells.values()) {
    const taken = slots.filter((slot) => cellOfSlot.has(slot));
    if (taken.length > 0)
      faults.add(top.get('cells'), `cells.${cell}.slots: ${slotsText(taken)} already belongs to another cell.`);
    for (const slot of slots) cellOfSlot.set(slot, cell);
  }
  const missing = allSlots.filter((slot) => !cellOfSlot.has(slot));
  if (cells.size > 0 && missing.length > 0)
    faults.add(
      top.get('cells'),
      `cells: no cell has the slots ${slotsText(missing)}. Every slot from 000 to fff needs a cell.`,
    );
  const accounts = readAccounts(top.get('accounts'), faults);
  const publicSide = readPublic(top.get('public'), faults);
  faults.demandNone();
  return { cells, cellOfSlot, accounts, public: publicSide };
}

/** The name of the cell of an account, by the digits of its id. */
export function cellOfAccount({ cellOfSlot }: Pick<CellsConfig, 'cellOfSlot'>, accountId: string): string | undefined {
  return cellOfSlot.get(slotOf(accountId));
}

/**
 * The text of `cells.yaml` with one slot given to another cell. Comments and order stay as they are.
 * @throws UsageError when the text cannot be read, or has no such cell or slot.
 */
export function withSlotMoved(text: string, slot: string, to: string, name = 'cells.yaml'): string {
  const { cells, cellOfSlot } = readCells(text, name);
  const [from, target] = [cells.get(cellOfSlot.get(slot) ?? ''), cells.get(to)];
  if (!from) throw new UsageError(`${slot} is not a slot. A slot has three hexadecimal digits, 000 to fff.`);
  if (!target)
    throw new UsageError(`There is no cell ${to} in ${name}. Its cells are ${[...cells.keys()].join(', ')}.`);
  if (from === target) return text;
  const { document } = parse(text, name);
  document.setIn(['cells', from.name, 'slots'], slotsText(from.slots.filter((one) => one !== slot)));
  document.setIn(['cells', to, 'slots'], slotsText([...target.slots, slot]));
  return document.toString({ lineWidth: 0 });
}

function parse(text: string, name: string): { document: Document.Parsed; lines: LineCounter } {
  const lines = new LineCounter();
  // Every value is read as text: 100 and 1e3 are slots, not numbers.
  const document = parseDocument(text, { schema: 'failsafe', lineCounter: lines, prettyErrors: false });
  const [error] = document.errors;
  if (error) throw new UsageError(`${name}:${lines.linePos(error.pos[0]).line}: ${error.message}`);
  return { document, lines };
}

function readAllCells(node: Node | undefined, faults: Faults): Map<string, Cell> {
  const cells = new Map<string, Cell>();
  const given = faults.mapOf(node, 'cells');
  if (given.size === 0) faults.add(node, 'cells: at least one cell is required.');
  for (const [name, value] of given) {
    const path = `cells.${name}`;
    if (!/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/.test(name) || name === 'any' || name.startsWith('slot-'))
      faults.add(
        value,
        `${path}: the name of a cell has 1 to 32 lower-case letters, digits and hyphens, and is not 'any' or 'slot-…'.`,
      );
    const fields = faults.mapOf(value, path, ['address', 'http', 'mqtt', 'mqtts', 'tls', 'slots']);
    const portOf = (key: keyof typeof defaultPorts) =>
      faults.port(fields.get(key), `${path}.${key}`, defaultPorts[key]);
    cells.set(name, {
      name,
      address: faults.address(fields.get('address'), `${path}.address`, value),
      http: portOf('http'),
      mqtt: portOf('mqtt'),
      mqtts: portOf('mqtts'),
      tls: faults.flag(fields.get('tls'), `${path}.tls`),
      slots: faults.slots(fields.get('slots'), `${path}.slots`),
    });
  }
  return cells;
}

function readPublic(node: Node | undefined, faults: Faults): PublicSide {
  const keys = [
    'address',
    'http',
    'mqtt',
    'mqtts',
    'certificate',
    'adminSocket',
    'cellAuthority',
    'headerPrefix',
    'lookup',
    'user',
  ];
  const fields = faults.mapOf(node, 'public', keys);
  const pathOf = (key: string) => faults.path(fields.get(key), `public.${key}`);
  const certificate = pathOf('certificate');
  const headerPrefix = faults.text(fields.get('headerPrefix')) ?? defaultPublic.headerPrefix;
  if (!/^[a-z][a-z0-9-]{0,63}$/.test(headerPrefix))
    faults.add(fields.get('headerPrefix'), 'public.headerPrefix: lower-case letters, digits and hyphens are allowed.');
  const user = faults.text(fields.get('user')) ?? defaultPublic.user;
  if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user))
    faults.add(fields.get('user'), 'public.user: the name of a user is expected.');
  const lookup = faults.text(fields.get('lookup')) ?? defaultPublic.lookup;
  if (lookup !== 'foreign' && lookup !== 'all')
    faults.add(fields.get('lookup'), "public.lookup: 'foreign' or 'all' is expected.");
  const address = faults.text(fields.get('address')) ?? defaultPublic.address;
  if (isIP(address) === 0 || address.includes('%'))
    faults.add(fields.get('address'), 'public.address: an IP address is expected.');
  return {
    address,
    http: faults.port(fields.get('http'), 'public.http', certificate === undefined ? 80 : 443),
    mqtt: faults.port(fields.get('mqtt'), 'public.mqtt', defaultPublic.mqtt),
    mqtts: faults.port(fields.get('mqtts'), 'public.mqtts', defaultPublic.mqtts),
    certificate,
    adminSocket: pathOf('adminSocket') ?? defaultPublic.adminSocket,
    cellAuthority: pathOf('cellAuthority'),
    headerPrefix,
    lookup: lookup === 'all' ? 'all' : 'foreign',
    user,
  };
}

function readAccounts(node: Node | undefined, faults: Faults): Map<string, string[]> {
  const accounts = new Map<string, string[]>();
  const seen = new Map<string, string>();
  for (const [accountId, value] of faults.mapOf(node, 'accounts')) {
    const path = `accounts.${accountId}`;
    if (!uuid.test(accountId)) faults.add(value, `${path}: the id of an account is a UUID in lower case.`);
    const ids = faults.listOf(value, path);
    for (const { text, at } of ids) {
      const other = seen.get(text);
      if (!otherId.test(text)) faults.add(at, `${path}: '${text}' is not an id.`);
      else if (other !== undefined) faults.add(at, `${path}: ${text} is listed under ${other} already.`);
      seen.set(text, accountId);
    }
    accounts.set(
      accountId,
      ids.map(({ text }) => text),
    );
  }
  return accounts;
}

/** Reads values, and gathers what is wrong with them: one call tells everything. */
class Faults {
  readonly #name: string;
  readonly #lines: LineCounter;
  readonly #found: string[] = [];

  constructor(name: string, lines: LineCounter) {
    this.#name = name;
    this.#lines = lines;
  }

  add(node: Node | undefined, message: string): void {
    const [start] = node?.range ?? [];
    const line = start === undefined ? '' : `:${this.#lines.linePos(start).line}`;
    this.#found.push(`${this.#name}${line}: ${message}`);
  }

  demandNone(): void {
    const shown = 20;
    const more = this.#found.length - shown;
    if (this.#found.length === 0) return;
    throw new UsageError([...this.#found.slice(0, shown), ...(more > 0 ? [`… and ${more} more.`] : [])].join('\n'));
  }

  /** Empty when there is no value. `allowed` are the names that may be in it. */
  mapOf(node: Node | null | undefined, path: string, allowed?: readonly string[]): Map<string, Node> {
    const entries = new Map<string, Node>();
    const place = path === '' ? '' : `${path}: `;
    if (node === null || node === undefined || this.text(node) === '') return entries;
    if (!isMap(node)) {
      this.add(node, `${place}names with values are expected.`);
      return entries;
    }
    for (const { key, value } of (node as YAMLMap<Node, Node | null>).items) {
      const name = this.text(key) ?? '';
      if (allowed && !allowed.includes(name))
        this.add(key, `${place}'${name}' is unknown; known are ${allowed.join(', ')}.`);
      if (value) entries.set(name, value);
    }
    return entries;
  }

  /** A list, or one text with commas. */
  listOf(node: Node | undefined, path: string): { text: string; at: Node }[] {
    const items = isSeq<Node>(node) ? node.items : node ? [node] : [];
    return items.flatMap((at) => {
      const text = this.text(at);
      if (text !== undefined)
        return text.split(',').flatMap((one) => (one.trim() === '' ? [] : { text: one.trim(), at }));
      this.add(at, `${path}: a list of texts is expected.`);
      return [];
    });
  }

  text(node: Node | null | undefined): string | undefined {
    if (isAlias(node) || !isScalar(node)) return undefined;
    return typeof node.value === 'string' ? node.value : undefined;
  }

  port(node: Node | undefined, path: string, usual: number): number {
    if (!node) return usual;
    const text = this.text(node) ?? '';
    const number = /^\d{1,5}$/.test(text) ? Number(text) : 0;
    if (number < 1 || number > 65_535) this.add(node, `${path}: a port from 1 to 65535 is expected.`);
    return number;
  }

  flag(node: Node | undefined, path: string): boolean {
    if (!node) return false;
    const text = this.text(node);
    if (text !== 'true' && text !== 'false') this.add(node, `${path}: true or false is expected.`);
    return text === 'true';
  }

  path(node: Node | undefined, path: string): string | undefined {
    if (!node) return undefined;
    const text = this.text(node) ?? '';
    // It is written into the configuration of HAProxy, where blanks, quotes, # and $ have a meaning.
    if (!/^\/[A-Za-z0-9._@+:/-]+$/.test(text))
      this.add(node, `${path}: an absolute path of letters, digits and . _ @ + : - is expected.`);
    return text;
  }

  address(node: Node | undefined, path: string, cell: Node): string {
    const text = this.text(node) ?? '';
    const isName =
      /^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$/.test(text);
    // Digits and dots alone are an address, or a mistake in one.
    const isRight = isIP(text) > 0 || (isName && !/^[\d.]+$/.test(text));
    if (!node) this.add(cell, `${path} is required: an IP address or a host name.`);
    else if (!isRight || text.includes('%'))
      this.add(node, `${path}: '${text}' is neither an IP address nor a host name.`);
    return text;
  }

  slots(node: Node | undefined, path: string): string[] {
    const parts = this.listOf(node, path).map(({ text }) => text);
    // A new cell has none until accounts are moved to it.
    if (parts.length === 0) return [];
    const slots = readSlots(parts.join(','));
    if (slots) return slots;
    this.add(node, `${path}: ranges of three hexadecimal digits are expected, such as 000-3ff, each slot once.`);
    return [];
  }
}
