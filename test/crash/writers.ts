/** Writes over HTTP, one after the other until the service is gone, and what must be true of them after its restart. */
import { openLink } from '../../bench/link.ts';
import type { Api } from './api.ts';

export interface Writer {
  /** Writes until `isOver`, or until an answer stays away. Resolves to the number of writes that were answered with 200. */
  run(isOver: () => boolean): Promise<number>;
  /** What is not as it was answered, in sentences. */
  check(mqttPort: number): Promise<string[]>;
}

/** Gives a device a new name each time. */
export class Renamer implements Writer {
  #answered = 0;
  #tried = 0;

  readonly api: Api;
  readonly deviceId: string;

  constructor(api: Api, deviceId: string) {
    this.api = api;
    this.deviceId = deviceId;
  }

  run(isOver: () => boolean): Promise<number> {
    let version: string | undefined;
    return untilGone(isOver, async () => {
      version ??= (await this.#read()).version;
      this.#tried += 1;
      const name = String(this.#tried);
      version = (await this.api.ok('PUT', `/api/v1/devices/${this.deviceId}`, { name }, version)).device.version;
      this.#answered = this.#tried;
    });
  }

  async check(): Promise<string[]> {
    const name = Number((await this.#read()).name);
    const isKept = this.#tried === 0 || (name >= this.#answered && name <= this.#tried);
    return isKept ? [] : [`a device is called ${name}, not ${this.#answered} to ${this.#tried}`];
  }

  async #read() {
    return (await this.api.ok('GET', `/api/v1/devices/${this.deviceId}`)).device;
  }
}

/** Makes devices and deletes every other one. */
export class Maker implements Writer {
  #kept: string[] = [];
  #deleted: string[] = [];

  readonly api: Api;

  constructor(api: Api) {
    this.api = api;
  }

  run(isOver: () => boolean): Promise<number> {
    [this.#kept, this.#deleted] = [[], []];
    let odd: { id: string; version: string } | undefined;
    return untilGone(isOver, async () => {
      if (odd) {
        const { id, version } = odd;
        odd = undefined;
        await this.api.ok('DELETE', `/api/v1/devices/${id}`, undefined, version);
        this.#deleted.push(id);
        return;
      }
      const { device } = await this.api.ok('POST', '/api/v1/devices', { serialNumber: `crash ${Math.random()}` });
      if (this.#kept.length === this.#deleted.length) this.#kept.push(device.id);
      else odd = device;
    });
  }

  async check(): Promise<string[]> {
    const losses: string[] = [];
    const demand = async (ids: string[], wanted: number, what: string) => {
      for (const id of ids) {
        const { status } = await this.api.ask('GET', `/api/v1/devices/${id}`);
        if (status !== wanted) losses.push(`a device that was ${what} answers ${status}`);
      }
    };
    await demand(this.#kept, 200, 'made');
    await demand(this.#deleted, 410, 'deleted');
    return losses;
  }
}

/** Makes the secret of a device again, again and again. */
export class Rekeyer implements Writer {
  /** Every secret that was answered in this run and, first, the one before; the last one works. */
  #secrets: string[] = [];
  /** A request was under way at the end: the last secret may have ended. */
  #isOpen = false;

  readonly api: Api;
  readonly deviceId: string;

  constructor(api: Api, deviceId: string) {
    this.api = api;
    this.deviceId = deviceId;
  }

  run(isOver: () => boolean): Promise<number> {
    this.#secrets = this.#secrets.slice(-1);
    return untilGone(isOver, async () => {
      this.#isOpen = true;
      const body = { entityId: this.deviceId, entityType: 'device' };
      const { mqttCredential } = await this.api.ok('POST', '/api/v1/access/mqtt-credentials', body);
      this.#secrets.push(mqttCredential.secret);
      this.#isOpen = false;
    });
  }

  async check(mqttPort: number): Promise<string[]> {
    const losses: string[] = [];
    // The newest of the old ones: each is a failed login, and those are limited.
    for (const secret of this.#secrets.slice(-4, -1))
      if ((await this.#connects(mqttPort, secret)) !== 4) losses.push('an old secret still works');
    const last = this.#secrets.at(-1);
    if (!last) return losses;
    const returnCode = await this.#connects(mqttPort, last);
    if (returnCode !== 0 && !this.#isOpen) losses.push(`the last secret that was answered gets CONNACK ${returnCode}`);
    return losses;
  }

  async #connects(port: number, password: string): Promise<number> {
    const link = await openLink({ port }, { username: this.deviceId, password, clientId: 'key' });
    link.send({ cmd: 'disconnect' });
    await link.closed;
    return link.returnCode;
  }
}

/** Writes until it is over or the service is gone. Resolves to the number of whole writes. */
export async function untilGone(isOver: () => boolean, write: () => Promise<void>): Promise<number> {
  let answered = 0;
  try {
    while (!isOver()) {
      await write();
      answered += 1;
    }
  } catch (error) {
    // Fetch says this, and nothing else, of a connection that ended.
    if (!(error instanceof TypeError)) throw error;
  }
  return answered;
}
