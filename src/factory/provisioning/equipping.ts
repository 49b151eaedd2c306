/** The thread that equips units, seen from here. */
import { AskedThread } from '../../../db/threads/asked-thread.ts';

/** What a unit is given, and what of it is stored. */
export interface Equipment {
  secret: string;
  code: string;
  secretHash: string;
  codeHash: string;
}

/** Units of an account that wait for their equipment. */
export interface Unequipped {
  accountId: string;
  count: number;
}

export class Equipping {
  readonly #thread: AskedThread<Unequipped, Equipment[]>;

  /** `keys` is the directory with the sealing key. */
  constructor(keys: string) {
    const file = new URL('./equip-worker.ts', import.meta.url);
    this.#thread = new AskedThread(file, 'The thread that equips units', { keys });
  }

  /** Makes a secret and a code for each of `count` units of an account. Rejects when the thread fails, or has been closed. */
  async equip(accountId: string, count: number): Promise<Equipment[]> {
    return count === 0 ? [] : this.#thread.ask({ accountId, count });
  }

  /** Ends the thread when it has answered: terminated in the middle of a hash it would end the process. */
  close(): Promise<void> {
    return this.#thread.close();
  }
}
