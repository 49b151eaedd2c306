/** Offers to devices and their signed URLs. */
import { timingSafeEqual } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import type { Registry } from '../../../db/registry/index.ts';
import type { Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import { type Clock, timestamp } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';

import { PlatformError } from '../../core/errors.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import { isInForce } from '../../registry/credentials/credentials.ts';
import { type FirmwareFile, filesOf } from '../packages/files.ts';
import { openDelivery, packageOf, skipUpdate } from './deliveries.ts';
import { type Delivery, isOpen } from './rollout.ts';

/** An update that a device may have now. */
export interface Offer {
  delivery: Delivery;
  firmware: Row<'firmwarePackages'>;
  files: readonly FirmwareFile[];
}

export interface OfferServices {
  registry: Registry;
  clock: Clock;
  /** By which an offer is late. */
  ages: Clock;
  config: Config;
  sealing: Sealing;
  access: Access;
}

export class Offers {
  readonly #services: OfferServices;
  readonly #noted: (rolloutIds: Iterable<string>) => void;
  #base = '';

  /** `noted` is called with the rollouts that have made new offers. */
  constructor(services: OfferServices, noted: (rolloutIds: Iterable<string>) => void) {
    this.#services = services;
    this.#noted = noted;
  }

  /** Where devices find the service that have not come over HTTP: `SLIPWAY_PUBLIC_URL`, or where it listens. */
  servedAt(url: string): void {
    this.#base = this.#services.config.publicUrl ?? onNetwork(url);
  }

  /** Where a device finds it that has reached it as `host` (with the port; empty when it has not said). */
  reachedAs(protocol: string, host: string): string {
    return this.#services.config.publicUrl === undefined && host !== '' ? `${protocol}://${host}` : this.#base;
  }

  /** The offer for a device now. A paused rollout offers nothing new, and continues what has begun. */
  async of(deviceId: string): Promise<Offer | undefined> {
    const { registry, ages } = this.#services;
    const db = registry.query;
    const delivery = await openDelivery(db, deviceId);
    if (!delivery || delivery.deadline <= ages.now()) return undefined;
    const rollout = await db
      .selectFrom('firmwareRollouts')
      .select(['state', 'consent'])
      .where('id', '=', delivery.rolloutId)
      .executeTakeFirstOrThrow();
    const hasBegun = delivery.state !== 'pending' && delivery.state !== 'offered';
    if (rollout.state !== 'running' && !(rollout.state === 'paused' && hasBegun)) return undefined;
    if (rollout.consent === 'user' && delivery.consented === 0) return undefined;
    const firmware = await packageOf(db, delivery);
    return { delivery, firmware, files: (await filesOf(db, [firmware.id])).get(firmware.id) ?? [] };
  }

  /** As `of`, and it is on disk that the device has been offered it; or that it runs the version already. */
  async makeOffer(deviceId: string): Promise<Offer | undefined> {
    const { registry, clock } = this.#services;
    const offer = await this.of(deviceId);
    if (offer?.delivery.state !== 'pending') return offer;
    const { delivery, firmware } = offer;
    const runs = registry.entity('devices', deviceId)?.firmwareVersion;
    if (runs === firmware.firmwareVersion && (await registry.transaction((tx) => skipUpdate(tx, clock, delivery)))) {
      this.#noted([delivery.rolloutId]);
      return undefined;
    }
    await this.#noteOffered(delivery);
    return offer;
  }

  async #noteOffered({ rolloutId, deviceId }: Delivery): Promise<void> {
    const { registry, clock } = this.#services;
    await registry.query
      .updateTable('firmwareDeliveries')
      .set({ state: 'offered', updated: timestamp(clock) })
      .where('rolloutId', '=', rolloutId)
      .where('deviceId', '=', deviceId)
      .where('state', '=', 'pending')
      .execute();
    this.#noted([rolloutId]);
  }

  /** The offer as JSON, over HTTP and on `_firmware`; its URLs begin with `base`. */
  show({ firmware, files, delivery }: Offer, base = this.#base) {
    return {
      packageId: firmware.id,
      firmwareVersion: firmware.firmwareVersion,
      files: files.map(({ name, revision, size, sha256, signature }) => {
        return { name, revision, size, sha256, signature, url: this.urlOf(delivery, sha256, base) };
      }),
    };
  }

  /** A URL that gives the content to a browser that has it, until the deadline of the delivery, or until the offer ends. */
  urlOf(
    delivery: Pick<Delivery, 'deviceId' | 'rolloutId' | 'offer' | 'deadline'>,
    sha256: string,
    base = this.#base,
  ): string {
    const { deviceId, rolloutId, offer, deadline } = delivery;
    const generation = this.#services.registry.credential(deviceId)?.generation ?? 0;
    const claim = [deviceId, rolloutId, offer, generation, deadline].join('.');
    // One parameter: devices pass the URL to a shell, where `&` would end it.
    return `${base}/api/v1/firmware/files/${sha256}?offer=${claim}.${this.#sign(sha256, claim)}`;
  }

  /** Standard base64 has characters that URLs would escape. */
  #sign(sha256: string, claim: string): string {
    return Buffer.from(this.#services.sealing.digest(`firmware ${sha256}`, claim), 'base64').toString('base64url');
  }

  /**
   * The delivery behind a signed URL; `separate` is the signature where an earlier release made the URL. @throws PlatformError 403/21
   * for one that is forged or has expired, 410 when the offer was cancelled, superseded or revoked.
   */
  async verify(sha256: string, signed: string, separate: string | undefined): Promise<Delivery> {
    const end = signed.lastIndexOf('.');
    const claim = separate === undefined ? signed.slice(0, Math.max(end, 0)) : signed;
    const signature = separate ?? signed.slice(end + 1);
    const { registry, ages, access } = this.#services;
    const [given, right] = [Buffer.from(signature), Buffer.from(this.#sign(sha256, claim))];
    const isGenuine = given.length === right.length && timingSafeEqual(given, right);
    const [deviceId = '', rolloutId = '', offer, generation, deadline] = claim.split('.');
    if (!isGenuine) throw new PlatformError('forbidden', { message: 'The URL is not one of ours.' });
    const rows = registry.query.selectFrom('firmwareDeliveries').selectAll();
    const delivery = await rows.where('deviceId', '=', deviceId).where('rolloutId', '=', rolloutId).executeTakeFirst();
    const isVoid = !delivery || !isOpen(delivery) || String(delivery.offer) !== offer;
    const hasExpired = Number(deadline) <= ages.now();
    // An offer that has ended by its deadline has expired, and was not taken back.
    if (hasExpired && (!delivery || isOpen(delivery) || delivery.state === 'timedOut'))
      throw new PlatformError('forbidden', { message: 'The URL has expired.' });
    const isGone = access.placement(deviceId)?.deleted !== null;
    const isCurrent =
      generation === '0' ? !registry.credential(deviceId) : this.#isInForce(deviceId, Number(generation));
    if (isVoid || isGone || !isCurrent) throw new PlatformError('offerGone');
    return delivery;
  }

  #isInForce(deviceId: string, generation: number): boolean {
    return isInForce(this.#services, deviceId, generation);
  }
}

/** A service that listens on all addresses of a machine is found at the first one that others can reach. */
function onNetwork(url: string): string {
  const isIpv6 = url.includes('//[::]:');
  if (!isIpv6 && !url.includes('//0.0.0.0:')) return url;
  const addresses = Object.values(networkInterfaces()).flatMap((own = []) => own.filter(({ internal }) => !internal));
  const chosen = addresses.find(({ family }) => family === 'IPv4') ?? (isIpv6 ? addresses[0] : undefined);
  if (!chosen) return url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
  const host = chosen.family === 'IPv4' ? chosen.address : `[${chosen.address}]`;
  return url.replace(/\/\/(0\.0\.0\.0|\[::\]):/, `//${host}:`);
}
