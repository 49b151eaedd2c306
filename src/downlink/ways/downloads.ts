/** Sends firmware files from the disk. A download has one buffer, which is read into when the last bytes of it have left. */
import { type FileHandle, open } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import type { FirmwareFiles } from '../../../db/files/firmware.js';
import type { Delivery } from '../rollouts/rollout.js';
import { Places } from './places.js';

const bufferBytes = 32 * 1024;
/** Milliseconds after which a download that gets nothing rid of gives its place to others; it goes on without one. */
const stallTime = 2000;
/** Downloads of one device at a time: the oldest ends for another one. */
const maxPerDevice = 4;

/** Bytes `from` to `to` (inclusive) of a content. */
export interface Wanted {
  delivery: Delivery;
  sha256: string;
  from: number;
  to: number;
}

export class Downloads {
  readonly places: Places;
  readonly #firmware: FirmwareFiles;
  readonly #come: (delivery: Delivery, bytes: number) => void;
  readonly #running = new Map<string, Set<ServerResponse>>();
  /** Bytes that have been sent since the start. */
  sent = 0;

  /** `come` hears how far a download has come. */
  constructor(firmware: FirmwareFiles, most: number, come: (delivery: Delivery, bytes: number) => void) {
    this.#firmware = firmware;
    this.#come = come;
    this.places = new Places(most);
  }

  /** Downloads under way, those that wait for their reader too. */
  get running(): number {
    let count = 0;
    for (const own of this.#running.values()) count += own.size;
    return count;
  }

  /** Sends the body of an answer whose head is set; resolves when it has ended. `giveBack` frees the place that it has. */
  async send(response: ServerResponse, wanted: Wanted, giveBack: () => void): Promise<void> {
    const { deviceId } = wanted.delivery;
    const own = this.#running.get(deviceId) ?? new Set();
    this.#running.set(deviceId, own.add(response));
    for (const oldest of [...own].slice(0, Math.max(0, own.size - maxPerDevice))) oldest.destroy();
    let file: FileHandle | undefined;
    try {
      file = await open(this.#firmware.pathOf(wanted.sha256), 'r');
      await this.#pump(response, file, wanted, giveBack);
    } finally {
      giveBack();
      await file?.close();
      own.delete(response);
      if (own.size === 0 && this.#running.get(deviceId) === own) this.#running.delete(deviceId);
    }
  }

  async #pump(response: ServerResponse, file: FileHandle, { delivery, from, to }: Wanted, giveBack: () => void) {
    const buffer = Buffer.allocUnsafeSlow(Math.min(bufferBytes, to - from + 1));
    const stalled = new Stalling(giveBack);
    for (let at = from; at <= to; ) {
      const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, to - at + 1), at);
      if (bytesRead === 0) throw new Error('a firmware file is shorter than it should be');
      stalled.begin();
      const isOut = await written(response, buffer.subarray(0, bytesRead));
      stalled.end();
      if (!isOut) return;
      at += bytesRead;
      this.sent += bytesRead;
      this.#come(delivery, at);
    }
    response.end();
  }

  /** Ends the downloads of a device: it may not have them any more. */
  endOf(deviceId: string): void {
    for (const response of [...(this.#running.get(deviceId) ?? [])]) response.destroy();
  }

  /** The process ends. */
  async endAll(): Promise<void> {
    for (const deviceId of [...this.#running.keys()]) this.endOf(deviceId);
    while (this.#running.size > 0) await pause(1);
  }
}

/** Gives a place back when one write takes too long. */
class Stalling {
  readonly #giveBack: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(giveBack: () => void) {
    this.#giveBack = giveBack;
  }

  begin(): void {
    this.#timer = setTimeout(this.#giveBack, stallTime);
    this.#timer.unref();
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

/** Whether the bytes have left for the system; false when the reader has gone. */
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
