/**
 * The only module that opens connections to addresses which accounts or the operator have named. Those of accounts must be public,
 * which is checked when the connection is made. Redirects are never followed.
 */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import http, { type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import https from 'node:https';
import net, { isIP, type LookupFunction } from 'node:net';
import os from 'node:os';
import tls from 'node:tls';
import ipaddr from 'ipaddr.js';

export type { ClientRequest, IncomingMessage, RequestOptions };

/** Milliseconds that one exchange may take, from the look-up of the name to the last byte of the answer. */
export const exchangeDeadline = 10_000;
/** Bytes of the answer of one exchange. */
export const maxAnswerBytes = 1_048_576;

/** The permitted addresses: with `allowPrivate` every one, otherwise public ones only. */
export interface Targets {
  allowPrivate: boolean;
}

/** Targets that the operator has named in the configuration, such as the SMS webhook: they may be in its own network. */
export const operatorTargets: Targets = { allowPrivate: true };

/** A name or an address leads to where accounts may not connect to. */
export class NotPublic extends Error {
  override name = 'NotPublic';
  readonly code = 'NOT_PUBLIC';

  constructor() {
    super('not a public address; only SLIPWAY_ALLOW_PRIVATE_TARGETS=true allows private ones');
  }
}

/** Public by their range, but reserved for a machine's own cloud: Azure's metadata service. */
const metadata = ['168.63.129.16'];
const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3');

/** Whether an address is elsewhere on the internet, and not one of this machine's now. False if it is no address. */
export function isPublic(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  // An IPv4-mapped address is judged as the IPv4 address; NAT64 and 6to4 have ranges of their own, which are not public.
  const parsed = ipaddr.process(address);
  if (parsed.range() !== 'unicast') return false;
  if (parsed.kind() === 'ipv6' && !(parsed as ipaddr.IPv6).match(globalUnicast)) return false;
  const text = parsed.toString();
  return !metadata.includes(text) && !isOwn(text);
}

function isOwn(address: string): boolean {
  const own = Object.values(os.networkInterfaces()).flatMap((addresses = []) => addresses.map((one) => one.address));
  // A link-local address is followed by its zone.
  return own.some((one) => ipaddr.isValid(one) && ipaddr.process(one).toString() === address);
}

/** Whether the host of a URL is an address that is not public, so that no look-up is needed to refuse it. */
export function namesPrivateAddress({ hostname }: { hostname: string }): boolean {
  const address = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(address) !== 0 && !isPublic(address);
}

/** The `lookup` of a socket that finds the public addresses of a name only. The socket connects to one of these. */
export const lookupPublic: LookupFunction = (hostname, options, done) => {
  lookup(hostname, { ...(options as LookupOptions), all: true }, (error, found) => {
    if (error) return done(error, []);
    const addresses = found.filter(({ address }) => isPublic(address));
    const [first] = addresses as [LookupAddress?];
    if (!first) return done(new NotPublic(), []);
    if (options.all) return done(null, addresses);
    return done(null, first.address, first.family);
  });
};

/**
 * The options with which any socket (net, tls, http) may connect to `hostname`, a name or an address as in a URL. Every
 * connection needs them again. @throws NotPublic for an address that is not permitted: sockets look up names only.
 */
export function connectOptions(hostname: string, { allowPrivate }: Targets): { lookup?: LookupFunction } {
  if (allowPrivate) return {};
  if (namesPrivateAddress({ hostname })) throw new NotPublic();
  return { lookup: lookupPublic };
}

/**
 * An address of `hostname` that may be connected to, for clients that take no `lookup` of ours.
 * @throws NotPublic, and the errors of the look-up.
 */
export function permittedAddress(hostname: string, targets: Targets): Promise<string> {
  const name = hostname.replace(/^\[(.*)\]$/, '$1');
  const { lookup: permitted = lookup as LookupFunction } = connectOptions(hostname, targets);
  if (isIP(name) !== 0) return Promise.resolve(name);
  return new Promise((resolve, reject) => {
    permitted(name, { all: false }, (error, address) => (error ? reject(error) : resolve(String(address))));
  });
}

/** Whose certificates are accepted: those of these CAs (PEM), or of the public ones. */
export interface Trust {
  ca?: string | undefined;
}

/** The options of TLS for that. An intermediate CA is trusted without its root, and a server's own certificate without its CA. */
export function trusting({ ca }: Trust): Pick<tls.SecureContextOptions, 'ca' | 'allowPartialTrustChain'> {
  return ca === undefined ? {} : { ca, allowPartialTrustChain: true };
}

/** A socket to a target that is no HTTP server. With TLS the certificate must fit the host. @throws NotPublic. */
export function openSocket(
  { hostname, port, secure, ca }: { hostname: string; port: number; secure: boolean } & Trust,
  targets: Targets,
): net.Socket {
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const options = { host, port, ...connectOptions(hostname, targets) };
  if (!secure) return net.connect(options);
  return tls.connect({ ...options, ...trusting({ ca }), ...(isIP(host) === 0 && { servername: host }) });
}

/** Encrypts a connection that is open. The certificate must fit the host. */
export function secureSocket(socket: net.Socket, { hostname, ca }: { hostname: string } & Trust): tls.TLSSocket {
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return tls.connect({ socket, host, ...trusting({ ca }), ...(isIP(host) === 0 && { servername: host }) });
}

/** Bytes that a target may send for each byte that it is sent, and bytes that it may send besides. */
const answerRatio = 4;
const answerAllowance = 1_048_576;

/** Closes a connection whose other end sends much more than it is sent: clients of protocols keep parts of messages. */
export function limitAnswers(socket: net.Socket): void {
  let [left, sent] = [answerAllowance, 0];
  socket.on('data', (chunk: Buffer) => {
    const more = answerRatio * (socket.bytesWritten - sent);
    sent = socket.bytesWritten;
    left = Math.min(answerAllowance, left + more) - chunk.length;
    if (left < 0) socket.destroy(Object.assign(new Error('the answer is too large'), { code: 'ANSWER_TOO_LARGE' }));
  });
}

/** An agent for a client library that speaks HTTPS itself, such as that of a cloud service. */
export function httpsAgent(targets: Targets, options: https.AgentOptions): https.Agent {
  return new https.Agent({ ...options, ...(targets.allowPrivate ? {} : { lookup: lookupPublic }) });
}

/** Kept connections to one URL. */
export interface HttpClient {
  /** A request to the URL, to be written and ended by the caller. @throws NotPublic. */
  request(options: Pick<RequestOptions, 'method' | 'headers'>): ClientRequest;
  /** Closes the connections that are not in use; requests are destroyed by the code that made them. */
  close(): void;
}

/** Opens nothing yet; `maxSockets` connections at most at a time, of which `maxFreeSockets` are kept. */
export function httpClient(
  url: URL,
  targets: Targets,
  { ca, ...limits }: { maxSockets: number; maxFreeSockets: number } & Trust,
): HttpClient {
  const client = clientFor(url);
  const agent = new client.Agent({ keepAlive: true, ...limits, ...trusting({ ca }) });
  return {
    request: (options) => client.request(url, { ...options, agent, ...connectOptions(url.hostname, targets) }),
    close: () => agent.destroy(),
  };
}

/** The request of one exchange. */
export interface Exchange {
  method: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
  /** Bytes of the answer, where they are not at most `maxAnswerBytes`. */
  maxBytes?: number;
  /** Ends it before `exchangeDeadline`, for several exchanges with one deadline. */
  signal?: AbortSignal;
}

/**
 * One request on a connection of its own, and its whole answer; a redirect is an answer like any other.
 * @throws NotPublic, Error for a connection that fails, takes longer than the deadline or answers too much.
 */
export async function exchange(
  url: URL,
  { method, headers, body, signal, maxBytes = maxAnswerBytes }: Exchange,
  targets: Targets,
): Promise<Response> {
  const limits = [AbortSignal.timeout(exchangeDeadline), ...(signal ? [signal] : [])];
  const options = { method, headers, agent: false, signal: AbortSignal.any(limits) } as const;
  const permitted = connectOptions(url.hostname, targets);
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const request = clientFor(url).request(url, { ...options, ...permitted }, resolve);
    request.on('error', reject);
    request.end(body);
  });
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    // Leaving the loop destroys the answer and its connection.
    if (size > maxBytes) throw new Error(`the answer is larger than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return new Response(size > 0 ? Buffer.concat(chunks) : null, {
    status: answer.statusCode ?? 0,
    headers: headersOf(answer),
  });
}

function headersOf({ headersDistinct }: IncomingMessage): Headers {
  const headers = new Headers();
  for (const [name, values = []] of Object.entries(headersDistinct))
    for (const value of values) headers.append(name, value);
  return headers;
}

function clientFor({ protocol }: URL): typeof http | typeof https {
  return protocol === 'https:' ? https : http;
}
