/** One request over HTTP: as fetch, which takes three times the CPU, and this is most of what the tests do. */
import http from 'node:http';
import https from 'node:https';
import { buffer } from 'node:stream/consumers';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';

const plain = new http.Agent({ keepAlive: true });
const secure = new https.Agent({ keepAlive: true });
const decoder = new TextDecoder();
const expanders = new Map([
  ['br', brotliDecompressSync],
  ['gzip', gunzipSync],
]);

export interface Response {
  status: number;
  headers: Headers;
  text: string;
}

/** @throws Error when the connection fails before the whole answer is here. A redirect is an answer: it is not followed. */
export async function request(
  url: string,
  { method, headers, body }: { method: string; headers: Record<string, string>; body?: string | undefined },
): Promise<Response> {
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const [client, agent] = url.startsWith('https:') ? [https, secure] : [http, plain];
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    const sent = client.request(new URL(url), { method, agent, headers: { ...length, ...headers } }, resolve);
    sent.on('error', reject);
    sent.end(body);
  });
  const expand = expanders.get(response.headers['content-encoding'] ?? '');
  const content = await buffer(response);
  const text = decoder.decode(expand ? expand(content) : content);
  const pairs = response.rawHeaders.flatMap((name, at, raw) => (at % 2 === 0 ? [[name, raw[at + 1] ?? '']] : []));
  return { status: response.statusCode ?? 0, headers: new Headers(pairs as Array<[string, string]>), text };
}
