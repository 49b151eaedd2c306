/** One request over HTTP: as fetch, which takes three times the CPU, and this is most of what the tests do. */
import http from 'node:http';
import https from 'node:https';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { patience } from './until.ts';

const plain = new http.Agent({ keepAlive: true });
const secure = new https.Agent({ keepAlive: true });
const decoder = new TextDecoder();
const expanders = new Map([
  ['br', brotliDecompressSync],
  ['gzip', gunzipSync],
]);

/** One answer. Its headers are made when somebody asks for them: most tests do not. */
export class Response {
  #headers: Headers | undefined;

  readonly status: number;
  readonly text: string;
  /** Its headers as Node gives them, by name, which is cheap. */
  readonly named: http.IncomingHttpHeaders;
  readonly rawHeaders: string[];

  constructor(
    status: number,
    text: string,

    named: http.IncomingHttpHeaders,
    rawHeaders: string[],
  ) {
    this.status = status;
    this.text = text;
    this.named = named;
    this.rawHeaders = rawHeaders;
  }

  get headers(): Headers {
    const raw = this.rawHeaders;
    const pairs = raw.flatMap((name, at) => (at % 2 === 0 ? [[name, raw[at + 1] ?? '']] : []));
    this.#headers ??= new Headers(pairs as Array<[string, string]>);
    return this.#headers;
  }
}

/** @throws Error when the connection fails before the whole answer is here. A redirect is an answer: it is not followed. */
export function request(
  url: string,
  { method, headers, body }: { method: string; headers: Record<string, string>; body?: string | Buffer | undefined },
): Promise<Response> {
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const [client, agent] = url.startsWith('https:') ? [https, secure] : [http, plain];
  return new Promise((resolve, reject) => {
    // Where the answer comes before the whole request has gone, that it cannot go is no failure.
    let isAnswered = false;
    const sent = client.request(new URL(url), { method, agent, headers: { ...length, ...headers } }, (response) => {
      isAnswered = true;
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('close', () => reject(new Error('the connection ended before the whole answer had come')));
      response.on('end', () => {
        const { statusCode = 0, headers: named, rawHeaders } = response;
        const content = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
        const expand = expanders.get(named['content-encoding'] ?? '');
        try {
          const text = decoder.decode(expand ? expand(content) : content);
          resolve(new Response(statusCode, text, named, rawHeaders));
        } catch (error) {
          reject(error);
        }
      });
    });
    sent.setTimeout(patience * 1000, () => {
      const error = new Error(`${method} ${url}: nothing came for ${patience} seconds`);
      reject(error);
      sent.destroy(error);
    });
    sent.on('error', (error) => {
      if (!isAnswered) reject(error);
    });
    sent.end(body);
  });
}
