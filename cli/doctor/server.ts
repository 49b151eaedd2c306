/** The ports, and a server that runs: whether it is ready, and how long it lets others wait. */
import { X509Certificate } from 'node:crypto';
import { connect } from 'node:net';
import type { Config } from '../../src/core/config.ts';
import { demandPort } from '../../src/core/network/accepting.ts';
import { askServer, doubt, here } from '../own-server.ts';
import { type Finding, findings } from './finding.ts';

/** Milliseconds. */
const patience = 5000;
const slow = 250;
/** Requests by which the event loop is felt from outside. */
const samples = 20;

/** Each port is held by the server that runs, or free for one that does not. */
export async function lookAtPorts(config: Config, served: boolean): Promise<Finding[]> {
  const { ok, error } = findings('ports');
  const ports = [
    ['SLIPWAY_HTTP_PORT', config.httpPort],
    ['SLIPWAY_MQTT_PORT', config.mqttPort],
    ...(config.tls ? ([['SLIPWAY_MQTTS_PORT', config.mqttsPort]] as const) : []),
  ] as const;
  const found: Finding[] = [];
  for (const [variable, port] of ports) {
    if (port === 0) continue;
    const what = `${variable}=${port} at ${config.host}`;
    if (served) {
      const fault = await reach(config.host, port);
      if (fault) found.push(error(`A server runs on this data, but nothing answers at ${what}: ${fault}`));
    } else {
      const fault = await demandPort({ host: config.host, port }).catch((reason: Error) => reason);
      if (fault) found.push(error(`No server runs on this data, but ${what} cannot be used: ${fault.message}`));
    }
  }
  return found.length > 0 ? found : [ok(served ? 'the server listens on its ports' : 'free for the server')];
}

/** Checks of a running server. */
export async function lookAtServer(config: Config, served: boolean): Promise<Finding[]> {
  const { ok, warning, error } = findings('server');
  if (!served) return [ok('no server runs on this data')];
  if (config.httpPort === 0) return [ok('a server runs; its port is not known')];
  try {
    const ready = await askServer(config, '/health/ready');
    const times: number[] = [];
    for (let sample = 0; sample < samples; sample += 1) {
      const began = performance.now();
      await askServer(config, '/health/live');
      times.push(performance.now() - began);
    }
    const longest = Math.round(Math.max(...times));
    const metrics = await askServer(config, '/metrics');
    const lag = metrics.status === 200 ? loopLag(metrics.text) : undefined;
    const lagged = lag === undefined ? '' : `, event-loop lag ${Math.round(lag * 1000)} ms`;
    const said = `answers within ${longest} ms (${samples} requests)${lagged}`;
    const found: Finding[] = [];
    if (ready.status === 503) found.push(error(`The server is not ready: ${reasons(ready.text)}`));
    if (longest > slow || (lag ?? 0) * 1000 > slow)
      found.push(warning(`The event loop is blocked: the server ${said}. All clients wait as long.`));
    if (/^slipway_messages_refused 1$/m.test(metrics.text))
      found.push(error('Messages are refused because the disk is full: see disk.'));
    if (metrics.status === 401)
      found.push(warning('SLIPWAY_METRICS_TOKEN differs from the one of the server: this is not its environment.'));
    const { certificate } = ready;
    if (certificate && config.tls && certificate.fingerprint256 !== new X509Certificate(config.tls.cert).fingerprint256)
      found.push(
        warning(
          `The server shows a certificate that ends on ${certificate.validTo}, and SLIPWAY_TLS_CERT is another one. Its log says why it could not be read again.`,
        ),
      );
    return found.length > 0 ? found : [ok(`${ready.status === 200 ? 'ready; ' : ''}${said}`)];
  } catch (fault) {
    return [error(`The server does not answer: ${(fault as Error).message}. ${doubt}`)];
  }
}

function reasons(text: string): string {
  try {
    const { problems } = JSON.parse(text) as { problems: Array<{ part: string; reason: string }> };
    return problems.map(({ part, reason }) => `${part}: ${reason}`).join(' ');
  } catch {
    return text.slice(0, 200);
  }
}

/** Seconds: the largest value of the metrics that say it, histograms and counters aside. */
function loopLag(metrics: string): number | undefined {
  const values = [...metrics.matchAll(/^\w*event_?loop\w*(?:lag|delay)\w*seconds(?:\{[^}]*\})? (\S+)$/gm)].map(
    ([, value]) => Number(value),
  );
  const known = values.filter((value) => Number.isFinite(value));
  return known.length > 0 ? Math.max(...known) : undefined;
}

/** Why nobody answers at a port; undefined when somebody does. */
function reach(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host: here(host), port, timeout: patience });
    const end = (fault?: string) => {
      socket.destroy();
      resolve(fault);
    };
    socket.on('connect', () => end());
    socket.on('timeout', () => end('no answer'));
    socket.on('error', (fault) => end(fault.message));
  });
}
