/** Kafka: one record for each message; the device id is the key, so a device's messages are in order in a partition. */
import { subscribe } from 'node:diagnostics_channel';
import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Producer } from '@platformatic/kafka';
import { connectOptions, limitAnswers, NotPublic, namesPrivateAddress } from '../../network/outbound.ts';
import { toRecord } from '../records.ts';
import { failureCode, targetOf, type Ways } from '../sending.ts';
import {
  type BridgedMessage,
  forms,
  type Surroundings,
  type Target,
  type TargetKind,
  type TargetSpec,
} from '../target.ts';

/** Kafka's own error for a record that is larger than the topic takes. */
const tooLarge = 'MESSAGE_TOO_LARGE';
/** Errors that are looked at for what they were caused by. */
const maxCauses = 50;
const defaultTopic = 'slipway.{account}.{channel}';

export const kafka: TargetKind = {
  libraries: ['@platformatic/kafka'],
  forms,
  secure: ['kafkas:'],
  plain: ['kafka:'],
  settings: {
    topic: {
      required: false,
      pattern: /^[\w.{}-]{1,200}$/,
      form: `the name of a topic, in which {account}, {device} and {channel} are replaced (${defaultTopic})`,
    },
    brokers: {
      required: false,
      pattern: /^[^\s/@]{1,500}$/,
      form: 'further brokers as host:port, separated by commas',
    },
    mechanism: {
      required: false,
      pattern: /^(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)$/,
      form: 'PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512',
    },
  },
  credentials: ['username', 'password'],
  open: openKafka,
};

type KafkaProducer = Producer<Buffer, Buffer, Buffer, Buffer>;

function openKafka(spec: TargetSpec, around: Surroundings): Target {
  const ways: Ways<KafkaProducer> = {
    open: () => openProducer(spec, around),
    endConnection: (producer) => void producer.close(true).catch(() => {}),
    send: async (producer, batch, { guaranteed }) => {
      const messages = batch.map((message) => recordOf(spec, message));
      try {
        // An idempotent producer has to wait for all replicas; best effort waits for the leader alone.
        await producer.send({
          messages,
          ...(guaranteed ? { acks: -1, idempotent: true } : { acks: 1, idempotent: false }),
        });
        return { result: 'accepted' };
      } catch (error) {
        const reason = codeOf(error);
        if (reason === tooLarge) return { result: 'refused', reason };
        return { result: 'retry', about: 'target', reason };
      }
    },
  };
  return targetOf(ways, around);
}

async function openProducer(spec: TargetSpec, around: Surroundings): Promise<KafkaProducer> {
  const { Producer: Client } = await import('@platformatic/kafka');
  watchConnections();
  const { url, settings, credentials, bridgeId } = spec;
  const { username, password } = credentials;
  const secure = url.protocol === 'kafkas:';
  const port = url.port || (secure ? 9093 : 9092);
  const brokers = [`${url.hostname}:${port}`, ...brokersOf(settings.brokers)];
  // Addresses are judged here, names when they are looked up, and what a cluster names at each connection.
  for (const broker of brokers) connectOptions(broker.replace(/:\d+$/, ''), around);
  return new Client<Buffer, Buffer, Buffer, Buffer>({
    clientId: `slipway-${bridgeId}`,
    bootstrapBrokers: brokers,
    // Topics are made by their owner.
    autocreateTopics: false,
    connectTimeout: around.timeout,
    requestTimeout: around.timeout,
    timeout: around.timeout,
    retries: 2,
    ...(around.allowPrivate ? {} : { context: publicOnly }),
    ...(secure && { tls: connectOptions(url.hostname, around), tlsServerName: true }),
    ...(username !== undefined && {
      sasl: { mechanism: mechanismOf(settings.mechanism), username, password: password ?? '' },
    }),
  });
}

/** Marks connections whose addresses must be public. */
const publicOnly = Symbol('public addresses only');
let isWatching = false;

/** Events of a connection that the library opens; its socket has not begun to connect. */
interface Connecting {
  connection: EventEmitter & { context?: unknown; socket?: Socket };
  host: string;
}

/** A cluster names its brokers itself, and the library opens their connections: each is checked before it begins. */
function watchConnections(): void {
  if (isWatching) return;
  isWatching = true;
  subscribe('tracing:plt:kafka:connections:connects:end', (message) => {
    const { connection, host } = message as Connecting;
    const { context, socket } = connection;
    // The library emits errors that nobody hears, which would end the process.
    if (!connection.listeners('error').includes(ignore)) connection.on('error', ignore);
    if (!socket || socket.destroyed) return;
    if (context === publicOnly && namesPrivateAddress({ hostname: host })) socket.destroy(new NotPublic());
    const begin = socket instanceof TLSSocket ? 'secureConnect' : 'connect';
    socket.once(begin, () => limitAnswers(socket));
  });
}

function ignore(): void {}

function recordOf({ form, settings }: TargetSpec, message: BridgedMessage) {
  const { value, headers } = toRecord(form, message);
  return {
    topic: topicOf(settings.topic ?? defaultTopic, message),
    key: Buffer.from(message.deviceId),
    value,
    headers: new Map(Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
  };
}

function brokersOf(text: string | undefined): string[] {
  return text === undefined ? [] : text.split(',').filter(Boolean);
}

function mechanismOf(text: string | undefined): 'PLAIN' | 'SCRAM-SHA-256' | 'SCRAM-SHA-512' {
  return text === 'SCRAM-SHA-256' || text === 'SCRAM-SHA-512' ? text : 'PLAIN';
}

/** Characters that no topic of Kafka may have become hyphens. */
export function topicOf(
  pattern: string,
  { accountId, deviceId, channel }: Pick<BridgedMessage, 'accountId' | 'deviceId' | 'channel'>,
): string {
  const values: Record<string, string> = { account: accountId, device: deviceId, channel };
  const topic = pattern.replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);
  return topic.replace(/[^\w.-]/g, '-').slice(0, 249);
}

/** The id of an error of the protocol, anywhere among its causes; otherwise the code of what it began with. */
function codeOf(error: unknown): string {
  const causes = [error];
  for (const one of causes) {
    if (!(one instanceof Error)) continue;
    if ('apiId' in one && typeof one.apiId === 'string') return one.apiId;
    if (causes.length >= maxCauses) continue;
    if (one instanceof AggregateError) causes.push(...one.errors.slice(0, maxCauses));
    if (one.cause !== undefined) causes.push(one.cause);
  }
  // The library wraps errors of connections into its own, which all say the same.
  const own = causes.find((one) => one instanceof Error && !failureCode(one).startsWith('PLT_'));
  return failureCode(own ?? causes.at(-1));
}
