/** Sends firmware files from the disk. A download has one buffer, which is read into when its last bytes have been sent. */
import { type FileHandle, open } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { FirmwareFiles } from '../../../db/files/firmware.ts';
import { Scheduler, unbounded } from '../../core/scheduler/scheduler.ts';
import type { Delivery } from '../rollouts/rollout.ts';
import { Places } from './places.ts';

const bufferBytes = 64 * 1024;
/**
 * Reads of the disk at once. Fewer than the threads of libuv, which hash and sign as well; and the event loop serves others
 * after every few buffers, however many downloads there are.
 */
const readsAtOnce = 2;
/** Downloads of one device at a time: the oldest ends for another one. */
const maxPerDevice = 4;
/** Downloads that may wait for their reader without a place, for each place that there is. */
const waitingPerPlace = 2;
/** Milliseconds between two looks at downloads that do not proceed. */
const lookEvery = 500;
/** Milliseconds without a download after which spare buffers go. */
const restsAfter = 60_000;

/** Milliseconds that one buffer may take: then the download loses its place to others, and at last it is ended. */
const usualPatience = { place: 2000, end: 300_000 };

/** Bytes `from` to `to` (inclusive) of a content. */
export interface WantedBytes {
  delivery: Delivery;
  sha256: string;
  from: number;
  to: number;
}

/** A download under way. `since` is when its buffer was handed over, milliseconds of `performance`; 0 while it reads. */
interface Running {
  response: ServerResponse;
  accountId: string;
  deviceId: string;
  since: number;
  hasPlace: boolean;
  giveBack(): void;
}

export class Downloads {
  readonly places: Places;
  readonly #firmware: FirmwareFiles;
  readonly #come: (delivery: Delivery, bytes: number) => void;
  readonly #patience: typeof usualPatience;
  readonly #maxWaiting: number;
  /** Accounts take turns, by bytes. Nobody queues more than its downloads, which are bounded themselves. */
  readonly #reads = new Scheduler({
    atOnce: readsAtOnce,
    quantum: bufferBytes,
    maxWaiting: unbounded,
  });
  /** By device, the oldest first. */
  readonly #running = new Map<string, Set<Running>>();
  /** Buffers of downloads that have ended, for the next ones: as garbage they would stay until the heap is full. */
  #spare: Buffer[] = [];
  /** When a download last ended, milliseconds of `performance`. */
  #lastEnd = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Bytes that have been sent, and downloads that were ended because their reader did not read, since the start. */
  sent = 0;
  ended = 0;

  /** `come` hears how far a download has come. */
  constructor(
    firmware: FirmwareFiles,
    most: number,
    come: (delivery: Delivery, bytes: number) => void,
    patience = usualPatience,
  ) {
    this.#firmware = firmware;
    this.#come = come;
    this.#patience = patience;
    this.#maxWaiting = most * waitingPerPlace;
    this.places = new Places(most);
  }

  /** Downloads under way, those that wait for their reader too. */
  get running(): number {
    let count = 0;
    for (const own of this.#running.values()) count += own.size;
    return count;
  }

  /** Downloads that wait for their reader and have lost their place. */
  get waiting(): number {
    return this.#all().filter(isWaiting).length;
  }

  /** Sends the body of a response whose head is set; resolves when it has ended. `giveBack` frees the place that it has. */
  async send(response: ServerResponse, wanted: WantedBytes, giveBack: () => void): Promise<void> {
    const { deviceId, accountId } = wanted.delivery;
    const own = this.#running.get(deviceId) ?? new Set();
    const one: Running = { response, accountId, deviceId, since: 0, hasPlace: true, giveBack };
    this.#running.set(deviceId, own.add(one));
    for (const oldest of [...own].slice(0, Math.max(0, own.size - maxPerDevice))) oldest.response.destroy();
    this.#timer ??= setInterval(() => this.#dropStalled(), Math.min(lookEvery, this.#patience.place)).unref();
    let file: FileHandle | undefined;
    try {
      file = await open(this.#firmware.pathOf(wanted.sha256), 'r');
      await this.#pump(one, file, wanted);
    } finally {
      giveBack();
      this.#lastEnd = performance.now();
      await file?.close();
      own.delete(one);
      if (own.size === 0 && this.#running.get(deviceId) === own) this.#running.delete(deviceId);
    }
  }

  async #pump(one: Running, file: FileHandle, { delivery, from, to }: WantedBytes): Promise<void> {
    const buffer = this.#spare.pop() ?? Buffer.allocUnsafeSlow(bufferBytes);
    for (let at = from; at <= to; ) {
      if (one.response.destroyed) return;
      const bytes = await this.#read(delivery, file, buffer, at, Math.min(buffer.length, to - at + 1));
      one.since = performance.now();
      const isOut = await written(one.response, bytes);
      one.since = 0;
      if (!isOut) return;
      at += bytes.length;
      this.sent += bytes.length;
      this.#come(delivery, at);
    }
    // Not where the reader has gone: its last bytes may still be in use.
    this.#spare.push(buffer);
    one.response.end();
  }

  /** A few bytes of a content, as one piece of work among those of all accounts. */
  async chunk(delivery: Delivery, sha256: string, at: number, length: number): Promise<Buffer> {
    const file = await open(this.#firmware.pathOf(sha256), 'r');
    try {
      const bytes = await this.#read(delivery, file, Buffer.allocUnsafe(length), at, length);
      this.sent += bytes.length;
      return bytes;
    } finally {
      await file.close();
    }
  }

  #read(
    { accountId, deviceId }: Delivery,
    file: FileHandle,
    buffer: Buffer,
    at: number,
    length: number,
  ): Promise<Buffer> {
    return this.#reads.run({ accountId, callerId: deviceId }, length, async () => {
      const { bytesRead } = await file.read(buffer, 0, length, at);
      if (bytesRead === 0) throw new Error('a firmware file is shorter than it should be');
      return buffer.subarray(0, bytesRead);
    });
  }

  /** Readers that do not read lose their place, and in the end their download: the device goes on with `Range`. */
  #dropStalled(): void {
    const now = performance.now();
    if (this.#running.size === 0 && now - this.#lastEnd >= restsAfter) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      this.#spare = [];
      return;
    }
    for (const one of this.#all()) {
      const waits = one.since === 0 ? 0 : now - one.since;
      if (waits >= this.#patience.place) {
        one.hasPlace = false;
        one.giveBack();
      }
      if (waits >= this.#patience.end) this.#endDownload(one);
    }
    const waiting = this.#all().filter(isWaiting);
    for (let count = waiting.length; count > this.#maxWaiting; count -= 1) this.#endDownload(maxPatientOf(waiting));
  }

  #endDownload(one: Running | undefined): void {
    if (!one || one.response.destroyed) return;
    this.ended += 1;
    one.response.destroy();
  }

  #all(): Running[] {
    return [...this.#running.values()].flatMap((own) => [...own]);
  }

  /** Ends the downloads of a device: it may not have them any more. */
  endOf(deviceId: string): void {
    for (const { response } of [...(this.#running.get(deviceId) ?? [])]) response.destroy();
  }

  /** The process ends. */
  async endAll(): Promise<void> {
    for (const deviceId of [...this.#running.keys()]) this.endOf(deviceId);
    while (this.#running.size > 0) await pause(1);
    clearInterval(this.#timer);
  }
}

function isWaiting({ hasPlace, since, response }: Running): boolean {
  return !hasPlace && since > 0 && !response.destroyed;
}

/** Of the account that has most of them, the one that has waited longest; it is removed from `waiting`. */
function maxPatientOf(waiting: Running[]): Running | undefined {
  const counts = new Map<string, number>();
  for (const { accountId } of waiting) counts.set(accountId, (counts.get(accountId) ?? 0) + 1);
  const [most] = [...counts].sort(([, one], [, other]) => other - one)[0] ?? [];
  const [chosen] = waiting.filter(({ accountId }) => accountId === most).sort((one, other) => one.since - other.since);
  if (chosen) waiting.splice(waiting.indexOf(chosen), 1);
  return chosen;
}

/** Whether the bytes have been handed to the system; false when the reader has gone. */
function written(response: ServerResponse, bytes: Buffer): Promise<boolean> {
  return new Promise((resolve) => {
    if (response.destroyed) return resolve(false);
    const gone = () => resolve(false);
    response.once('close', gone);
    response.write(bytes, (error) => {
      response.off('close', gone);
      resolve(!error && !response.destroyed);
    });
  });
}
