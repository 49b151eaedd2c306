/** NATS JetStream: one message of the stream for each message, on a subject of account, device and channel. */
import type { JetStreamClient } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/nats-core';
import { openSocket } from '../../core/network/outbound.ts';
import { explainCode, sentenceOf } from '../reasons.ts';
import { toRecord } from '../records.ts';
import { type ConnectionMethods, failureCode, type Sent, sendInRounds, targetOf } from '../sending.ts';
import {
  type BridgedMessage,
  type Form,
  forms,
  type SendOptions,
  type Target,
  type TargetKind,
  type TargetServices,
  type TargetSpec,
} from '../target.ts';
import { NatsSocket, type SocketOptions } from './nats-socket.ts';

/** Messages that wait for the stream's acknowledgement at a time. */
const maxInFlight = 256;
/** The stream's own limit on the size of a message, in the error codes of JetStream. */
const tooLargeForStream = 10_054;

export const nats: TargetKind = {
  libraries: ['@nats-io/jetstream', '@nats-io/nats-core'],
  forms,
  secure: ['tls:'],
  plain: ['nats:'],
  settings: {
    subjectPrefix: { required: false, pattern: /^[\w-]+(\.[\w-]+)*$/, form: 'tokens of a subject, such as slipway' },
  },
  credentials: ['username', 'password', 'token'],
  open: openNats,
};

interface Connection {
  nc: NatsConnection;
  js: JetStreamClient;
  headers: typeof import('@nats-io/nats-core').headers;
}

/** Where messages go and how. */
interface Way {
  form: Form;
  prefix: string;
  guaranteed: boolean;
}

function openNats(spec: TargetSpec, around: TargetServices): Target {
  const { form, settings } = spec;
  const prefix = settings.subjectPrefix ?? 'slipway';
  const methods: ConnectionMethods<Connection> = {
    open: (ended) => connect(spec, around, ended),
    endConnection: ({ nc }) => void nc.close().catch(() => {}),
    send: (connection, batch, { guaranteed }: SendOptions) =>
      sendInRounds(batch, around, async (round) => {
        const results: Sent[] = [];
        for (let from = 0; from < round.length; from += maxInFlight) {
          const part = round.slice(from, from + maxInFlight);
          const way = { form, prefix, guaranteed };
          results.push(...(await Promise.all(part.map((message) => publish(connection, message, way)))));
        }
        // Best effort waits for the server alone, or what is sent would pile up in memory.
        if (!guaranteed) await connection.nc.flush().catch(() => {});
        return results;
      }),
    explain,
  };
  return targetOf(methods, around);
}

async function connect(spec: TargetSpec, around: TargetServices, ended: () => void): Promise<Connection> {
  const { url, credentials, bridgeId, ca } = spec;
  const [{ jetstream }, { headers }, { NatsConnectionImpl, setTransportFactory }] = await Promise.all([
    import('@nats-io/jetstream'),
    import('@nats-io/nats-core'),
    import('@nats-io/nats-core/internal'),
  ]);
  const { username, password, token } = credentials;
  const port = Number(url.port || 4222);
  const options: SocketOptions = {
    servers: `${url.hostname}:${port}`,
    name: `slipway ${bridgeId}`,
    // Connecting again is up to this module: it looks the name up again.
    reconnect: false,
    // A server may name others of its cluster; nobody has checked where those are.
    ignoreClusterUpdates: true,
    resolve: false,
    timeout: around.timeout,
    openSocket: () => openSocket({ hostname: url.hostname, port, secure: false }, around),
    tls: url.protocol === 'tls:' ? { hostname: url.hostname, ca } : undefined,
    ...(username !== undefined && { user: username, pass: password ?? '' }),
    ...(token !== undefined && { token }),
  };
  setTransportFactory({ factory: () => new NatsSocket() });
  const nc = await NatsConnectionImpl.connect(options);
  void nc.closed().then(ended);
  return { nc, js: jetstream(nc, { timeout: around.timeout }), headers };
}

/** Bytes of the headers that the client library adds: more than it takes. */
const ownHeaderBytes = 256;

async function publish(
  { nc, js, headers }: Connection,
  message: BridgedMessage,
  { form, prefix, guaranteed }: Way,
): Promise<Sent> {
  const { value, headers: named } = toRecord(form, message);
  const most = limitOf(nc.info?.max_payload);
  const marks = headers();
  let headerBytes = ownHeaderBytes;
  for (const [name, text] of Object.entries(named)) {
    marks.set(name, text);
    headerBytes += name.length + Buffer.byteLength(text) + 4;
  }
  try {
    const subject = subjectOf(prefix, message);
    // The limit of the server covers headers too.
    if (value.length + headerBytes > most) return { refused: sentenceOf('nats', 'tooLarge', `${most} bytes`) };
    if (guaranteed) await js.publish(subject, value, { msgID: message.id, headers: marks });
    else {
      marks.set('Nats-Msg-Id', message.id);
      nc.publish(subject, value, { headers: marks });
    }
    return 'accepted';
  } catch (error) {
    return sentOf(error);
  }
}

/** The INFO of a server is not trusted. */
function limitOf(most: unknown): number {
  return typeof most === 'number' && most > 0 ? most : Number.POSITIVE_INFINITY;
}

/** Errors of JetStream that say that a stream is full. */
const full = [10_023, 10_047, 10_077];

function sentOf(error: unknown): Sent {
  const name = error instanceof Error ? error.name : '';
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === tooLargeForStream) return { refused: sentenceOf('nats', 'tooLarge') };
  const ofMessage = (reason: string): Sent => ({ result: 'retry', about: 'messages', reason });
  // Nobody answered on the subject: JetStream is not enabled there, or no stream takes the subject.
  if (name === 'JetStreamNotEnabled' || name === 'NoRespondersError') return ofMessage(sentenceOf('nats', 'noTopic'));
  if (failureCode(error) === 'PermissionViolationError') return ofMessage(sentenceOf('nats', 'notPermitted'));
  if (typeof code === 'number')
    return ofMessage(full.includes(code) ? sentenceOf('nats', 'throttled', `${code}`) : `answered ${code}`);
  return { result: 'retry', about: 'target', reason: explain(error) };
}

function explain(error: unknown): string {
  const code = failureCode(error);
  if (code === 'AuthorizationError' || code === 'UserAuthenticationExpiredError')
    return sentenceOf('nats', 'wrongPassword', code);
  // A server that wants TLS says so before the login.
  return explainCode('nats', code === 'TimeoutError' ? 'NO_ANSWER' : code);
}

/** `<prefix>.<account>.d.<device>.<channel>`: each part is one token. */
export function subjectOf(
  prefix: string,
  { accountId, deviceId, channel }: Pick<BridgedMessage, 'accountId' | 'deviceId' | 'channel'>,
): string {
  return [prefix, token(accountId), 'd', token(deviceId), token(channel)].join('.');
}

/** Percent-encodes separators, wildcards and characters that a subject may not have. */
function token(text: string): string {
  return text.replace(/[\s.*>%\p{Cc}]/gu, (one) =>
    encodeURIComponent(one).replaceAll('.', '%2E').replaceAll('*', '%2A'),
  );
}
