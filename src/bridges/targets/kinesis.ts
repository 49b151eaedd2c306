/** AWS Kinesis Data Streams: one record for each message; the device id is the partition key. */
import { pipeline, type Readable, Transform } from 'node:stream';
import type { KinesisClient, PutRecordsCommand } from '@aws-sdk/client-kinesis';
import { httpsAgent, maxAnswerBytes, NotPublic, namesPrivateAddress, trusting } from '../../core/network/outbound.ts';
import { explainCode, type Fault, sentenceOf } from '../reasons.ts';
import { toRecord } from '../records.ts';
import { type ConnectionMethods, failureCode, type Sent, sendInRounds, targetOf } from '../sending.ts';
import {
  type BridgedMessage,
  forms,
  type Target,
  type TargetKind,
  type TargetServices,
  type TargetSpec,
} from '../target.ts';

/** Connections of one bridge. */
const maxSockets = 4;
/** Errors of a request that no later try of the same request can mend. */
const final = ['ValidationException', 'InvalidArgumentException', 'SerializationException'];

export const kinesis: TargetKind = {
  libraries: ['@aws-sdk/client-kinesis', '@smithy/node-http-handler'],
  forms,
  secure: ['https:'],
  plain: ['http:'],
  settings: {
    stream: { required: true, pattern: /^[\w.-]{1,128}$/, form: 'the name of a stream' },
    region: { required: true, pattern: /^[a-z0-9-]{1,32}$/, form: 'a region, such as eu-west-1' },
  },
  credentials: ['accessKeyId', 'secretAccessKey', 'sessionToken'],
  open: openKinesis,
};

interface Connection {
  client: KinesisClient;
  Command: typeof PutRecordsCommand;
}

function openKinesis(spec: TargetSpec, around: TargetServices): Target {
  const ending = new AbortController();
  const methods: ConnectionMethods<Connection> = {
    open: () => openClient(spec, around),
    endConnection: ({ client }) => client.destroy(),
    send: (connection, batch) => {
      if (!around.allowPrivate && namesPrivateAddress(spec.url)) throw new NotPublic();
      return sendInRounds(batch, around, (round) => putRecords(connection, spec, round, ending.signal));
    },
    explain: (error) => explain(failureCode(error)),
  };
  const target = targetOf(methods, around);
  const close = () => {
    ending.abort();
    target.close();
  };
  return { send: target.send, close };
}

async function openClient(spec: TargetSpec, around: TargetServices): Promise<Connection> {
  const { KinesisClient: Client, PutRecordsCommand: Command } = await import('@aws-sdk/client-kinesis');
  // Kinesis speaks HTTP/2 by default, which takes no agent of ours and so no checked addresses.
  const { NodeHttpHandler } = await import('@smithy/node-http-handler');
  const { url, settings, credentials, ca } = spec;
  const { accessKeyId = '', secretAccessKey = '', sessionToken } = credentials;
  const handler = new NodeHttpHandler({
    requestTimeout: around.timeout,
    // Without it a request that is not answered is a warning on the console, and never ends.
    throwOnRequestTimeout: true,
    connectionTimeout: around.timeout,
    httpsAgent: httpsAgent(around, { keepAlive: true, maxSockets, ...trusting({ ca }) }),
  });
  const client = new Client({
    endpoint: url.origin,
    region: settings.region ?? '',
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) },
    // The outbox tries again, with pauses that other bridges share.
    maxAttempts: 1,
    requestHandler: {
      metadata: handler.metadata,
      destroy: () => handler.destroy(),
      // The client collects whatever comes before it looks at it.
      handle: async (...request: Parameters<typeof handler.handle>) => {
        const { response } = await handler.handle(...request);
        response.body = limitedBody(response.body, around.timeout);
        return { response };
      },
    },
  });
  return { client, Command };
}

/** The body of an answer, which fails when it is too long or has not ended in time. */
function limitedBody(body: Readable, timeout: number): Readable {
  let left = maxAnswerBytes;
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      if (left < 0) done(Object.assign(new Error('the answer is too large'), { code: 'ANSWER_TOO_LARGE' }));
      else done(null, chunk);
    },
  });
  const deadline = setTimeout(() => limit.destroy(Object.assign(new Error(), { code: 'TIMEOUT' })), timeout);
  pipeline(body, limit, () => clearTimeout(deadline));
  return limit;
}

/** One request; records that failed are told apart from those that were stored. */
async function putRecords(
  { client, Command }: Connection,
  { form, settings }: TargetSpec,
  round: readonly BridgedMessage[],
  abortSignal: AbortSignal,
): Promise<Sent[]> {
  const records = round.map((message) => ({ Data: toRecord(form, message).value, PartitionKey: message.deviceId }));
  try {
    const command = new Command({ StreamName: settings.stream, Records: records });
    const answer = await client.send(command, { abortSignal });
    return round.map((_, index) => {
      const code = answer.Records?.[index]?.ErrorCode;
      return code === undefined ? 'accepted' : { result: 'retry', about: 'messages', reason: explain(code) };
    });
  } catch (error) {
    const name = error instanceof Error ? error.name : '';
    // Alone it is the record's fault; of several, all are tried again, one by one.
    if (final.includes(name) && round.length === 1) return [{ refused: sentenceOf('kinesis', 'tooLarge', name) }];
    const about = final.includes(name) ? 'batch' : 'target';
    return round.map(() => ({ result: 'retry', about, reason: explain(failureCode(error)) }));
  }
}

/** Names of Kinesis for what is wrong. */
const names: Array<[Fault, RegExp]> = [
  [
    'wrongPassword',
    /^(UnrecognizedClient|InvalidSignature|IncompleteSignature|MissingAuthenticationToken|ExpiredToken)/,
  ],
  ['wrongPassword', /^(InvalidClientTokenId|SignatureDoesNotMatch)/],
  ['notPermitted', /^(AccessDenied|KMSAccessDenied)/],
  ['noTopic', /^ResourceNotFound/],
  ['throttled', /^(ProvisionedThroughputExceeded|Throttling|LimitExceeded|KMSThrottling)/],
  ['wrongProtocol', /^(SyntaxError|UnknownError)$/],
];

/** A code that the server has chosen: it may be anything. */
function explain(code: string): string {
  const fault = names.find(([, form]) => form.test(code))?.[0];
  const word = /^\w{1,64}$/.test(code) ? code : 'failed';
  return fault
    ? sentenceOf('kinesis', fault, word)
    : explainCode('kinesis', word === 'TimeoutError' ? 'NO_ANSWER' : word);
}
