/** Another MQTT broker: each message with QoS 1, on its own topic under a prefix, in a persistent session. */
import type { IConnackPacket, MqttClient } from 'mqtt';
import { limitAnswers, openSocket } from '../../core/network/outbound.ts';
import { explainCode, type Fault, sentenceOf } from '../reasons.ts';
import { toRecord } from '../records.ts';
import {
  type ConnectionMethods,
  failureCode,
  NoAnswer,
  partsOf,
  type Sent,
  sendInRounds,
  targetOf,
} from '../sending.ts';
import {
  type BridgedMessage,
  forms,
  type Retry,
  type Target,
  type TargetKind,
  type TargetServices,
  type TargetSpec,
} from '../target.ts';
import { readLateReasons } from './mqtt-reasons.ts';

export const mqtt: TargetKind = {
  libraries: [],
  forms,
  secure: ['mqtts:'],
  plain: ['mqtt:'],
  settings: {
    prefix: {
      required: false,
      pattern: /^[^+#\p{Cc}]{1,200}$/u,
      form: 'levels of a topic without wildcards, such as fleet/eu',
    },
    clientId: { required: false, pattern: /^[!-~]{1,64}$/, form: '1 to 64 visible ASCII characters' },
  },
  credentials: ['username', 'password'],
  open: openMqtt,
};

/** Messages that wait for their acknowledgement at a time; a broker may want fewer. */
const maxInFlight = 256;
/** Seconds for which a broker of MQTT 5 keeps the session of a connection that has ended. */
const sessionExpiry = 86_400;
/** Bytes of a PUBLISH besides its topic and its payload, at most. */
const headerBytes = 10;
const oldBroker =
  'The broker has no MQTT 5. It does not say which messages it refuses: what its access list or its size limit drops counts as delivered.';

/** `closed` resolves when the connection has ended. */
interface Connection {
  client: MqttClient;
  version: 4 | 5;
  closed: Promise<void>;
  /** What the broker told when it ended the connection. */
  farewell(): number | undefined;
  reasonOf(packetId: number): number | undefined;
  maxInFlight: number;
  maxPacket: number;
}

/** Packets that a broker may send to a client without subscriptions; others would fill its store. */
const expected = ['connack', 'puback', 'pingresp', 'disconnect'];

function openMqtt(spec: TargetSpec, around: TargetServices): Target {
  let note: string | undefined;
  const methods: ConnectionMethods<Connection> = {
    open: async (ended) => {
      const connection = await connectEither(spec, around, ended);
      note = connection.version === 5 ? undefined : oldBroker;
      return connection;
    },
    endConnection: ({ client }) => client.end(true),
    send: async (connection, batch) => {
      const send = (message: BridgedMessage) => publish(connection, message, spec, around);
      if (connection.version === 5)
        return sendInRounds(batch, around, async (round) => {
          const sent: Sent[] = [];
          for (let from = 0; from < round.length; from += connection.maxInFlight)
            sent.push(...(await Promise.all(round.slice(from, from + connection.maxInFlight).map(send))));
          return sent;
        });
      // One connection keeps the order, and a broker acknowledges in order: all can be under way at once.
      const sent = await Promise.all(batch.map(send));
      return partsOf(batch.map(({ id }, index) => [id, sent[index] ?? retry('connection closed')]));
    },
    explain,
  };
  const target = targetOf(methods, around);
  return {
    send: target.send,
    close: target.close,
    get note() {
      return note;
    },
  };
}

/** A broker without MQTT 5 says so, or ends the connection without a word. */
async function connectEither(spec: TargetSpec, around: TargetServices, ended: () => void): Promise<Connection> {
  try {
    return await connect(spec, around, ended, 5);
  } catch (error) {
    if (!(error instanceof NoMqtt5)) throw error;
    return await connect(spec, around, ended, 4);
  }
}

class NoMqtt5 extends Error {}
/** CONNACK of MQTT 3.1.1 and of 5: the version is not supported. */
const versionRefused = [1, 132];

async function connect(
  spec: TargetSpec,
  around: TargetServices,
  ended: () => void,
  version: 4 | 5,
): Promise<Connection> {
  const { MqttClient: Client } = await import('mqtt');
  const { url, credentials, settings, bridgeId, ca } = spec;
  const { username, password } = credentials;
  const secure = url.protocol === 'mqtts:';
  const target = { hostname: url.hostname, port: Number(url.port || (secure ? 8883 : 1883)), secure, ca };
  // Opened before the client is: an address that is not permitted must refuse, not throw in the client's timer.
  const socket = openSocket(target, around);
  let isOpen = false;
  socket.once(secure ? 'secureConnect' : 'connect', () => {
    isOpen = true;
  });
  const lateReasons = readLateReasons(socket);
  const client = new Client(() => socket, {
    clientId: settings.clientId ?? `slipway-${bridgeId}`,
    clean: false,
    reconnectPeriod: 0,
    connectTimeout: around.timeout,
    protocolVersion: version,
    ...(version === 5 && { properties: { sessionExpiryInterval: sessionExpiry } }),
    // A message that was not acknowledged is sent again from the outbox, not from the client's memory.
    queueQoSZero: false,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
  });
  limitAnswers(socket);
  let farewell: number | undefined;
  let hasAnswered = false;
  client.on('packetreceive', ({ cmd, ...packet }) => {
    hasAnswered = true;
    if (cmd === 'disconnect' && 'reasonCode' in packet) farewell = packet.reasonCode;
    if (!expected.includes(cmd)) client.end(true);
  });
  let failure: (Error & { code?: unknown }) | undefined;
  // An error without a listener would end the process.
  client.on('error', (error) => {
    failure ??= error;
  });
  const closed = new Promise<void>((resolve) => client.once('close', resolve));
  void closed.then(() => client.end(true));
  const connected = new Promise<IConnackPacket>((resolve) => client.once('connect', resolve));
  const connack = await Promise.race([connected, closed]);
  if (!connack || !client.connected) {
    if (version === 5 && versionRefused.includes(Number(failure?.code))) throw new NoMqtt5();
    if (isOpen && !hasAnswered && !/timeout/i.test(failure?.message ?? ''))
      throw version === 5 ? new NoMqtt5() : Object.assign(new Error(), { code: 'NOT_MQTT' });
    throw failure ?? new Error('connection closed');
  }
  void closed.then(ended);
  const { receiveMaximum = maxInFlight, maximumPacketSize = Number.POSITIVE_INFINITY } = connack.properties ?? {};
  return {
    client,
    version,
    closed,
    farewell: () => farewell,
    reasonOf: lateReasons,
    maxInFlight: Math.max(1, Math.min(maxInFlight, receiveMaximum)),
    maxPacket: maximumPacketSize,
  };
}

function publish(
  connection: Connection,
  message: BridgedMessage,
  { form, settings }: TargetSpec,
  { timeout }: TargetServices,
): Promise<Sent> {
  const { client, closed, farewell, maxPacket, reasonOf } = connection;
  const topic = settings.prefix === undefined ? message.topic : `${settings.prefix}/${message.topic}`;
  const { value } = toRecord(form, message);
  if (headerBytes + Buffer.byteLength(topic) + value.length > maxPacket)
    return Promise.resolve({ refused: sentenceOf('mqtt', 'tooLarge', `${maxPacket} bytes`) });
  return new Promise((resolve) => {
    const deadline = setTimeout(() => {
      // The connection is useless: what it has under way is sent again on another.
      client.end(true);
      resolve(retry(explain(new NoAnswer())));
    }, timeout);
    client.publish(topic, value, { qos: 1 }, (error, packet) => {
      clearTimeout(deadline);
      const late = packet?.messageId === undefined ? undefined : reasonOf(packet.messageId);
      const code = late ?? (error && 'code' in error ? Number(error.code) : Number.NaN);
      if (!error) resolve('accepted');
      else if (code >= 0x80) resolve(sentOf(code));
      else resolve(retry(client.connected ? failureCode(error) : closedFor(farewell())));
    });
    void closed.then(() => {
      clearTimeout(deadline);
      resolve(retry(closedFor(farewell())));
    });
  });
}

const notAuthorized = 135;
/** Reasons of PUBACK, of DISCONNECT and of CONNACK that say what is wrong. */
const reasons: Record<number, Fault> = {
  2: 'wrongPassword',
  4: 'wrongPassword',
  5: 'wrongPassword',
  133: 'wrongPassword',
  134: 'wrongPassword',
  [notAuthorized]: 'notPermitted',
  138: 'notPermitted',
  144: 'noTopic',
  149: 'tooLarge',
  150: 'throttled',
  151: 'throttled',
};
const qosNotSupported = 155;
const noQos1 = 'The broker takes no messages with QoS 1. Raise its maximum QoS.';
/** Reasons of PUBACK that no later try of the same message can mend. */
const final = [144, 149, 153];

function sentOf(code: number): Sent {
  const reason = told(code);
  return final.includes(code) ? { refused: reason } : { result: 'retry', about: 'messages', reason };
}

function told(code: number): string {
  if (code === qosNotSupported) return `${noQos1} (${hex(code)})`;
  const fault = reasons[code];
  return fault ? sentenceOf('mqtt', fault, hex(code)) : hex(code);
}

function hex(code: number): string {
  return `answered 0x${code.toString(16).padStart(2, '0')}`;
}

function closedFor(code: number | undefined): string {
  return code === undefined ? 'connection closed' : told(code);
}

function explain(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') {
    // Before the login 0x87 is about the user.
    const fault = code === notAuthorized ? 'wrongPassword' : (reasons[code] ?? 'wrongProtocol');
    return sentenceOf('mqtt', fault, hex(code));
  }
  if (error instanceof Error && error.message === 'connack timeout') return explainCode('mqtt', 'NO_ANSWER');
  return explainCode('mqtt', failureCode(error));
}

/** A broker closes the connection for a message that it does not take and cannot refuse. */
function retry(reason: string): Retry {
  return { result: 'retry', about: 'batch', reason };
}
