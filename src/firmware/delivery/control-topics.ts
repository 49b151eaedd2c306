/** Firmware on the control topics of a device: CBOR messages as existing boards speak them. */
import type { Logger } from 'pino';
import type { Registry } from '../../../db/registry/index.ts';
import { boundedCache } from '../../../db/sqlite/cache.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import { failure, PlatformError } from '../../core/errors.ts';
import { LongWork } from '../../core/scheduler/long-work.ts';
import type { ControlService, DeviceAddress, Downlink } from '../../ports/downlink.ts';
import type { Rejection } from '../../ports/publisher.ts';
import { type FirmwareFile, filesOf } from '../packages/files.ts';
import { openDelivery, packageOf } from '../rollouts/deliveries.ts';
import type { FirmwareEngine, Listener } from '../rollouts/engine.ts';
import { phases } from '../rollouts/file-reports.ts';
import type { Offer } from '../rollouts/offers.ts';
import type { Progress } from '../rollouts/progress.ts';
import { decodeCbor, encodeCbor } from './cbor.ts';
import type { Downloads } from './downloads.ts';
import { toldAtOnce } from './json.ts';

/** Kinds of messages. */
const kinds = { fileInfo: 0, updateAvailable: 1, getChunk: 2, chunk: 3, fileStatus: 4 } as const;
/** The content of FILE_CHUNK. */
const chunkStatus = { good: 0, noSuchFile: 1, outOfRange: 2, notOffered: 3 } as const;
const maxChunkLength = 1024;
/** Files that FILE_INFO names at most. */
const maxNamed = 64;
/** Milliseconds of silence after which a device that downloads has given up. */
const silence = 60_000;
const devicesRemembered = 50_000;

interface Parts {
  access: Access;
  registry: Registry;
  firmwareEngine: FirmwareEngine;
  downloads: Downloads;
  progress: Progress;
  log: Logger;
}

type Message = Record<string, unknown>;

export class ControlMessages implements ControlService, Listener {
  readonly #parts: Parts;
  readonly #downlink: Pick<Downlink, 'sendControl' | 'listens'>;
  /** Whether a device takes links, as it has said last. */
  readonly #takesLinks = boundedCache<string, boolean>(devicesRemembered);
  /** Devices that download, and how to give back their places. */
  readonly #downloading = new Map<string, { giveBack(): void; timer: NodeJS.Timeout }>();

  constructor(parts: Parts, downlink: Pick<Downlink, 'sendControl' | 'listens'>) {
    this.#parts = parts;
    this.#downlink = downlink;
  }

  listening(): void {}

  async takeMessage(device: DeviceAddress, payload: Buffer): Promise<Rejection | undefined> {
    const message = decodeCbor(payload);
    if (message?.msgver !== 1) return junk('must be a CBOR map with msgtype and msgver 1');
    try {
      if (message.msgtype === kinds.fileInfo) return await this.#fileInfo(device, message);
      if (message.msgtype === kinds.getChunk) return await this.#getChunk(device, message);
      if (message.msgtype === kinds.fileStatus) return await this.#fileStatus(device, message);
      return junk('msgtype must be 0, 2 or 4');
    } catch (error) {
      if (!(error instanceof PlatformError) || error.kind === 'server') throw error;
      return failure(error.kind, error);
    }
  }

  /** The device says what it has: success when it is all new, else what there is for it. */
  async #fileInfo(device: DeviceAddress, { list, L: link }: Message): Promise<Rejection | undefined> {
    if (!Array.isArray(list) || list.length > maxNamed) return junk(`list must have at most ${maxNamed} files`);
    const has = new Map<string, string>();
    for (const one of list as unknown[]) {
      const { N: name, R: revision } = (one ?? {}) as Message;
      if (typeof name !== 'string' || typeof revision !== 'string') return junk('list must hold maps with N and R');
      has.set(name, revision);
    }
    this.#takesLinks.set(device.deviceId, link === true);
    const { registry, firmwareEngine } = this.#parts;
    const delivery = await openDelivery(registry.query, device.deviceId);
    if (!delivery) return undefined;
    const firmware = await packageOf(registry.query, delivery);
    const files = (await filesOf(registry.query, [firmware.id])).get(firmware.id) ?? [];
    if (files.every(({ name, revision }) => has.get(name) === revision)) {
      const { firmwareVersion } = firmware;
      await firmwareEngine.report(callerOf(device), { state: 'succeeded', firmwareVersion });
      return undefined;
    }
    const offer = await firmwareEngine.offers.makeOffer(device.deviceId);
    if (offer) await this.#announce(device, offer, ({ name, revision }) => has.get(name) !== revision);
    return undefined;
  }

  async offersChanged(deviceIds: readonly string[]): Promise<void> {
    const { access, firmwareEngine, log } = this.#parts;
    const longWork = new LongWork();
    const told: Array<Promise<void>> = [];
    for (const deviceId of deviceIds) {
      await longWork.giveWay();
      if (told.length >= toldAtOnce) await Promise.all(told.splice(0));
      const placement = access.placement(deviceId);
      if (!placement || placement.deleted !== null) continue;
      const device = { deviceId, accountId: placement.accountId };
      if (!this.#downlink.listens(device, 'control')) continue;
      const telling = firmwareEngine.offers
        .makeOffer(deviceId)
        .then((offer) => offer && this.#announce(device, offer, () => true))
        .catch((error) => log.error({ err: error, deviceId }, 'an offer could not be sent'));
      told.push(telling);
    }
    await Promise.all(told);
  }

  #announce(
    { deviceId }: DeviceAddress,
    { delivery, files }: Offer,
    isNew: (file: FirmwareFile) => boolean,
  ): Promise<void> {
    const { offers } = this.#parts.firmwareEngine;
    const list = files.filter(isNew).map(({ name, revision, size, sha256 }) => ({
      N: name,
      R: revision,
      O: 0,
      S: size,
      F: Buffer.from(sha256, 'hex'),
      ...(this.#takesLinks.get(deviceId) && { L: offers.urlOf(delivery, sha256) }),
      M: true,
    }));
    return this.#downlink.sendControl(deviceId, encodeCbor({ msgtype: kinds.updateAvailable, msgver: 1, list }), 1);
  }

  async #getChunk(device: DeviceAddress, { N: name, R: revision, O: offset, L: length }: Message) {
    if (typeof name !== 'string' || typeof revision !== 'string') return junk('N and R must be texts');
    if (!isWhole(offset) || !isWhole(length) || length === 0) return junk('O and L must be whole numbers');
    const { firmwareEngine, downloads, progress } = this.#parts;
    const answer = (status: number, bytes: Buffer = Buffer.alloc(0)) =>
      this.#downlink.sendControl(
        device.deviceId,
        encodeCbor({
          ...{ msgtype: kinds.chunk, msgver: 1, N: name, R: revision },
          ...{ O: offset, L: bytes.length, S: status, C: bytes },
        }),
        0,
      );
    const offer = await firmwareEngine.offers.of(device.deviceId);
    if (!offer) {
      await answer(chunkStatus.notOffered);
      return undefined;
    }
    const file = offer.files.find((one) => one.name === name && one.revision === revision);
    if (!file || offset >= file.size) {
      await answer(file ? chunkStatus.outOfRange : chunkStatus.noSuchFile);
      return undefined;
    }
    // Without a place there is no answer: the device asks again, as for one that was lost.
    if (!this.#hasPlace(device)) return undefined;
    const wanted = Math.min(length, maxChunkLength, file.size - offset);
    const bytes = await downloads.chunk(offer.delivery, file.sha256, offset, wanted);
    await answer(chunkStatus.good, bytes);
    progress.received(offer.delivery, offset + bytes.length);
    if (offset + bytes.length === file.size) this.#downloading.get(device.deviceId)?.giveBack();
    return undefined;
  }

  #hasPlace({ deviceId, accountId }: DeviceAddress): boolean {
    const known = this.#downloading.get(deviceId);
    if (known) {
      known.timer.refresh();
      return true;
    }
    try {
      const back = this.#parts.downloads.places.takePlace(accountId);
      const giveBack = () => {
        clearTimeout(timer);
        this.#downloading.delete(deviceId);
        back();
      };
      const timer = setTimeout(giveBack, silence);
      timer.unref();
      this.#downloading.set(deviceId, { giveBack, timer });
      return true;
    } catch (error) {
      if (error instanceof PlatformError && error.kind === 'tooMany') return false;
      throw error;
    }
  }

  async #fileStatus(device: DeviceAddress, { N: name, R: revision, P: phase, S: code }: Message) {
    if (typeof name !== 'string' || typeof revision !== 'string') return junk('N and R must be texts');
    if (!isWhole(phase) || phase < phases.downloading || phase > phases.finished) return junk('P must be 2 to 5');
    if (typeof code !== 'number' || !Number.isInteger(code) || code > 0 || code < -128)
      return junk('S must be 0 or an error');
    const report = { name, revision, phase, ...(code < 0 && { code }) };
    await this.#parts.firmwareEngine.reportFile(callerOf(device), report);
    return undefined;
  }

  /** The process ends. */
  close(): void {
    for (const { giveBack } of [...this.#downloading.values()]) giveBack();
  }
}

function callerOf({ deviceId, accountId }: DeviceAddress): Caller {
  return { kind: 'device', id: deviceId, accountId };
}

function isWhole(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function junk(message: string): Rejection {
  return failure('invalid', { details: [{ message }] });
}
