/** Kafka: one record for each message; the device id is the key, so a device's messages are in order in a partition. */
import { subscribe } from 'node:diagnostics_channel';
import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Producer } from '@platformatic/kafka';
import { connectOptions, limitAnswers, NotPublic, namesPrivateAddress, trusting } from '../../core/network/outbound.ts';
import { explainCode, type Fault, sentenceOf } from '../reasons.ts';
import { toRecord } from '../records.ts';
import { type ConnectionMethods, failureCode, targetOf } from '../sending.ts';
import {
  type BridgedMessage,
  type Fate,
  forms,
  type Outcome,
  type Part,
  type SendOptions,
  type Target,
  type TargetKind,
  type TargetServices,
  type TargetSpec,
} from '../target.ts';

/** Milliseconds between tries of the library; the outbox has pauses of its own. */
const retryDelay = 100;
/** Errors of Kafka for records that it never takes. */
const final = ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP'];
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

function openKafka(spec: TargetSpec, around: TargetServices): Target {
  const methods: ConnectionMethods<KafkaProducer> = {
    open: () => openProducer(spec, around),
    endConnection: (producer) => void producer.close(true).catch(() => {}),
    send: (producer, batch, options) => sendByPartition(producer, spec, batch, options),
    explain: (error) => explain(codeOf(error)),
  };
  return targetOf(methods, around);
}

/** The records of one partition, or all of one topic that has no partitions that are known. */
interface Group {
  messages: BridgedMessage[];
  fate?: Fate;
  partition?: number;
}

/** Each partition by itself, so that what one broker has stored is not sent again when another fails. */
async function sendByPartition(
  producer: KafkaProducer,
  spec: TargetSpec,
  batch: readonly BridgedMessage[],
  { guaranteed }: SendOptions,
): Promise<Outcome> {
  const groups = await groupsOf(producer, spec, batch);
  const parts = await Promise.all(
    groups.map(async ({ messages, partition, fate }): Promise<Part> => {
      const ids = messages.map(({ id }) => id);
      if (fate) return { ids, ...fate };
      const records = messages.map((message) => ({
        ...recordOf(spec, message),
        ...(partition !== undefined && { partition }),
      }));
      try {
        // An idempotent producer has to wait for all replicas; best effort waits for the leader alone.
        const acks = guaranteed ? { acks: -1, idempotent: true } : { acks: 1, idempotent: false };
        await producer.send({ messages: records, ...acks });
        return { ids, result: 'accepted' };
      } catch (error) {
        return { ids, ...fateOf(error) };
      }
    }),
  );
  return parts;
}

/** Faults of a topic. */
const ofTopic: string[] = ['noTopic', 'notPermitted'];

/** Divides a batch by topic and partition. The library asks the cluster for a topic once, and again when it has changed. */
async function groupsOf(producer: KafkaProducer, spec: TargetSpec, batch: readonly BridgedMessage[]): Promise<Group[]> {
  const byTopic = new Map<string, BridgedMessage[]>();
  for (const message of batch) {
    const topic = topicOf(spec.settings.topic ?? defaultTopic, message);
    byTopic.set(topic, [...(byTopic.get(topic) ?? []), message]);
  }
  const { murmur2 } = await import('@platformatic/kafka');
  const groups = await Promise.all(
    [...byTopic].map(async ([topic, messages]): Promise<Group[]> => {
      try {
        const { topics } = await producer.metadata({ topics: [topic], autocreateTopics: false });
        const count = topics.get(topic)?.partitionsCount ?? 1;
        const byPartition = new Map<number, BridgedMessage[]>();
        for (const message of messages) {
          // As the library does it by itself.
          const partition = (murmur2(Buffer.from(message.deviceId)) >>> 0) % count;
          byPartition.set(partition, [...(byPartition.get(partition) ?? []), message]);
        }
        return [...byPartition].map(([partition, own]) => ({ messages: own, partition }));
      } catch (error) {
        const code = codeOf(error);
        // A cluster that says nothing of the topic cannot be asked for any.
        const about = ofTopic.includes(faultOf(code) ?? '') || code === 'LEADER_NOT_AVAILABLE' ? 'messages' : 'target';
        // A connection that ends without an answer is most likely none of Kafka.
        const reason = code === 'PLT_KFK_NETWORK' ? sentenceOf('kafka', 'wrongProtocol', code) : explain(code);
        return [{ messages, fate: { result: 'retry', about, reason } }];
      }
    }),
  );
  return groups.flat();
}

/** What is said of one topic or partition, or of the broker of one partition, holds those devices alone. */
function fateOf(error: unknown): Fate {
  const code = codeOf(error);
  if (final.includes(code)) return { result: 'refused', reason: explain(code) };
  const isOfTarget = ['wrongPassword', 'wrongProtocol', 'noTls'].includes(faultOf(code) ?? '');
  return { result: 'retry', about: isOfTarget ? 'target' : 'messages', reason: explain(code) };
}

/** Names of Kafka for what is wrong. */
const names: Array<[Fault, RegExp]> = [
  ['noTopic', /^(UNKNOWN_TOPIC_OR_PARTITION|UNKNOWN_TOPIC_ID|INVALID_TOPIC_EXCEPTION)$/],
  ['notPermitted', /^\w*AUTHORIZATION_FAILED$/],
  [
    'wrongPassword',
    /^(SASL_AUTHENTICATION_FAILED|UNSUPPORTED_SASL_MECHANISM|ILLEGAL_SASL_STATE|PLT_KFK_AUTHENTICATION)$/,
  ],
  ['tooLarge', /^(MESSAGE_TOO_LARGE|RECORD_LIST_TOO_LARGE)$/],
  ['throttled', /^(NOT_ENOUGH_REPLICAS\w*|THROTTLING_QUOTA_EXCEEDED)$/],
  ['wrongProtocol', /^PLT_KFK_(UNEXPECTED_CORRELATION_ID|RESPONSE|UNSUPPORTED_API|OUT_OF_BOUNDS)$/],
];

function faultOf(code: string): Fault | undefined {
  return names.find(([, form]) => form.test(code))?.[0];
}

function explain(code: string): string {
  const fault = faultOf(code);
  return fault
    ? sentenceOf('kafka', fault, code)
    : explainCode('kafka', code === 'PLT_KFK_TIMEOUT' ? 'NO_ANSWER' : code);
}

async function openProducer(spec: TargetSpec, around: TargetServices): Promise<KafkaProducer> {
  const { Producer: Client } = await import('@platformatic/kafka');
  watchConnections();
  const { url, settings, credentials, bridgeId, ca } = spec;
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
    retryDelay,
    // The protocol's way to ask for a new id; the library would claim an id that exists.
    producerId: -1n,
    producerEpoch: -1,
    ...(around.allowPrivate ? {} : { context: publicOnly }),
    ...(secure && {
      tls: { ...connectOptions(url.hostname, around), ...trusting({ ca }) },
      tlsServerName: true,
    }),
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
    // The library says it in words alone.
    if (failureCode(one) === 'PLT_KFK_USER' && one.message.startsWith('Unknown topic'))
      return 'UNKNOWN_TOPIC_OR_PARTITION';
    if (causes.length >= maxCauses) continue;
    if (one instanceof AggregateError) causes.push(...one.errors.slice(0, maxCauses));
    if (one.cause !== undefined) causes.push(one.cause);
  }
  // The library wraps errors of connections into its own, which all say the same.
  const own = causes.find((one) => one instanceof Error && !failureCode(one).startsWith('PLT_'));
  return failureCode(own ?? causes.at(-1));
}
