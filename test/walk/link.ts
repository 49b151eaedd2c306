/** One connection of a client: packets of a turn go out in one write, and the network can lose either direction. */
import { connect, type Socket } from 'node:net';
import mqttPacket, { type Packet } from 'mqtt-packet';
import type { Level, Message } from './history.ts';

export class Link {
  readonly socket: Socket;
  readonly number: number;
  readonly level: Level;
  /** The network loses what the service sends; what the client sends. */
  isDeaf = false;
  isMute = false;
  /** The client does not acknowledge for now: what it will say. */
  held: Packet[] | undefined;
  /** Whether the client ended it. */
  isOver = false;
  will: Message | undefined;
  /** Messages without acknowledgements: a PINGRESP tells that they were read. */
  unsettled: Message[] = [];
  /** Messages of QoS 1 and 2 on their way to the client. */
  readonly inFlight = new Set<number>();
  readonly window: number;
  readonly closed: Promise<void>;
  /** When CONNACK has come, or the end. */
  readonly opened: Promise<void>;
  isOpen = false;
  #open: () => void = () => {};
  #pings: Array<() => void> = [];

  constructor(socket: Socket, level: Level, number: number, window: number, onPacket: (packet: Packet) => void) {
    this.socket = socket;
    this.level = level;
    this.number = number;
    this.window = window;
    this.opened = new Promise((resolve) => {
      this.#open = resolve;
    });
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()));
    this.closed.then(() => {
      this.#open();
      for (const answered of this.#pings.splice(0)) answered();
    });
    const parser = mqttPacket.parser({ protocolVersion: level });
    parser.on('packet', onPacket);
    socket.on('data', (chunk) => parser.parse(chunk));
    socket.on('error', () => {});
  }

  /** A socket that is connected, so that the first packets go out in one write. */
  static dial(port: number): Promise<Socket> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    return new Promise((resolve, reject) => {
      socket.once('connect', () => resolve(socket));
      socket.once('error', reject);
    });
  }

  opens(): void {
    this.isOpen = true;
    this.#open();
  }

  send(packet: Packet): void {
    if (this.isMute || this.isOver || this.socket.destroyed) return;
    if (this.socket.writableCorked === 0) {
      this.socket.cork();
      process.nextTick(() => this.socket.uncork());
    }
    this.socket.write(mqttPacket.generate(packet, { protocolVersion: this.level }));
  }

  /** Resolves with the answer, or the end of the connection; at once if nothing goes out. */
  ping(): Promise<void> {
    if (this.isMute || this.isOver || this.socket.destroyed || this.socket.isPaused()) return Promise.resolve();
    this.send({ cmd: 'pingreq' });
    const sent = this.unsettled;
    this.unsettled = [];
    return new Promise((resolve) => {
      this.#pings.push(() => {
        this.answered?.(sent);
        resolve();
      });
    });
  }

  /** Told of what was sent before a PINGREQ that was answered. */
  answered: ((sent: Message[]) => void) | undefined;

  pong(): void {
    this.#pings.shift()?.();
  }
}
