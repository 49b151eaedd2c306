/** An account that does the same thing again and again, and everything that it is told meanwhile. */
import type { Packet } from 'mqtt-packet';
import type { Test } from 'tap';
import type { Service } from '../support/service.ts';
import { soon } from '../support/until.ts';
import { connectPacket, publishPacket, type RawClient, rawClient, subscribePacket } from './raw.ts';

type Login = { username: string; password: Buffer };
type Published = Packet & { topic: string; payload: Buffer; qos: 0 | 1 | 2; retain: boolean; dup: boolean };

/** What one connection was sent since somebody asked last: messages, and answers to what it has sent itself. */
export interface Transcript {
  messages: string[];
  answers: string[];
}

/** A client that answers as it should and writes everything down. */
export class Witness {
  readonly raw: RawClient;
  readonly #named: (text: string) => string;
  #transcript: Transcript = { messages: [], answers: [] };
  #heard: string[] = [];
  #waiting: { text: string; resolve(): void } | undefined;

  constructor(raw: RawClient, named: (text: string) => string) {
    this.raw = raw;
    this.#named = named;
    void this.#listen();
  }

  /** Waits for a line that holds `text`, counted from the last one that was waited for. */
  until(text: string): Promise<void> {
    const heard = new Promise<void>((resolve) => {
      this.#waiting = { text, resolve };
      this.#look();
    });
    return soon(`a line with ${text}`, heard, () => this.#heard);
  }

  /** Sends, and waits for a line of the answer. */
  async say(packet: Packet, answer: string): Promise<void> {
    this.raw.send(packet);
    await this.until(answer);
  }

  take(): Transcript {
    const taken = this.#transcript;
    this.#transcript = { messages: [], answers: [] };
    this.#heard = [];
    return taken;
  }

  async #listen(): Promise<void> {
    try {
      for (;;) this.#note(await this.raw.next());
    } catch {
      this.#write('answers', 'the connection ended');
    }
  }

  #note(packet: Packet): void {
    const { cmd, messageId } = packet as Packet & { messageId: number };
    if (cmd === 'publish') {
      const { topic, payload, qos, retain, dup } = packet as Published;
      if (qos > 0) this.raw.send({ cmd: qos === 1 ? 'puback' : 'pubrec', messageId });
      this.#write('messages', `${topic} ${payload} ${qos}${retain ? ' retained' : ''}${dup ? ' again' : ''}`);
    } else if (cmd === 'pubrel') this.raw.send({ cmd: 'pubcomp', messageId });
    else {
      const { granted = '', sessionPresent = '', returnCode = '' } = packet as unknown as Record<string, unknown>;
      this.#write('answers', `${cmd} ${messageId ?? ''} ${granted} ${sessionPresent} ${returnCode}`);
    }
  }

  #write(kind: keyof Transcript, text: string): void {
    const line = this.#named(text);
    this.#transcript[kind].push(line);
    this.#heard.push(line);
    this.#look();
  }

  #look(): void {
    const at = this.#heard.findIndex((line) => this.#waiting && line.includes(this.#waiting.text));
    if (at === -1) return;
    this.#heard.splice(0, at + 1);
    const { resolve } = this.#waiting as { resolve(): void };
    this.#waiting = undefined;
    resolve();
  }
}

/** A device, an end-user and an admin of one account, under one client id. */
export class Victims {
  readonly clientId = 'same';
  readonly #t: Test;
  readonly #port: number;
  readonly #named: (text: string) => string;
  readonly #logins: Record<'sensor' | 'phone' | 'desk', Login>;
  readonly topic: (channel: string) => string;
  #witnesses: Record<'sensor' | 'phone' | 'desk', Witness> | undefined;

  private constructor(t: Test, service: Service, device: { id: string }, secret: string, token: string) {
    this.#t = t;
    this.#port = service.server.mqttPort;
    this.topic = (channel) => service.topic(device.id, channel);
    const base = this.topic('');
    this.#named = (text) => text.replaceAll(base, '');
    const user = (jwt: string) => ({ username: 'Auth:JWT', password: Buffer.from(jwt) });
    this.#logins = {
      sensor: { username: device.id, password: Buffer.from(secret) },
      phone: user(token),
      desk: user(service.admin),
    };
  }

  static async begin(t: Test, service: Service, device: { id: string }, secret: string, token: string) {
    const victims = new Victims(t, service, device, secret, token);
    const desk = await victims.#connect('desk', { clean: true });
    await desk.say(subscribePacket(1, [victims.topic('#'), 2]), 'suback');
    const phone = await victims.#connect('phone', { clean: false });
    await phone.say(subscribePacket(1, ['+/+/+/d/+/+', 2], ['#', 0]), 'suback');
    const sensor = await victims.#connect('sensor', { clean: false });
    await sensor.say(subscribePacket(1, ['#', 1]), 'suback');
    const absent = await victims.#connect('phone', { clientId: 'absent', clean: false });
    await absent.say(subscribePacket(1, [victims.topic('chat'), 1]), 'suback');
    await victims.#leave(absent);
    // The device is known to be connected from here on, so that nothing says so in a round.
    await desk.until('_updates/fields');
    await desk.say(publishPacket(victims.topic('chat'), 'kept', { qos: 1, retain: true, messageId: 2 }), 'puback');
    victims.#witnesses = { sensor, phone, desk };
    await victims.round();
    return victims;
  }

  /** What each says and is told in one round, which is always the same. */
  async round(): Promise<Record<string, Transcript>> {
    if (!this.#witnesses) throw new Error('not begun');
    const { sensor, phone, desk } = this.#witnesses;
    const chat = this.topic('chat');
    const everybody = [sensor, phone, desk];
    const all = async (text: string, said: () => void) => {
      const heard = everybody.map((witness) => witness.until(text));
      said();
      await Promise.all(heard);
    };
    const by =
      (witness: Witness, ...packets: Packet[]) =>
      () =>
        witness.raw.send(...packets);

    // The retained message of the last round is still there, no matter who wanted to clear it.
    await phone.say({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [chat] }, 'unsuback');
    await phone.say(subscribePacket(3, [chat, 2]), 'retained');
    await all('kept', by(desk, publishPacket(chat, 'kept', { qos: 1, retain: true, messageId: 4 })));
    await all('20.5', by(sensor, publishPacket(this.topic('temperature'), '20.5')));
    const first = publishPacket(this.topic('temperature'), '21.5', { qos: 1, messageId: 5 });
    await all('21.5', by(sensor, first));
    const second = publishPacket(this.topic('temperature'), '22.5', { qos: 2, messageId: 9 });
    await all('22.5', by(sensor, second));
    // Sent again it is no second message, whatever others have done with the same packet id.
    sensor.raw.send({ ...second, dup: true } as Packet);
    await all('hello', by(sensor, publishPacket(this.topic('_log'), 'hello', { qos: 1, messageId: 6 })));
    await sensor.say({ cmd: 'pubrel', messageId: 9 }, 'pubcomp');
    await all('an order', by(phone, publishPacket(chat, 'an order', { qos: 2, messageId: 7 })));
    await phone.say({ cmd: 'pubrel', messageId: 7 }, 'pubcomp');

    const will = { topic: chat, payload: Buffer.from('last words'), qos: 1, retain: false };
    const mortal = await this.#connect('sensor', { clientId: 'mortal', will });
    await all('last words', () => mortal.raw.socket.destroy());
    const absent = await this.#connect('phone', { clientId: 'absent', clean: false });
    await absent.until('last words');
    await this.#leave(absent);
    await all('end', by(desk, publishPacket(chat, 'end', { qos: 0 })));
    for (const witness of everybody) await witness.say({ cmd: 'pingreq' }, 'pingresp');
    const witnesses = { sensor, phone, desk, mortal, absent };
    return Object.fromEntries(Object.entries(witnesses).map(([name, witness]) => [name, witness.take()]));
  }

  async #connect(who: 'sensor' | 'phone' | 'desk', more: object): Promise<Witness> {
    const witness = new Witness(await rawClient(this.#t, this.#port), this.#named);
    const about = { clientId: this.clientId, ...this.#logins[who], ...more };
    await witness.say(connectPacket(about), 'connack');
    return witness;
  }

  async #leave(witness: Witness): Promise<void> {
    await witness.say({ cmd: 'pingreq' }, 'pingresp');
    await witness.say({ cmd: 'disconnect' }, 'the connection ended');
  }
}
