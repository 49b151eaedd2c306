/** A client as the standards want it: it repeats what it must, and writes down what it says and hears. */
import type { IConnackPacket, IPublishPacket, Packet } from 'mqtt-packet';
import type { Heard, History, Level, Message, Qos, Session } from './history.ts';
import { Link } from './link.ts';
import { channels, type Step } from './steps.ts';

type Of<K extends Step['kind']> = Extract<Step, { kind: K }>;
type ConnectOptions = Pick<Of<'connect'>, 'fresh' | 'keep'> & Partial<Of<'connect'>>;

/** What a message is like. */
interface Said {
  qos: Qos;
  retain: boolean;
  isEmpty?: boolean;
  size?: number;
}

interface Outgoing {
  message: Message;
  payload: string;
  /** PUBREC has come. */
  isReceived: boolean;
  wasSentBefore: boolean;
}

/** Where a walk takes place: the topics of one device. */
export interface Place {
  port: number;
  username: string;
  password: string;
  topic(channel: string): string;
  /** One that nobody uses, of the same service. */
  another(): Promise<Place>;
}

/** As many messages as no service has to refuse. */
const maxOutgoing = 900;

export class WalkClient {
  readonly number: number;
  readonly level: Level;
  session: Session;
  link: Link | undefined;
  readonly #place: Place;
  readonly #history: History;
  readonly #clientId: string;
  readonly #forgetsDup: boolean;
  readonly outgoing = new Map<number, Outgoing>();
  /** Ids of messages of QoS 2 that were received and not released, with the message. */
  readonly #received = new Map<number, string>();
  /** Ids that the client has not acknowledged, with the message. */
  readonly #unacknowledged = new Map<number, string>();
  readonly #asked = new Map<number, (codes: number[] | undefined) => void>();
  #lastId = 0;
  #links = 0;

  constructor(number: number, level: Level, clientId: string, forgetsDup: boolean, place: Place, history: History) {
    this.number = number;
    this.level = level;
    this.#clientId = clientId;
    this.#forgetsDup = forgetsDup;
    this.#place = place;
    this.#history = history;
    this.session = history.session(number, level, false);
    this.session.ended = 0;
  }

  get isConnected(): boolean {
    return this.link !== undefined && !this.link.isOver;
  }

  /** Whether it hears and is heard. */
  get isWell(): boolean {
    return this.isConnected && this.link?.isMute === false && !this.link.isDeaf;
  }

  /** Connects, perhaps while its former connection is open. */
  async connect({ keep, will, window, holds = false, waits = true, ...options }: ConnectOptions): Promise<void> {
    const former = this.link;
    if (former && !former.isOver) await former.opened;
    // Level 5 leaves open whether a session without expiry has ended when the service has not seen the end of its connection.
    const fresh = options.fresh || (this.level === 5 && !this.session.isStored);
    const socket = await Link.dial(this.#place.port);
    const isStored = this.level === 5 ? keep : !fresh;
    if (former && !former.isOver) this.#end(former);
    this.#begin(fresh, isStored);
    this.#links += 1;
    const link = new Link(socket, this.level, this.#links, this.level === 5 ? (window ?? 65_535) : Infinity, (packet) =>
      this.#hear(link, packet),
    );
    this.link = link;
    if (holds) link.held = [];
    link.answered = (sent) => {
      for (const message of sent) this.#take(message);
    };
    void link.closed.then(() => {
      if (!link.isOver) this.#fault('closed', 'the service ended a connection');
    });
    this.#say(link, fresh, isStored, will, window);
    if (waits) await link.opened;
    this.#repeat(link);
    // A connection that is taken over ends when the service has seen to it.
    if (former && !former.socket.destroyed) void link.opened.then(() => former.socket.destroy());
  }

  #begin(fresh: boolean, isStored: boolean): void {
    this.#isResumed = !fresh && this.session.ended === Infinity;
    if (this.#isResumed) {
      this.session.isStored = isStored;
      return;
    }
    this.#giveUp();
    this.session = this.#history.session(this.number, this.level, isStored);
  }

  #giveUp(): void {
    this.session.ended = Math.min(this.session.ended, this.#history.now());
    this.outgoing.clear();
    this.#received.clear();
    this.#unacknowledged.clear();
  }

  #isResumed = false;

  #say(link: Link, fresh: boolean, isStored: boolean, will: Of<'connect'>['will'], window: number | undefined): void {
    if (will) {
      const { qos, retain } = will;
      const topic = this.#place.topic(channels[will.channel] as string);
      link.will = this.#history.message(this.number, { topic, qos, retain, isEmpty: false }, true);
    }
    const properties = { sessionExpiryInterval: isStored ? 3600 : 0, ...(window && { receiveMaximum: window }) };
    link.send({
      cmd: 'connect',
      protocolId: this.level === 3 ? 'MQIsdp' : 'MQTT',
      protocolVersion: this.level,
      clientId: this.#clientId,
      clean: fresh,
      keepalive: 600,
      username: this.#place.username,
      password: Buffer.from(this.#place.password),
      ...(link.will && {
        will: { ...link.will, payload: Buffer.from(link.will.id), ...(this.level === 5 && { properties: {} }) },
      }),
      ...(this.level === 5 && { properties }),
    } as Packet);
  }

  /** What was not acknowledged goes out again, in its order. */
  #repeat(link: Link): void {
    for (const [messageId, one] of this.outgoing) {
      if (one.isReceived) link.send({ cmd: 'pubrel', messageId });
      else this.#publish(link, messageId, one);
    }
  }

  #publish(link: Link, messageId: number, one: Outgoing): void {
    const { message, payload } = one;
    this.#history.send(message);
    const { topic, qos, retain } = message;
    const dup = one.wasSentBefore && !this.#forgetsDup;
    one.wasSentBefore = true;
    link.send({ cmd: 'publish', topic, payload, qos, retain, dup, ...(qos > 0 && { messageId }) } as Packet);
    if (qos === 0) link.unsettled.push(message);
  }

  publish(topic: string, { qos, retain, isEmpty = false, size = 0 }: Said): void {
    const { link } = this;
    if (!link || !this.isConnected || this.outgoing.size >= maxOutgoing) return;
    const message = this.#history.message(this.number, { topic, qos, retain, isEmpty });
    const payload = isEmpty ? '' : message.id.padEnd(size);
    const one = { message, payload, isReceived: false, wasSentBefore: false };
    const id = qos === 0 ? 0 : this.#newId();
    if (id > 0) this.outgoing.set(id, one);
    this.#publish(link, id, one);
  }

  #newId(): number {
    do this.#lastId = (this.#lastId % 65_535) + 1;
    while (this.outgoing.has(this.#lastId) || this.#asked.has(this.#lastId));
    return this.#lastId;
  }

  subscribe(filter: string, topics: string[], group: string, qos: Qos, rh: 0 | 1 | 2): void {
    const { link, session } = this;
    if (!link || !this.isConnected) return;
    const now = this.#history.now();
    const before = session.subscriptions.filter((one) => one.group === group && one.closed === Infinity);
    const handling = this.level < 5 ? 0 : rh;
    const isNew = !before.some((one) => one.closing === Infinity);
    const isUnsure = handling === 1 && before.some((one) => one.acked === Infinity || one.closing < Infinity);
    const subscription = {
      topics,
      group,
      qos,
      sent: now,
      acked: Infinity,
      closing: Infinity,
      closed: Infinity,
      wantsRetained: !group.startsWith('$share') && !isUnsure && (handling === 0 || (handling === 1 && isNew)),
      mayBringRetained: !group.startsWith('$share') && handling !== 2,
      connection: link.number,
    };
    session.subscriptions.push(subscription);
    const messageId = this.#newId();
    this.#asked.set(messageId, ([code] = []) => {
      if (code !== undefined && code < 0x80) subscription.acked = this.#history.now();
      else this.#fault('refused', `SUBSCRIBE to ${filter} got ${code}`);
    });
    const options = this.level === 5 ? { qos, nl: false, rap: false, rh } : { qos };
    link.send({ cmd: 'subscribe', messageId, subscriptions: [{ topic: filter, ...options }] } as Packet);
  }

  unsubscribe(filter: string, group: string): void {
    const { link, session } = this;
    if (!link || !this.isConnected) return;
    const closing = session.subscriptions.filter((one) => one.group === group && one.closed === Infinity);
    for (const one of closing) one.closing = Math.min(one.closing, this.#history.now());
    const messageId = this.#newId();
    this.#asked.set(messageId, () => {
      for (const one of closing) one.closed = this.#history.now();
    });
    link.send({ cmd: 'unsubscribe', messageId, unsubscriptions: [filter] });
  }

  hold(): void {
    if (this.link) this.link.held ??= [];
  }

  pause(): void {
    if (this.link?.isOpen) this.link.socket.pause();
  }

  go(): void {
    const { link } = this;
    if (!link) return;
    link.socket.resume();
    const held = link.held ?? [];
    link.held = undefined;
    for (const packet of held) this.#acknowledge(link, packet);
  }

  /** Ends the connection without DISCONNECT, whatever it waits for. */
  async cut(): Promise<void> {
    const { link } = this;
    if (!link || link.isOver) return;
    link.socket.resume();
    await link.opened;
    this.#end(link);
    link.socket.destroy();
  }

  async leave(): Promise<void> {
    const { link } = this;
    if (!link || link.isOver) return;
    if (link.isMute) return this.cut();
    link.socket.resume();
    await link.opened;
    link.send({ cmd: 'disconnect' });
    link.will = undefined;
    this.#end(link);
    await link.closed;
  }

  /** Nothing more is said or heard here: of what is on its way nobody knows. */
  #end(link: Link): void {
    link.isOver = true;
    const { will } = link;
    if (will) {
      this.#history.send(will);
      will.isTaken = true;
    }
    this.session.cuts.push(this.#history.now());
    this.#asked.clear();
    if (!this.session.isStored) this.#giveUp();
    this.#wills.push(...(will ? [will] : []));
  }

  readonly #wills: Message[] = [];

  #take(message: Message): void {
    message.isTaken = true;
    message.end = this.#history.now();
    // What the next connection says comes after the will of the one before.
    for (const will of this.#wills.splice(0)) if (will.start < message.start) will.end = message.end;
  }

  #fault(kind: string, what: string): void {
    this.#history.faults.push(`${kind}: client ${this.number} (level ${this.level}): ${what}`);
  }

  #hear(link: Link, packet: Packet): void {
    if (packet.cmd === 'pingresp') link.pong();
    else if (link.isOver || link.isDeaf) return;
    else this.#hearNew(link, packet);
  }

  #hearNew(link: Link, packet: Packet): void {
    const id = packet.messageId ?? 0;
    // Each is a sign of life.
    this.#history.now();
    if (packet.cmd === 'connack') this.#welcome(link, packet);
    else if (packet.cmd === 'publish') this.#receive(link, packet);
    else if (packet.cmd === 'pubrel') this.#released(link, id);
    else if (packet.cmd === 'suback' || packet.cmd === 'unsuback') {
      this.#asked.get(id)?.(packet.granted as number[]);
      this.#asked.delete(id);
    } else if (packet.cmd === 'puback' || packet.cmd === 'pubrec' || packet.cmd === 'pubcomp')
      this.#answered(link, packet.cmd, id, packet.reasonCode ?? 0);
    else this.#fault('closed', `heard ${JSON.stringify(packet)}`);
  }

  #welcome(link: Link, { reasonCode, returnCode, sessionPresent }: IConnackPacket): void {
    const code = reasonCode ?? returnCode ?? 0;
    if (code !== 0) this.#fault('refused', `CONNECT got ${code}`);
    if (this.level > 3 && sessionPresent !== this.#isResumed)
      this.#fault('session', `CONNACK says session present ${sessionPresent}, the client says ${this.#isResumed}`);
    link.opens();
  }

  #answered(link: Link, cmd: 'puback' | 'pubrec' | 'pubcomp', messageId: number, code: number): void {
    const one = this.outgoing.get(messageId);
    const wanted = one?.message.qos === 1 ? 'puback' : one?.isReceived ? 'pubcomp' : 'pubrec';
    if (!one || cmd !== wanted) {
      this.#fault('answer', `${cmd} for ${messageId}, which waits for ${one && wanted}`);
      return;
    }
    if (code !== 0 && code !== 0x10) this.#fault('code', `${cmd} 0x${code.toString(16)} for ${one.message.id}`);
    if (cmd === 'pubrec' && code < 0x80) {
      one.isReceived = true;
      link.send({ cmd: 'pubrel', messageId });
      return;
    }
    this.outgoing.delete(messageId);
    if (code < 0x80) this.#take(one.message);
  }

  #receive(link: Link, packet: IPublishPacket): void {
    const { qos, retain, dup, topic, payload, messageId: id = 0 } = packet;
    const name = /^[\d-]+/.exec(Buffer.from(payload).toString('latin1', 0, 24))?.[0] ?? '';
    const key = `${topic} ${name} ${qos}`;
    const { session } = this;
    const heard: Heard = {
      message: this.#history.messages.get(name),
      topic,
      at: this.#history.now(),
      connection: link.number,
      qos,
      retain,
      dup,
    };
    if (qos > 0) {
      const before = this.#unacknowledged.get(id);
      const isSame = before?.startsWith(`${topic} ${name} `) === true;
      if (isSame && before !== key) this.#fault('changed QoS', `${name} comes again with QoS ${qos}, id ${id}`);
      else if (before !== undefined && before !== key && !/\/shared /.test(before))
        this.#fault(
          'id in use',
          `message ${name} has packet id ${id} of ${before.split('/').at(-1)}, which is not acknowledged`,
        );
      if (before === key && !dup) this.#fault('no DUP', `${name} comes again with id ${id}, without DUP`);
      this.#unacknowledged.set(id, key);
      link.inFlight.add(id);
      if (link.inFlight.size > link.window) this.#fault('window', `${link.inFlight.size} messages for ${link.window}`);
    }
    const isRepeated = qos === 2 && this.#received.has(id);
    if (qos === 2) this.#received.set(id, key);
    // One of a former walk comes where the service was slow to take it.
    if (!isRepeated && (heard.message || name === '')) session.heard.push(heard);
    if (qos > 0) this.#acknowledge(link, { cmd: qos === 1 ? 'puback' : 'pubrec', messageId: id } as Packet);
  }

  #released(link: Link, id: number): void {
    this.#received.delete(id);
    this.#acknowledge(link, { cmd: 'pubcomp', messageId: id });
  }

  #acknowledge(link: Link, packet: Packet): void {
    if (link.held) {
      link.held.push(packet);
      return;
    }
    if (packet.cmd !== 'pubrec') {
      this.#unacknowledged.delete(packet.messageId ?? 0);
      link.inFlight.delete(packet.messageId ?? 0);
    }
    link.send(packet);
  }
}
