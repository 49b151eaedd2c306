/** The hook of a group: a server of the account that decides of every exchange. Whatever it does but allow, refuses. */
import { randomUUID } from 'node:crypto';
import { standardHeaders } from '../../bridges/targets/webhook.ts';
import type { Clock } from '../../core/clock.ts';
import type { Config } from '../../core/config.ts';
import { PlatformError } from '../../core/errors.ts';
import { findUnstorable } from '../../core/formats/unstorable.ts';
import { exchange } from '../../core/network/outbound.ts';
import type { Sealing } from '../../identity/secrets/sealing.ts';
import { type GroupRow, hookUrlOf, owners } from '../groups/group.ts';
import { refused } from './refused.ts';

/** Milliseconds for the answer, and for a place before it is asked. */
const deadline = 5000;
const patience = 5000;
/** Questions of an account at once. */
const maxOfAccount = 50;
const maxAnswer = 65_536;

/** What a hook is asked. */
export interface HookQuestion {
  groupId: string;
  serialNumber: string;
  address: string;
  certificateSubject: string | null;
  fields: Record<string, unknown>;
  deviceId?: string;
}

/** What it may say of the device. */
export interface HookAnswer {
  organizationId?: string | null;
  deviceTemplateId?: string;
  fields?: Record<string, unknown>;
}

type HookServices = { clock: Clock; config: Pick<Config, 'bridges'>; sealing: Sealing };

export class Hooks {
  readonly #ctx: HookServices;
  readonly #places = new Map<string, Places>();

  constructor(ctx: HookServices) {
    this.#ctx = ctx;
  }

  /** Asks the hook of a group, if it has one. @throws PlatformError 403/21 unless it allows, 503 without a place in time. */
  async ask(group: GroupRow, question: HookQuestion): Promise<HookAnswer> {
    const url = hookUrlOf(this.#ctx.sealing, group);
    if (url === null || group.sealedHookSecret === null) return {};
    const leave = await this.#enter(group.accountId);
    try {
      return await this.#askNow(new URL(url), group, question);
    } finally {
      leave();
    }
  }

  async #enter(accountId: string): Promise<() => void> {
    const places = this.#places.get(accountId) ?? new Places();
    this.#places.set(accountId, places);
    try {
      await places.takePlace();
    } finally {
      if (places.isEmpty) this.#places.delete(accountId);
    }
    return () => {
      places.givePlace();
      if (places.isEmpty) this.#places.delete(accountId);
    };
  }

  async #askNow(url: URL, group: GroupRow, question: HookQuestion): Promise<HookAnswer> {
    const { clock, config, sealing } = this.#ctx;
    const secret = sealing.open(owners.hookSecret(group.id), group.sealedHookSecret ?? '');
    const body = JSON.stringify(question);
    const headers = {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      'user-agent': 'slipway',
      ...standardHeaders(secret, body, Math.floor(clock.now() / 1000), `msg_${randomUUID()}`),
    };
    const signal = AbortSignal.timeout(deadline);
    let answered: unknown;
    try {
      const asked = { method: 'POST', headers, body, signal, maxBytes: maxAnswer };
      const answer = await exchange(url, asked, config.bridges);
      if (answer.status !== 200) throw new Error(`answered ${answer.status}`);
      answered = await answer.json();
    } catch {
      // What exactly has failed tells a device of the account's network.
      throw refused('The hook of the enrollment group did not answer as it must.');
    }
    return readAnswer(answered);
  }
}

/** @throws PlatformError 403/21 for anything that does not allow, or that is of another form. */
function readAnswer(answered: unknown): HookAnswer {
  const said = isObject(answered) ? answered : {};
  if (said.allow !== true) throw refused('The hook of the enrollment group does not allow it.');
  const { organizationId, deviceTemplateId, fields } = said;
  const hasForm =
    (organizationId === undefined || organizationId === null || typeof organizationId === 'string') &&
    (deviceTemplateId === undefined || typeof deviceTemplateId === 'string') &&
    (fields === undefined || (isObject(fields) && findUnstorable(fields) === undefined));
  if (!hasForm) throw refused('The hook of the enrollment group did not answer as it must.');
  return {
    ...(organizationId !== undefined && { organizationId }),
    ...(deviceTemplateId !== undefined && { deviceTemplateId }),
    ...(fields !== undefined && { fields }),
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The places of an account; who has waited longest has the next one. */
class Places {
  #taken = 0;
  readonly #waiting = new Set<() => void>();

  get isEmpty(): boolean {
    return this.#taken === 0 && this.#waiting.size === 0;
  }

  /** @throws PlatformError 503 when there is none in time. */
  async takePlace(): Promise<void> {
    if (this.#taken < maxOfAccount) {
      this.#taken += 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const begin = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(begin);
        const message = 'The hook of the enrollment group is asked too much at once. Try again.';
        reject(new PlatformError('stopping', { message, allowance: { limit: maxOfAccount, remaining: 0, reset: 5 } }));
      }, patience);
      this.#waiting.add(begin);
    });
  }

  givePlace(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#taken -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
