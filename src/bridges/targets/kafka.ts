/** Kafka: one record for each message; the device id is the key, so a device's messages are in order in a partition. */
import type { Producer } from '@platformatic/kafka';
import { connectOptions, NotPublic, namesPrivateAddress } from '../../outbound.js';
import { toRecord } from '../records.js';
import { Connecting, failureCode } from '../sending.js';
import {
  type BridgedMessage,
  forms,
  type Outcome,
  type SendOptions,
  type Surroundings,
  type Target,
  type TargetKind,
  type TargetSpec,
} from '../target.js';

/** Kafka's own error for a record that is larger than the topic takes. */
const tooLarge = 'MESSAGE_TOO_LARGE';
const defaultTopic = 'slipway.{account}.{channel}';

export const kafka: TargetKind = {
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
  open: (spec, around) => new Kafka(spec, around),
};

type KafkaProducer = Producer<Buffer, Buffer, Buffer, Buffer>;

export class Kafka implements Target {
  readonly #spec: TargetSpec;
  readonly #around: Surroundings;
  readonly #producer: Connecting<KafkaProducer>;

  constructor(spec: TargetSpec, around: Surroundings) {
    this.#spec = spec;
    this.#around = around;
    this.#producer = new Connecting(
      () => this.#open(),
      (producer) => void producer.close(true).catch(() => {}),
    );
  }

  async send(batch: readonly BridgedMessage[], { guaranteed }: SendOptions): Promise<Outcome> {
    const { form, settings } = this.#spec;
    const messages = batch.map((message) => {
      const { value, headers } = toRecord(form, message);
      return {
        topic: topicOf(settings.topic ?? defaultTopic, message),
        key: Buffer.from(message.deviceId),
        value,
        headers: new Map(Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
      };
    });
    try {
      const producer = await this.#producer.get();
      await this.#checkBrokers(producer, [...new Set(messages.map(({ topic }) => topic))]);
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
  }

  close(): void {
    this.#producer.close();
  }

  async #open(): Promise<KafkaProducer> {
    const { Producer: Client } = await import('../libraries/kafka.js');
    const { url, settings, credentials, bridgeId } = this.#spec;
    const { username, password } = credentials;
    const secure = url.protocol === 'kafkas:';
    const port = url.port || (secure ? 9093 : 9092);
    const brokers = [`${url.hostname}:${port}`, ...brokersOf(settings.brokers)];
    // Addresses are judged here, names when they are looked up.
    for (const broker of brokers) connectOptions(broker.replace(/:\d+$/, ''), this.#around);
    return new Client<Buffer, Buffer, Buffer, Buffer>({
      clientId: `slipway-${bridgeId}`,
      bootstrapBrokers: brokers,
      // Topics are made by their owner.
      autocreateTopics: false,
      connectTimeout: this.#around.timeout,
      requestTimeout: this.#around.timeout,
      timeout: this.#around.timeout,
      retries: 2,
      ...(secure && { tls: connectOptions(url.hostname, this.#around), tlsServerName: true }),
      ...(username !== undefined && {
        sasl: { mechanism: mechanismOf(settings.mechanism), username, password: password ?? '' },
      }),
    });
  }

  /** A cluster names its brokers itself: names are looked up with our rules, and addresses are checked here. */
  async #checkBrokers(producer: KafkaProducer, topics: string[]): Promise<void> {
    if (this.#around.allowPrivate) return;
    const { brokers } = await producer.metadata({ topics });
    for (const { host } of brokers.values()) if (namesPrivateAddress({ hostname: host })) throw new NotPublic();
  }
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

/** The id of an error of the protocol, anywhere among its causes; otherwise its code. */
function codeOf(error: unknown): string {
  const causes = [error];
  for (const one of causes) {
    if (one instanceof AggregateError) causes.push(...one.errors);
    if (!(one instanceof Error)) continue;
    if ('apiId' in one && typeof one.apiId === 'string') return one.apiId;
    if (one.cause !== undefined && causes.length < 50) causes.push(one.cause);
  }
  return failureCode(error);
}
