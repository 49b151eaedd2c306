/** NATS JetStream: one message of the stream for each message, on a subject of account, device and channel. */
import type { JetStreamClient } from '@nats-io/jetstream';
import type { ConnectionOptions, NatsConnection, TlsOptions } from '@nats-io/transport-node';
import { permittedAddress } from '../../outbound.js';
import { toRecord } from '../records.js';
import { Connecting, failureCode, type Sent, sendInRounds } from '../sending.js';
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

/** Messages that wait for the stream's acknowledgement at a time. */
const maxInFlight = 256;
/** The stream's own limit on the size of a message, in the error codes of JetStream. */
const tooLargeForStream = 10_054;

export const nats: TargetKind = {
  forms,
  secure: ['tls:'],
  plain: ['nats:'],
  settings: {
    subjectPrefix: { required: false, pattern: /^[\w-]+(\.[\w-]+)*$/, form: 'tokens of a subject, such as slipway' },
  },
  credentials: ['username', 'password', 'token'],
  open: (spec, around) => new Nats(spec, around),
};

interface Connection {
  nc: NatsConnection;
  js: JetStreamClient;
  headers: typeof import('@nats-io/transport-node').headers;
}

export class Nats implements Target {
  readonly #spec: TargetSpec;
  readonly #around: Surroundings;
  readonly #connection: Connecting<Connection>;

  constructor(spec: TargetSpec, around: Surroundings) {
    this.#spec = spec;
    this.#around = around;
    this.#connection = new Connecting(
      () => this.#connect(),
      ({ nc }) => void nc.close().catch(() => {}),
    );
  }

  async send(batch: readonly BridgedMessage[], options: SendOptions): Promise<Outcome> {
    let connection: Connection;
    try {
      connection = await this.#connection.get();
    } catch (error) {
      return { result: 'retry', about: 'target', reason: failureCode(error) };
    }
    return sendInRounds(batch, async (round) => {
      const results: Sent[] = [];
      for (let from = 0; from < round.length; from += maxInFlight) {
        const part = round.slice(from, from + maxInFlight);
        results.push(...(await Promise.all(part.map((message) => this.#publish(connection, message, options)))));
      }
      // Best effort waits for the server alone, or what is sent would pile up in memory.
      if (!options.guaranteed) await connection.nc.flush().catch(() => {});
      return results;
    });
  }

  close(): void {
    this.#connection.close();
  }

  async #connect(): Promise<Connection> {
    const { url, credentials, bridgeId } = this.#spec;
    const { connect, headers, jetstream } = await import('../libraries/nats.js');
    const { username, password, token } = credentials;
    const address = await permittedAddress(url.hostname, this.#around);
    const host = address.includes(':') ? `[${address}]` : address;
    // The address was looked up and checked here; the certificate must still fit the name.
    const encryption: TlsOptions & { servername: string } = { servername: url.hostname };
    const options: ConnectionOptions = {
      servers: `${host}:${url.port || 4222}`,
      name: `slipway ${bridgeId}`,
      // Connecting again is up to this module: it looks the name up anew.
      reconnect: false,
      // A server may name others of its cluster; nobody has checked where those are.
      ignoreClusterUpdates: true,
      timeout: this.#around.timeout,
      tls: url.protocol === 'tls:' ? encryption : null,
      ...(username !== undefined && { user: username, pass: password ?? '' }),
      ...(token !== undefined && { token }),
    };
    const nc = await connect(options);
    const js = jetstream(nc, { timeout: this.#around.timeout });
    void nc.closed().then(() => this.#connection.drop());
    return { nc, js, headers };
  }

  async #publish({ nc, js, headers }: Connection, message: BridgedMessage, options: SendOptions): Promise<Sent> {
    const { value, headers: named } = toRecord(this.#spec.form, message);
    const most = nc.info?.max_payload ?? Number.POSITIVE_INFINITY;
    const marks = headers();
    for (const [name, text] of Object.entries(named)) marks.set(name, text);
    try {
      const subject = subjectOf(this.#spec.settings.subjectPrefix ?? 'slipway', message);
      // The limit of the server covers headers too; 1 KiB is more than ours take.
      if (value.length + 1024 > most) return { refused: `larger than the ${most} bytes that the server takes` };
      if (options.guaranteed) await js.publish(subject, value, { msgID: message.id, headers: marks });
      else {
        marks.set('Nats-Msg-Id', message.id);
        nc.publish(subject, value, { headers: marks });
      }
      return 'accepted';
    } catch (error) {
      return sentOf(error);
    }
  }
}

function sentOf(error: unknown): Sent {
  const name = error instanceof Error ? error.name : '';
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === tooLargeForStream) return { refused: 'larger than the stream takes' };
  // Nobody answered on the subject: JetStream is not enabled there, or no stream takes the subject.
  const hasNoStream = name === 'JetStreamNotEnabled';
  const reason = hasNoStream
    ? 'no stream has this subject'
    : code !== undefined
      ? `answered ${code}`
      : failureCode(error);
  return { result: 'retry', about: 'target', reason };
}

/** `<prefix>.<account>.d.<device>.<channel>`: each part is one token. */
export function subjectOf(
  prefix: string,
  { accountId, deviceId, channel }: Pick<BridgedMessage, 'accountId' | 'deviceId' | 'channel'>,
): string {
  return [prefix, token(accountId), 'd', token(deviceId), token(channel)].join('.');
}

/** What separates tokens, matches several, or may not be in a subject is percent-encoded. */
function token(text: string): string {
  return text.replace(/[\s.*>%\p{Cc}]/gu, (one) =>
    encodeURIComponent(one).replaceAll('.', '%2E').replaceAll('*', '%2A'),
  );
}
