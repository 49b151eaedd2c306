/** Asks the server of this configuration, on this machine. */
import type { X509Certificate } from 'node:crypto';
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { text } from 'node:stream/consumers';
import { TLSSocket } from 'node:tls';
import type { Config } from '../src/core/config.ts';

/** How long the server may take to answer, in milliseconds. */
const patience = 4000;

type Where = Pick<Config, 'host' | 'httpPort' | 'metricsToken'> & { tls: object | undefined };

/** The hint for the error when the server does not answer. */
export const doubt = 'Was it started with other settings (port, host, TLS) than are here?';

/** GET, with the operator's token when there is one, and the certificate that was shown. Rejects when nothing answers in time. */
export async function askServer(
  { host, httpPort, tls, metricsToken }: Where,
  path: string,
): Promise<{ status: number; text: string; certificate: X509Certificate | undefined }> {
  const options = {
    host: here(host),
    port: httpPort,
    path,
    headers: metricsToken === undefined ? {} : { authorization: `Bearer ${metricsToken}` },
    // On a connection of its own: one that is used again has no certificate to show.
    agent: false,
    // This machine is asked, whatever name the certificate has.
    rejectUnauthorized: false,
    signal: AbortSignal.timeout(patience),
  };
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    (tls ? requestHttps : requestHttp)(options, resolve).on('error', reject).end();
  });
  const { socket } = answer;
  const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
  return { status: answer.statusCode ?? 0, text: await text(answer), certificate };
}

/** Where a server that listens on every address is found. */
export function here(host: string): string {
  return { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host;
}
