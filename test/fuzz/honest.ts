/** A device of MQTT 5 that does nothing wrong, next to those that do. */
import { connect as open, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { answer, connect, frameIn, type Heard, publish, read, subscribe } from '../broker/level5/packets.ts';
import type { Known } from './cast.ts';

/** Milliseconds in which it is answered, on a busy machine too. */
const patience = 10_000;
const properties = {
  contentType: 'text/plain',
  correlationData: 'c',
  userProperties: [
    ['a', '1'],
    ['a', '2'],
  ],
};

export class Honest {
  readonly #socket: Socket;
  #hear: (packet: Heard) => void = () => {};
  #fail: (error: Error) => void = () => {};

  readonly known: Known;

  private constructor(known: Known, port: number) {
    this.known = known;
    this.#socket = open(port, '127.0.0.1');
    let bytes = Buffer.alloc(0);
    this.#socket.on('data', (data) => {
      bytes = Buffer.concat([bytes, data]);
      for (let frame = frameIn(bytes); frame; frame = frameIn(bytes)) {
        bytes = bytes.subarray(frame.size);
        this.#hear(read(frame.first, frame.body, frame.size));
      }
    });
    this.#socket.on('error', () => {});
    this.#socket.on('close', () => this.#fail(new Error('an honest device is disconnected')));
  }

  static async connect(known: Known, port: number): Promise<Honest> {
    const honest = new Honest(known, port);
    const { honest: username = '', honestSecret: password = '' } = known;
    await honest.#answered(connect({ username, password, clientId: 'honest', keepAlive: 0 }), ['connack']);
    await honest.#answered(subscribe(1, [honest.#topic()], { subscriptionIdentifier: 5 }), ['suback']);
    return honest;
  }

  /** @throws Error when no PUBACK comes, its message does not come back as it was, or the connection has ended. */
  async publish(): Promise<void> {
    const sent = publish(this.#topic(), 'honest', { qos: 1, properties: properties as never });
    const [back] = (await this.#answered(sent, ['publish', 'puback'])).filter(({ cmd }) => cmd === 'publish');
    this.#socket.write(answer('puback', back?.id ?? 0));
    const wanted = JSON.stringify(sorted({ ...properties, subscriptionIdentifier: 5 }));
    const got = JSON.stringify(sorted(back?.properties ?? {}));
    if (got !== wanted) throw new Error(`an honest device heard ${got}`);
  }

  end(): void {
    this.#socket.destroy();
  }

  #topic(): string {
    const { chat = '', device = '', honest = '' } = this.known;
    return chat.replace(device, honest);
  }

  /** Sends, and waits for these packets in any order. @throws Error when one is a failure, or does not come. */
  async #answered(packet: Buffer, kinds: Array<Heard['cmd']>): Promise<Heard[]> {
    const left = new Set(kinds);
    const heard: Heard[] = [];
    const all = new Promise<string>((resolve, reject) => {
      this.#fail = reject;
      this.#hear = (one) => {
        const { cmd, code = 0, codes = [] } = one;
        if (Math.max(code, ...codes) >= 0x80) reject(new Error(`an honest device got ${JSON.stringify(one)}`));
        if (left.delete(cmd)) heard.push(one);
        if (left.size === 0) resolve('');
      };
    });
    all.catch(() => {});
    this.#socket.write(packet);
    const over = new AbortController();
    const late = sleep(patience, `no ${[...left]} within ${patience} ms`, { signal: over.signal }).catch(() => '');
    const outcome = await Promise.race([all, late]);
    over.abort();
    if (outcome !== '') throw new Error(`an honest device got ${outcome}`);
    return heard;
  }
}

const sorted = (one: object) => Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1));
