/** Where an address is, by a geo database (MMDB file) when one is configured. */

import { readFile, stat } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import type { CityResponse, Reader } from 'maxmind';
import type { Logger } from 'pino';
import { degreesText } from '../formats/numbers.ts';

/** Milliseconds between two looks at whether the file has been replaced. */
const interval = 1000;

/** Degrees as text, as the fields of a device hold them. */
export interface Position {
  latitude: string;
  longitude: string;
}

/** The geo database in memory; without one it knows nothing. A file that is replaced is read again. */
export class Positions {
  readonly #path: string | undefined;
  readonly #log: Logger;
  #reader: Reader<CityResponse> | undefined;
  #seen: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking = false;

  private constructor(path: string | undefined, log: Logger) {
    this.#path = path;
    this.#log = log;
  }

  /** @throws Error when there is a path and no database at it. */
  static async open(path: string | undefined, log: Logger): Promise<Positions> {
    const positions = new Positions(path, log);
    if (path === undefined) return positions;
    positions.#seen = await stampOf(path);
    positions.#reader = await read(path);
    positions.#timer = setInterval(() => void positions.#readIfNew(path), interval);
    positions.#timer.unref();
    return positions;
  }

  /** Undefined for an address that the database does not know, or of which it knows no position. */
  of(address: string): Position | undefined {
    const reader = this.#reader;
    // In a database of IPv4 alone the first bits of an IPv6 address would be looked up as if they were all.
    if (!reader || (isIPv6(address) && reader.metadata.ipVersion === 4)) return undefined;
    try {
      const { latitude, longitude } = reader.get(address)?.location ?? {};
      const [north, east] = [degreesText(latitude, 90), degreesText(longitude, 180)];
      return north === undefined || east === undefined ? undefined : { latitude: north, longitude: east };
    } catch (error) {
      this.#log.warn({ err: error, path: this.#path }, 'the geo database could not be asked');
      return undefined;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Takes a new file over; one that is broken, or gone, leaves what was read before. */
  async #readIfNew(path: string): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    try {
      const stamp = await stampOf(path);
      if (stamp === this.#seen) return;
      this.#seen = stamp;
      this.#reader = await read(path);
      this.#log.info({ path }, 'the geo database has been read again');
    } catch (error) {
      this.#log.warn({ err: error, path }, 'the geo database could not be read again; the former one is kept');
    } finally {
      this.#looking = false;
    }
  }
}

/** The file's state, which changes when it is replaced. */
async function stampOf(path: string): Promise<string> {
  const { ino, size, mtimeMs } = await stat(path);
  return `${ino}/${size}/${mtimeMs}`;
}

async function read(path: string): Promise<Reader<CityResponse>> {
  // Anyone who has no geo database does not pay for the module.
  const [content, { default: maxmind }] = await Promise.all([readFile(path), import('maxmind')]);
  const reader = new maxmind.Reader<CityResponse>(content);
  // A file can have good metadata and a broken tree.
  for (const address of ['192.0.2.1', '255.255.255.255', '2001:db8::1'])
    if (isUsable(reader, address)) reader.get(address);
  return reader;
}

function isUsable({ metadata }: Reader<CityResponse>, address: string): boolean {
  return metadata.ipVersion === 6 || !isIPv6(address);
}
