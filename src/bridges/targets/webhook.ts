/** A webhook: each batch is one signed POST (docs/bridges.md). */
import { createHash, createHmac } from 'node:crypto';
import { type ClientRequest, type HttpClient, httpClient, type IncomingMessage } from '../../core/network/outbound.ts';
import { explainCode, type Fault, sentenceOf } from '../reasons.ts';
import type { Refusal } from '../refusing.ts';
import { failureCode, NoAnswer } from '../sending.ts';
import {
  type BridgedMessage,
  type Fate,
  type Outcome,
  showMessage,
  type Target,
  type TargetKind,
  type TargetServices,
  type TargetSpec,
  wholly,
} from '../target.ts';

/** Bytes of an answer's body, and milliseconds, that are waited for so that its connection can be used again; then it ends. */
const maxAnswerLength = 4096;
const bodyPatience = 1000;
/** Milliseconds that an answer can ask to be left alone. */
const maxRetryAfter = 3_600_000;
/** Connections of one bridge: those that its batches need, and those that are kept for the next. */
const maxSockets = 5;
const socketsKept = 4;

export const webhook: TargetKind = {
  libraries: [],
  forms: ['json'],
  secure: ['https:'],
  plain: ['http:'],
  settings: {},
  credentials: ['secret'],
  open: (spec, around) => new Webhook(spec, around),
};

export class Webhook implements Target {
  readonly #secret: string;
  readonly #headers: Record<string, string>;
  readonly #around: TargetServices;
  readonly #client: HttpClient;
  readonly #underWay = new Set<ClientRequest>();
  #closed = false;

  constructor(
    { url, credentials, headers = {}, ca }: Omit<TargetSpec, 'bridgeId' | 'form' | 'settings'>,
    around: TargetServices,
  ) {
    this.#secret = credentials.secret ?? '';
    this.#headers = headers;
    this.#around = around;
    this.#client = httpClient(url, around, { maxSockets: maxSockets, maxFreeSockets: socketsKept, ca });
  }

  async send(batch: readonly BridgedMessage[]): Promise<Outcome> {
    return wholly(batch, await this.#sendAll(batch));
  }

  #sendAll(batch: readonly BridgedMessage[]): Promise<Fate> {
    const { headerPrefix, clock } = this.#around;
    if (this.#closed) return Promise.resolve(failed(new Error(), false));
    // As bytes: each signature would make them again.
    const body = Buffer.from(JSON.stringify({ messages: batch.map(showMessage) }));
    const seconds = Math.floor(clock.now() / 1000);
    const headers = {
      ...this.#headers,
      'content-type': 'application/json',
      'content-length': body.length,
      'user-agent': 'slipway',
      [`${headerPrefix}-signature`]: sign(this.#secret, body, seconds),
      ...standardHeaders(this.#secret, body, seconds, batchId(batch)),
    };
    try {
      return this.#post(this.#client.request({ method: 'POST', headers }), body);
    } catch (error) {
      return Promise.resolve(failed(error, false));
    }
  }

  close(): void {
    this.#closed = true;
    for (const request of this.#underWay) request.destroy();
    this.#client.close();
  }

  /** Resolves when its socket is free again or gone: a target that answers and does not end has no more of them. */
  #post(request: ClientRequest, body: Buffer): Promise<Fate> {
    return new Promise((resolve) => {
      let outcome: Fate | undefined;
      // From then on a failure may be the fault of what is sent.
      let hasBegun = false;
      request.on('socket', (socket) => {
        hasBegun = request.reusedSocket;
        if (hasBegun) return;
        socket.once(request.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
          hasBegun = true;
        });
      });
      this.#underWay.add(request);
      const deadline = setTimeout(() => request.destroy(new NoAnswer()), this.#around.timeout);
      let patience: NodeJS.Timeout | undefined;
      request.on('response', (response) => {
        // Whatever becomes of the rest, what it said counts.
        outcome = outcomeOf(response, this.#around.clock.now());
        patience = setTimeout(() => response.destroy(), bodyPatience);
        drain(response);
      });
      request.on('error', (error) => {
        outcome ??= failed(error, hasBegun);
      });
      request.on('close', () => {
        clearTimeout(deadline);
        clearTimeout(patience);
        this.#underWay.delete(request);
        resolve(outcome ?? failed(new Error(), hasBegun));
      });
      request.end(body);
    });
  }
}

/** The signature header of a body: `t=<seconds since 1970>,v1=<hex HMAC-SHA256 of "t.body">`. */
export function sign(secret: string, body: string | Buffer, seconds: number): string {
  const mac = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
  return `t=${seconds},v1=${mac}`;
}

/**
 * The headers of Standard Webhooks, for the libraries that check them. The key is the secret's bytes: such a library takes it
 * as `whsec_` and the base64 of the secret.
 */
export function standardHeaders(secret: string, body: string | Buffer, seconds: number, id: string) {
  const mac = createHmac('sha256', secret).update(`${id}.${seconds}.`).update(body).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': `${seconds}`, 'webhook-signature': `v1,${mac}` };
}

/** One id for these messages for ever, whatever else their body says by then; with one message more or less it is another. */
function batchId(batch: readonly { id: string }[]): string {
  const ids = batch.map(({ id }) => id).join();
  return `msg_${createHash('sha256').update(ids).digest('base64url').slice(0, 27)}`;
}

/** Codes of connections that are broken off while something is sent: proxies do so with what is too large for them. */
const brokenOff = ['ECONNRESET', 'EPIPE', 'ECONNABORTED'];

/** Of an error only its code is told: its message may name the address. */
function failed(error: unknown, hasBegun: boolean): Fate {
  const code = failureCode(error);
  const isBrokenOff = hasBegun && brokenOff.includes(code);
  const about = error instanceof NoAnswer || isBrokenOff ? 'batch' : 'target';
  if (isBrokenOff) return { result: 'retry', about, reason: `broken off while it was sent (${code})` };
  return { result: 'retry', about, reason: code === 'Error' ? 'connection closed' : explainCode('webhook', code) };
}

/** Statuses that say what is wrong. */
const statuses: Record<number, Fault> = {
  401: 'wrongPassword',
  403: 'notPermitted',
  404: 'noTopic',
  410: 'noTopic',
  413: 'tooLarge',
  429: 'throttled',
};

/** 431: the headers of the bridge are the same for every message. */
const headersTooLarge =
  'The headers of the bridge are larger than the webhook takes. Shorten them, or raise its limit.';

/** Statuses of a target that is not itself, whatever it is sent. */
const unwell = [429, 502, 503, 504];
/** Client errors that may pass by themselves. */
const passing = [408, 425, 429];
/** Client errors of an address, a login or headers that are wrong, maybe for a while only. */
const refusals: Record<number, Refusal> = {
  401: 'refused',
  403: 'refused',
  404: 'refused',
  410: 'gone',
  431: 'refused',
};

function outcomeOf({ statusCode = 0, headers }: IncomingMessage, now: number): Fate {
  const fault = statuses[statusCode];
  const answered = `answered ${statusCode}`;
  const said = statusCode === 431 ? `${headersTooLarge} (${answered})` : answered;
  const reason = fault ? sentenceOf('webhook', fault, answered) : said;
  if (statusCode >= 200 && statusCode < 300) return { result: 'accepted' };
  const refusal = refusals[statusCode];
  if (statusCode >= 400 && statusCode < 500 && !refusal && !passing.includes(statusCode))
    return { result: 'refused', reason };
  // Redirects are not followed: nobody has checked, nor allowed, where they lead.
  const about = unwell.includes(statusCode) || statusCode < 400 ? 'target' : 'batch';
  const after = readRetryAfter(headers['retry-after'], now);
  return { result: 'retry', about, reason, ...(refusal && { refusal }), ...(after !== undefined && { after }) };
}

/** Milliseconds of a `Retry-After`: seconds or a date. */
function readRetryAfter(text: string | undefined, now: number): number | undefined {
  if (text === undefined) return undefined;
  const after = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Number.isNaN(after) ? undefined : Math.min(Math.max(after, 0), maxRetryAfter);
}

function drain(response: IncomingMessage): void {
  response.on('error', () => {});
  if (Number(response.headers['content-length'] ?? 0) > maxAnswerLength) {
    response.destroy();
    return;
  }
  let left = maxAnswerLength;
  response.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) response.destroy();
  });
}
