/** A device that does nothing wrong, next to those that do. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Link, openLink, publishBytes } from '../../bench/link.ts';
import type { Known } from './cast.ts';

/** Milliseconds in which it is acknowledged, on a busy machine too. */
const patience = 10_000;

export class Honest {
  #link: Link | undefined;
  #acknowledged: (() => void) | undefined;

  readonly known: Known;

  private constructor(known: Known) {
    this.known = known;
  }

  static async connect(known: Known, port: number): Promise<Honest> {
    const honest = new Honest(known);
    const { honest: username = '', honestSecret: password = '' } = known;
    honest.#link = await openLink({ port }, { username, password, clientId: 'honest' }, () => honest.#acknowledged?.());
    if (honest.#link.returnCode !== 0) throw new Error(`an honest device got CONNACK ${honest.#link.returnCode}`);
    return honest;
  }

  /** @throws Error when no PUBACK comes, or the connection has ended. */
  async publish(): Promise<void> {
    const { known } = this;
    const topic = (known.temperature ?? '').replace(known.device ?? '', known.honest ?? '');
    const acknowledged = new Promise<string>((resolve) => {
      this.#acknowledged = () => resolve('acknowledged');
    });
    this.#link?.send(publishBytes(topic, ',honest,1,', { qos: 1, messageId: 1 }));
    const over = new AbortController();
    const outcome = await Promise.race([
      acknowledged,
      this.#link?.closed.then(() => 'disconnected'),
      sleep(patience, `not acknowledged within ${patience} ms`, { signal: over.signal }).catch(() => ''),
    ]);
    over.abort();
    if (outcome !== 'acknowledged') throw new Error(`an honest device is ${outcome}`);
  }

  end(): void {
    this.#link?.socket.destroy();
  }
}
