/** `slipway health`: whether the server of this configuration answers. What the health check of the image runs. */
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { loadConfig } from '../config.js';
import { Ending, exitCodes, UsageError } from './usage.js';

/** How long the server may take to answer, in milliseconds. */
const patience = 4000;

/** Prints the server's answer. @throws Ending with exit code 1 when it gives none, or another than 200. */
export async function health(args: string[]): Promise<void> {
  const { ready } = parseArgs({ args, options: { ready: { type: 'boolean' } } }).values;
  const { host, httpPort, tls, metricsToken } = loadConfig();
  if (httpPort === 0) throw new UsageError('SLIPWAY_HTTP_PORT is 0: nobody knows where the server listens.');
  // Asked at its own address, for which its certificate is not made out.
  const options = {
    host: everywhere[host] ?? host,
    port: httpPort,
    path: ready ? '/health/ready' : '/health/live',
    headers: metricsToken === undefined ? {} : { authorization: `Bearer ${metricsToken}` },
    rejectUnauthorized: false,
    signal: AbortSignal.timeout(patience),
  };
  const { statusCode, body } = await new Promise<IncomingMessage>((resolve, reject) => {
    (tls ? requestHttps : requestHttp)(options, resolve).on('error', reject).end();
  })
    .then(async (answer) => ({ statusCode: answer.statusCode, body: await text(answer) }))
    .catch((error: Error) => {
      throw new Ending(exitCodes.failed, `The server does not answer: ${error.message}`);
    });
  if (statusCode !== 200) throw new Ending(exitCodes.failed, `The server answers ${statusCode}: ${body}`);
  process.stdout.write(`${body}\n`);
}

/** Who listens on all addresses is asked at the nearest. */
const everywhere: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
