/** One MQTT connection on a bare socket: cheap enough for ten thousand of them, and nothing is sent that is not asked for. */
import { connect, type Socket } from 'node:net';
import mqttPacket, { type IConnackPacket, type IConnectPacket, type Packet } from 'mqtt-packet';

/** What goes into CONNECT. */
export interface Login {
  username: string;
  password: string;
  clientId: string;
  clean?: boolean;
  level?: Level;
  /** What else goes into CONNECT. */
  more?: Pick<IConnectPacket, 'will' | 'properties'>;
}

/** 4 is MQTT 3.1.1. */
export type Level = 4 | 5;

export interface Link {
  readonly socket: Socket;
  readonly level: Level;
  readonly returnCode: number;
  readonly sessionPresent: boolean;
  send(packet: Packet | Buffer): void;
  /** Resolves when the connection has ended and everything that had arrived before has been heard. */
  readonly closed: Promise<void>;
}

/**
 * Connects and hears every packet after CONNACK through `hear`; a refusal resolves as well, with its return code.
 * @throws Error when the connection ends, or cannot be made, before CONNACK.
 */
export function openLink(
  { host = '127.0.0.1', port }: { host?: string; port: number },
  { username, password, clientId, clean = true, level = 4, more }: Login,
  hear: (packet: Packet, link: Link) => void = () => {},
): Promise<Link> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    const version = { protocolVersion: level };
    const parser = mqttPacket.parser(version);
    let link: Link | undefined;
    const closed = new Promise<void>((ended) =>
      socket.on('close', () => {
        reject(new Error('the connection ended before CONNACK'));
        ended();
      }),
    );
    const send = (packet: Packet | Buffer) => {
      if (socket.writable) socket.write(Buffer.isBuffer(packet) ? packet : mqttPacket.generate(packet, version));
    };
    parser.on('packet', (packet) => {
      if (link) {
        hear(packet, link);
        return;
      }
      const { sessionPresent, reasonCode = -1, returnCode = reasonCode } = packet as IConnackPacket;
      link = { socket, level, returnCode, sessionPresent, send, closed };
      resolve(link);
    });
    parser.on('error', () => socket.destroy());
    socket.on('data', (chunk) => parser.parse(chunk));
    // `close` follows and says what has to be said.
    socket.on('error', () => {});
    const who = { username, password: Buffer.from(password), clientId, clean };
    send({ cmd: 'connect', protocolId: 'MQTT', ...version, keepalive: 600, ...who, ...more } as Packet);
  });
}

/** The bytes of a PUBLISH. */
export function publishBytes(
  topic: string,
  payload: string | Buffer,
  more: object = {},
  protocolVersion: Level = 4,
): Buffer {
  const packet = { cmd: 'publish', topic, payload, qos: 0, dup: false, retain: false, ...more } as Packet;
  return mqttPacket.generate(packet, { protocolVersion });
}
