/** What happened in a walk, as its clients know it: each moment is a number, and one process counts them all. */
export type Qos = 0 | 1 | 2;
export type Level = 3 | 4 | 5;

/** One message; its payload begins with `id`. */
export interface Message {
  id: string;
  publisher: number;
  topic: string;
  qos: Qos;
  retain: boolean;
  /** Without a payload: with `retain` it clears the topic. */
  isEmpty: boolean;
  /** When it was sent first; the service can have acted on it from then on, and until `end`. */
  start: number;
  end: number;
  /** Its places in the order of what its publisher sent, one for each time that it was sent. */
  sent: number[];
  /** Whether the service must have taken it: it was acknowledged, or it is the will of a connection that was cut. */
  isTaken: boolean;
  isWill: boolean;
}

export interface Subscription {
  topics: string[];
  group: string;
  qos: Qos;
  sent: number;
  acked: number;
  /** UNSUBSCRIBE was sent, and answered. */
  closing: number;
  closed: number;
  /** Whether this SUBSCRIBE has to bring retained messages. */
  wantsRetained: boolean;
  mayBringRetained: boolean;
  connection: number;
}

export interface Heard {
  message: Message | undefined;
  /** Of a message without an id: an empty one. */
  topic: string;
  at: number;
  connection: number;
  qos: Qos;
  retain: boolean;
  dup: boolean;
}

export interface Session {
  client: number;
  level: Level;
  isStored: boolean;
  subscriptions: Subscription[];
  heard: Heard[];
  /** When the client gave it up. */
  ended: number;
  /** When connections that it lived through were cut. */
  cuts: number[];
}

export class History {
  /** Its messages are not those of another walk in the same topics. */
  readonly #walk: number;
  readonly messages = new Map<string, Message>();
  readonly sessions: Session[] = [];
  /** What no packet may do, whatever the others do. */
  readonly faults: string[] = [];
  #moment = 0;
  readonly #sentBy = new Map<number, number>();

  constructor(walk: number) {
    this.#walk = walk;
  }

  /** How much has happened: questions do not count. */
  get moment(): number {
    return this.#moment;
  }

  now(): number {
    this.#moment += 1;
    return this.#moment;
  }

  /** The next place in the order of what a client sends. */
  place(publisher: number): number {
    const place = (this.#sentBy.get(publisher) ?? 0) + 1;
    this.#sentBy.set(publisher, place);
    return place;
  }

  message(publisher: number, said: Pick<Message, 'topic' | 'qos' | 'retain' | 'isEmpty'>, isWill = false): Message {
    const id = `${publisher}-${this.messages.size}-${this.#walk}`;
    const message = { ...said, id, publisher, start: Infinity, end: Infinity, sent: [], isTaken: false, isWill };
    this.messages.set(id, message);
    return message;
  }

  /** Notes that it goes out, perhaps once more. */
  send(message: Message): void {
    message.start = Math.min(message.start, this.now());
    message.sent.push(this.place(message.publisher));
  }

  session(client: number, level: Level, isStored: boolean): Session {
    const session = { client, level, isStored, subscriptions: [], heard: [], ended: Infinity, cuts: [] };
    this.sessions.push(session);
    return session;
  }
}

/** What was said and heard in the order of its moments, as people read it. */
export function tell({ messages, sessions }: History): string[] {
  const lines: Array<[moment: number, line: string]> = [];
  for (const { id, topic, qos, start, end, isWill } of messages.values()) {
    lines.push([start, `${id} is sent${isWill ? ' as a will' : ''}: QoS ${qos} on ${topic.split('/').at(-1)}`]);
    lines.push([end, `${id} is acknowledged`]);
  }
  for (const { client, subscriptions, heard, cuts, ended } of sessions) {
    for (const { group, qos, sent, acked, closing, closed } of subscriptions) {
      lines.push(
        [sent, `${client} SUBSCRIBE ${group.split('/').slice(-3).join('/')} QoS ${qos}`],
        [acked, `${client} SUBACK`],
      );
      lines.push([closing, `${client} UNSUBSCRIBE`], [closed, `${client} UNSUBACK`]);
    }
    for (const { message, at, connection, qos, retain, dup } of heard)
      lines.push([
        at,
        `${client} hears ${message?.id} in connection ${connection}: QoS ${qos}${retain ? ' retained' : ''}${dup ? ' DUP' : ''}`,
      ]);
    for (const cut of cuts) lines.push([cut, `${client} is cut off`]);
    lines.push([ended, `${client} has no session any more`]);
  }
  return lines
    .filter(([moment]) => moment > 0 && moment < Infinity)
    .sort(([one], [other]) => one - other)
    .map(([moment, line]) => `${moment} ${line}`);
}
