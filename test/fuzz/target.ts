/** The service under test: a process of its own, so that its end is seen, whose log must hold no error. */

import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { resolveComponents } from '../../src/http/openapi/components.ts';
import { Api } from '../crash/api.ts';
import { Contract } from '../support/contract.ts';
import type { OpenApi } from '../support/openapi.ts';
import { type Launched, launch, type Running } from '../support/process.ts';
import { adminEmail, adminPassword } from '../support/service.ts';
import { copyKeys } from '../support/template.ts';
import type { Pairs } from './hostile.ts';

/** Milliseconds after which an answer is called slow, and after which nobody waits for it any more. */
export const slowAfter = 2000;
const patience = 15_000;
/** What waits by design is heard for so long. */
const glance = 150;

/** Limits on guessing would answer 429 before anything else is tried. */
const unlimited = Object.fromEntries(
  [
    'LOGIN_FAILURES_PER_IDENTITY',
    'LOGIN_FAILURES_PER_ADDRESS',
    'MQTT_FAILED_CONNECTS_PER_ADDRESS',
    'MQTT_FAILED_CONNECTS_PER_PRINCIPAL',
    'MQTT_MAX_CONNECTIONS_PER_PRINCIPAL',
    'MQTT_MAX_CONNECTIONS_PER_DEVICE',
    'MQTT_REFUSALS_PER_MINUTE',
  ].map((name) => [`SLIPWAY_${name}`, '0']),
);

/** A request as it goes out. */
export interface Sent {
  method: string;
  path: string;
  headers: Pairs;
  body?: Buffer | undefined;
}

/** Before it has been read. */
const none: OpenApi = { openapi: '', tags: [], paths: {}, components: { schemas: {}, parameters: {} } };

/** `undefined` where somebody waits by design, and no answer had come when nobody waited any more. */
export interface Got {
  status: number;
  type: string;
  text: string;
  ms: number;
}

export class Target {
  readonly api: Api;
  #launched: Launched | undefined;
  #running: Running | undefined;
  #ended: string | undefined;
  #errors: string[] = [];
  #contract: Contract | undefined;
  #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  #generation = 0;
  document = none;

  readonly base: string;

  /** `base` is where its data directories are made. */
  constructor(base: string) {
    this.base = base;

    this.api = new Api(randomUUID(), { email: adminEmail, password: adminPassword });
  }

  get mqttPort(): number {
    return this.#up().mqttPort;
  }

  get url(): string {
    return this.#up().url;
  }

  /** Starts it, again when it has ended. */
  async start(): Promise<void> {
    if (this.#running && this.#ended === undefined) return;
    const directory = join(this.base, String(this.#generation));
    mkdirSync(directory, { recursive: true });
    copyKeys(directory);
    this.#ended = undefined;
    this.#errors = [];
    const launched = launch(directory, {
      ...unlimited,
      SLIPWAY_ACCOUNT_ID: this.api.accountId,
      SLIPWAY_LOG_LEVEL: 'error',
      // Bridges and providers of the suite lead to this machine, where nobody listens.
      SLIPWAY_ALLOW_PRIVATE_TARGETS: 'true',
    });
    this.#launched = launched;
    launched.child.stdout?.on('data', (chunk: Buffer) => {
      for (const line of chunk.toString().split('\n')) if (/^\{"level":[56]0/.test(line)) this.#errors.push(line);
    });
    launched.ended.then((by) => {
      if (this.#launched === launched) this.#ended = `the process ended with ${by}`;
    });
    this.#running = await launched.listening;
    this.api.url = this.#running.url;
    await this.api.login();
    if (this.document === none)
      this.document = resolveComponents(
        (await (await fetch(`${this.#running.url}/openapi.json`)).json()) as object,
      ) as OpenApi;
    this.#contract ??= new Contract(this.document);
  }

  /** Ends it, and starts it without data: an admin may have made required what no request sends. */
  async again(): Promise<void> {
    await this.stop();
    this.#running = undefined;
    this.#generation += 1;
    await this.start();
  }

  /** @throws Error when the process has ended, or has logged an error since the last look. */
  demandSound(): void {
    const [error] = this.#errors.splice(0);
    if (this.#ended !== undefined) throw new Error(this.#ended);
    if (error !== undefined) throw new Error(`the log has an error: ${error}`);
  }

  /** Megabytes that the process holds, and how often its event loop was held up for more than 2.5 seconds. */
  async load(): Promise<{ megabytes: number; heldUp: number }> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const of = (line: string) => Number(text.split(`\n${line} `)[1]?.split('\n')[0]);
    const lag = 'slipway_event_loop_lag_seconds';
    return {
      megabytes: Math.round(of('slipway_process_memory_bytes{kind="resident"}') / 1e6),
      heldUp: of(`${lag}_count`) - of(`${lag}_bucket{le="2.5"}`),
    };
  }

  /** Sends a request and holds the answer against the document. @throws Error that says what is wrong with it. */
  async ask(sent: Sent): Promise<Got | undefined> {
    const waits = /\/(stream|events|verify)\b/.test(sent.path);
    const got = await this.#exchange(sent, waits ? glance : patience);
    if (!got) {
      if (!waits) throw new Error(`no answer within ${patience} ms`);
      return undefined;
    }
    const { status, type, text } = got;
    if (status >= 500 && ![502, 503, 507].includes(status)) throw new Error(`answered ${status}: ${text}`);
    const isJson = type.startsWith('application/json');
    // The parser of HTTP answers headers and addresses past its bound: no operation is reached.
    if (status === 431) return got;
    this.#contract?.check(sent.method, sent.path, status, isJson ? JSON.parse(text) : undefined);
    if (status >= 400 && !(isJson && JSON.parse(text).requestId))
      throw new Error(`answered ${status} as ${type || 'nothing'}: ${text}`);
    return got;
  }

  /** SIGTERM, as an operator sends it. @throws Error when that is not a clean end. */
  async stop(): Promise<void> {
    this.#agent.destroy();
    if (!this.#running || this.#ended !== undefined) return;
    const code = await this.#running.stop('SIGTERM');
    if (code !== 0) throw new Error(`SIGTERM ended it with ${code}`);
  }

  abandon(): void {
    this.#agent.destroy();
    this.#launched?.child.kill('SIGKILL');
  }

  #up(): Running {
    if (!this.#running) throw new Error('not started');
    return this.#running;
  }

  /** A connection that was kept may have been closed meanwhile: then the request goes out once more. */
  async #exchange(sent: Sent, wait: number): Promise<Got | undefined> {
    try {
      return await this.#once(sent, wait);
    } catch (error) {
      this.demandSound();
      this.#agent.destroy();
      this.#agent = new Agent({ keepAlive: true, maxSockets: 1 });
      if (!['ECONNRESET', 'EPIPE'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      return this.#once(sent, wait);
    }
  }

  #once({ method, path, headers, body }: Sent, wait: number): Promise<Got | undefined> {
    const began = performance.now();
    return new Promise((resolve, reject) => {
      const { hostname, port } = new URL(this.#up().url);
      const flat = [...headers, ['content-length', String(body?.length ?? 0)]].flat();
      const request = httpRequest({
        agent: this.#agent,
        hostname,
        port,
        method,
        path,
        headers: ['host', hostname, ...flat],
      });
      // A request that gets no answer is a finding of its own.
      const timer = setTimeout(() => {
        resolve(undefined);
        request.destroy();
      }, wait);
      request.on('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
      request.on('response', async (response) => {
        const type = response.headers['content-type'] ?? '';
        const got = { status: response.statusCode ?? 0, type, text: '', ms: performance.now() - began };
        try {
          // A stream has no end of its own.
          if (type.startsWith('text/event-stream')) request.destroy();
          else got.text = await textOf(response);
          resolve({ ...got, ms: performance.now() - began });
        } catch (error) {
          reject(error as Error);
        } finally {
          clearTimeout(timer);
        }
      });
      request.end(body);
    });
  }
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
