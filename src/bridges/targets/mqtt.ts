/** Another MQTT broker: each message with QoS 1, on its own topic under a prefix, in a persistent session. */
import type { MqttClient } from 'mqtt';
import { limitAnswers, openSocket } from '../../network/outbound.ts';
import { toRecord } from '../records.ts';
import { failureCode, targetOf, type Ways } from '../sending.ts';
import {
  type BridgedMessage,
  forms,
  type Retry,
  type Surroundings,
  type Target,
  type TargetKind,
  type TargetSpec,
} from '../target.ts';

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

/** `closed` resolves when the connection has ended. */
interface Connection {
  client: MqttClient;
  closed: Promise<void>;
}

/** Packets that a broker may send to a client without subscriptions; others would fill its store. */
const expected = ['connack', 'puback', 'pingresp'];

function openMqtt(spec: TargetSpec, around: Surroundings): Target {
  const ways: Ways<Connection> = {
    open: (ended) => connect(spec, around, ended),
    endConnection: ({ client }) => client.end(true),
    send: async (connection, batch) => {
      // One connection keeps the order, and a broker acknowledges in order: all can be under way at once.
      const results = await Promise.all(batch.map((message) => publish(connection, message, spec, around)));
      const accepted = new Set(batch.filter((_, index) => results[index] === 'accepted').map(({ id }) => id));
      if (accepted.size === batch.length) return { result: 'accepted' };
      const rest = results.find((one) => one !== 'accepted');
      return { result: 'partial', accepted, refused: new Map(), rest };
    },
  };
  return targetOf(ways, around);
}

async function connect(spec: TargetSpec, around: Surroundings, ended: () => void): Promise<Connection> {
  const { MqttClient: Client } = await import('mqtt');
  const { url, credentials, settings, bridgeId } = spec;
  const { username, password } = credentials;
  const secure = url.protocol === 'mqtts:';
  const target = { hostname: url.hostname, port: Number(url.port || (secure ? 8883 : 1883)), secure };
  // Opened before the client is: an address that is not permitted must refuse, not throw in the client's timer.
  const socket = openSocket(target, around);
  const client = new Client(() => socket, {
    clientId: settings.clientId ?? `slipway-${bridgeId}`,
    clean: false,
    reconnectPeriod: 0,
    connectTimeout: around.timeout,
    protocolVersion: 4,
    // A message that was not acknowledged is sent again from the outbox, not from the client's memory.
    queueQoSZero: false,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
  });
  limitAnswers(socket);
  client.on('packetreceive', ({ cmd }) => {
    if (!expected.includes(cmd)) client.end(true);
  });
  let failure: Error | undefined;
  // An error without a listener would end the process.
  client.on('error', (error) => {
    failure = error;
  });
  const closed = new Promise<void>((resolve) => client.once('close', resolve));
  void closed.then(() => {
    ended();
    client.end(true);
  });
  const connected = new Promise<void>((resolve) => client.once('connect', () => resolve()));
  await Promise.race([connected, closed]);
  if (!client.connected) throw failure ?? new Error('connection closed');
  return { client, closed };
}

function publish(
  { client, closed }: Connection,
  message: BridgedMessage,
  { form, settings }: TargetSpec,
  { timeout }: Surroundings,
): Promise<'accepted' | Retry> {
  const topic = settings.prefix === undefined ? message.topic : `${settings.prefix}/${message.topic}`;
  return new Promise((resolve) => {
    const deadline = setTimeout(() => {
      // The connection is useless: what it has under way is sent again on another.
      client.end(true);
      resolve(retry('no answer in time'));
    }, timeout);
    client.publish(topic, toRecord(form, message).value, { qos: 1 }, (error) => {
      clearTimeout(deadline);
      resolve(error ? retry(client.connected ? failureCode(error) : 'connection closed') : 'accepted');
    });
    void closed.then(() => {
      clearTimeout(deadline);
      resolve(retry('connection closed'));
    });
  });
}

/** A broker of MQTT 3.1.1 closes the connection for a message that it does not take. */
function retry(reason: string): Retry {
  return { result: 'retry', about: 'batch', reason };
}
