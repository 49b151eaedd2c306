/** AWS Kinesis Data Streams: one record for each message; the device id is the partition key. */
import type { KinesisClient } from '@aws-sdk/client-kinesis';
import { httpsAgent, NotPublic, namesPrivateAddress } from '../../outbound.js';
import { toRecord } from '../records.js';
import { Connecting, failureCode, type Sent, sendInRounds } from '../sending.js';
import {
  type BridgedMessage,
  forms,
  type Outcome,
  type Surroundings,
  type Target,
  type TargetKind,
  type TargetSpec,
} from '../target.js';

/** Connections of one bridge. */
const maxSockets = 4;
/** Errors of a request that no later try of the same request can mend. */
const final = ['ValidationException', 'InvalidArgumentException', 'SerializationException'];

export const kinesis: TargetKind = {
  forms,
  secure: ['https:'],
  plain: ['http:'],
  settings: {
    stream: { required: true, pattern: /^[\w.-]{1,128}$/, form: 'the name of a stream' },
    region: { required: true, pattern: /^[a-z0-9-]{1,32}$/, form: 'a region, such as eu-west-1' },
  },
  credentials: ['accessKeyId', 'secretAccessKey', 'sessionToken'],
  open: (spec, around) => new Kinesis(spec, around),
};

export class Kinesis implements Target {
  readonly #spec: TargetSpec;
  readonly #around: Surroundings;
  readonly #client: Connecting<KinesisClient>;
  readonly #ending = new AbortController();

  constructor(spec: TargetSpec, around: Surroundings) {
    this.#spec = spec;
    this.#around = around;
    this.#client = new Connecting(
      () => this.#open(),
      (client) => client.destroy(),
    );
  }

  async send(batch: readonly BridgedMessage[]): Promise<Outcome> {
    try {
      if (!this.#around.allowPrivate && namesPrivateAddress(this.#spec.url)) throw new NotPublic();
      const client = await this.#client.get();
      return await sendInRounds(batch, (round) => this.#put(client, round));
    } catch (error) {
      return { result: 'retry', about: 'target', reason: failureCode(error) };
    }
  }

  close(): void {
    this.#ending.abort();
    this.#client.close();
  }

  async #open(): Promise<KinesisClient> {
    const { KinesisClient: Client, NodeHttpHandler } = await import('../libraries/kinesis.js');
    const { url, settings, credentials } = this.#spec;
    const { accessKeyId = '', secretAccessKey = '', sessionToken } = credentials;
    return new Client({
      endpoint: url.origin,
      region: settings.region ?? '',
      credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) },
      // The outbox tries again, with pauses that other bridges share.
      maxAttempts: 1,
      requestHandler: new NodeHttpHandler({
        requestTimeout: this.#around.timeout,
        connectionTimeout: this.#around.timeout,
        httpsAgent: httpsAgent(this.#around, { keepAlive: true, maxSockets }),
      }),
    });
  }

  /** One request; records that failed are told apart from those that were stored. */
  async #put(client: KinesisClient, round: readonly BridgedMessage[]): Promise<Sent[]> {
    const { PutRecordsCommand } = await import('../libraries/kinesis.js');
    const { form, settings } = this.#spec;
    const records = round.map((message) => ({
      Data: toRecord(form, message).value,
      PartitionKey: message.deviceId,
    }));
    try {
      const command = new PutRecordsCommand({ StreamName: settings.stream, Records: records });
      const answer = await client.send(command, { abortSignal: this.#ending.signal });
      return round.map((_, index) => {
        const code = answer.Records?.[index]?.ErrorCode;
        return code === undefined ? 'accepted' : { result: 'retry', about: 'target', reason: code };
      });
    } catch (error) {
      const name = error instanceof Error ? error.name : '';
      // Alone it is the record's fault; of several, all are tried again, one by one.
      if (final.includes(name) && round.length === 1) return [{ refused: name }];
      const about = final.includes(name) ? 'batch' : 'target';
      return round.map(() => ({ result: 'retry', about, reason: failureCode(error) }));
    }
  }
}
