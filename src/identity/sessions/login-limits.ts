/**
 * Limits on guessing: wrong tries count per identity and address together, and per address alone. Tries
 * from many addresses on one identity slow it down for addresses from which it never logged in; its owner's are not.
 */

import type { Registry } from '../../../db/registry/index.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import type { Allowance } from '../../core/errors.ts';
import type { Attempts } from '../../core/limits/attempts.ts';
import { holderLane, strangerLane } from '../../core/limits/lanes.ts';
import { networkOf } from '../../core/limits/networks.ts';
import { limitTries } from '../../core/limits/tries.ts';
import type { Lane } from '../../core/scheduler/lanes.ts';

/** One try to log in. `subject` names the identity, existing or not, so that both are counted alike. */
interface LoginTry {
  subject: string;
  userId: string | undefined;
  address: string;
}

/** A try of a second factor: counted apart from passwords, so that a right password forgets no wrong code. */
export function factorTry(userId: string, address: string): LoginTry {
  return { subject: `factor\0${userId}`, userId, address };
}

export class LoginLimits {
  readonly #registry: Registry;
  readonly #perIdentity: Attempts;
  readonly #perAddress: Attempts;
  readonly #fromAnywhere: Attempts;
  readonly #strangers: Attempts;
  readonly #shortCodes: Attempts;
  readonly #first: Attempts;

  constructor(services: { registry: Registry; clock: Clock; config: Config }) {
    this.#registry = services.registry;
    this.#perIdentity = limitTries('logins', services);
    this.#perAddress = limitTries('loginsOfAddress', services);
    this.#fromAnywhere = limitTries('loginsFromAnywhere', services);
    this.#strangers = limitTries('loginsOfStrangers', services);
    this.#shortCodes = limitTries('shortCodes', services);
    this.#first = limitTries('firstLogins', services);
  }

  /**
   * Counts a try as wrong until `succeeded` says otherwise.
   * @throws PlatformError 429 with the seconds to wait.
   */
  async takeTry({ subject, userId, address }: LoginTry): Promise<Allowance> {
    // A try that the identity's limit refuses does not count for the address, which others may share.
    const byIdentity = this.#perIdentity.takeTry({ address, subject });
    const byAddress = this.#takeAddress(address, subject);
    const { limit, remaining } = this.#fromAnywhere.left(subject);
    if (limit > 0 && remaining === 0) {
      if (!(await this.#isKnown(userId, address))) this.#strangers.takeTry(subject);
    } else this.#fromAnywhere.takeTry(subject);
    this.#first.chargeTry({ address }, 1);
    const isTighter = byAddress.limit > 0 && (byIdentity.limit === 0 || byAddress.remaining < byIdentity.remaining);
    return isTighter ? byAddress : byIdentity;
  }

  #takeAddress(address: string, subject: string): Allowance {
    try {
      return this.#perAddress.takeTry({ address });
    } catch (error) {
      this.#perIdentity.giveBack({ address, subject });
      throw error;
    }
  }

  /**
   * As `takeTry`, for a code so short that patience would find it: strangers share a number of tries a day, whatever
   * address each comes from.
   */
  async takeShortCode(attempt: LoginTry): Promise<Allowance> {
    const allowance = await this.takeTry(attempt);
    if (!(await this.#isKnown(attempt.userId, attempt.address))) this.#shortCodes.takeTry(attempt.subject);
    return allowance;
  }

  /** The try was right: it is not counted, and what was wrong before it from this address is forgotten. */
  succeeded({ subject, address }: LoginTry): void {
    this.#perAddress.giveBack({ address });
    this.#first.giveBack({ address });
    this.#perIdentity.clearTries({ address, subject });
    this.#fromAnywhere.giveBack(subject);
    this.#shortCodes.clearTries(subject);
  }

  /** Returns the result of `look`. If it fails, the try is not counted. @throws what `look` throws. */
  async unlessItFails<R>({ subject, address }: LoginTry, look: () => Promise<R>): Promise<R> {
    try {
      return await look();
    } catch (error) {
      this.#perAddress.giveBack({ address });
      this.#first.giveBack({ address });
      this.#perIdentity.giveBack({ address, subject });
      this.#fromAnywhere.giveBack(subject);
      throw error;
    }
  }

  /**
   * Where the try waits for its hash: with its account if this identity has logged in from the address before; otherwise
   * with those who hold `deviceId`, or with strangers, of whom networks that have failed in the last hour go last.
   */
  async laneOf(accountId: string, { userId, address }: LoginTry, deviceId?: string): Promise<Lane> {
    if (await this.#isKnown(userId, address)) return { accountId, callerId: networkOf(address) };
    if (deviceId !== undefined) return holderLane(deviceId, address);
    return strangerLane(address, this.#first.left({ address }).remaining === 0);
  }

  async #isKnown(userId: string | undefined, address: string): Promise<boolean> {
    if (userId === undefined) return false;
    const before = this.#registry.query.selectFrom('sessions').select('id').where('userId', '=', userId);
    return (await before.where('address', '=', networkOf(address)).limit(1).executeTakeFirst()) !== undefined;
  }
}
