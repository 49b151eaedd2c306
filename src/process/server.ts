/** A running server: context, listeners, and their end. */
import type { Server as HttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { databasesIn } from '../../db/files/copies.ts';
import { startExpiryWarnings } from '../certificates/expiry.ts';
import type { Config } from '../core/config.ts';
import { listenWide } from '../core/network/accepting.ts';
import { secureOptions } from '../core/network/server-tls.ts';
import type { App } from '../http/app.ts';
import { startPurge } from '../operations/purge/purge.ts';
import { type CreatedAccount, createFirstAccount, readFirstAdmin } from '../registry/accounts.ts';
import { type OpenedContext, openContext } from './context.ts';
import { openHttp } from './http.ts';
import { checkStart, nameTheFault, nameTheVariable } from './start-checks.ts';
import { reloadTls } from './tls-reload.ts';
import { markParts } from './used-directory.ts';

/** How long requests under way may take to finish after a signal, in milliseconds. */
const drainTime = 3000;

/** A running server: where it is, and its end. */
export interface Server extends OpenedContext {
  app: App;
  url: string;
  mqttPort: number;
  /** When this start made it: its password is shown once. */
  firstAccount: CreatedAccount | undefined;
  /** Reads the TLS certificate again; undefined without TLS. */
  rereadCertificate: (() => void) | undefined;
  /** Says at /health/ready that the end is near; resolves when load balancers have had time to hear it, or must `hurry`. */
  announceEnd(hurry: AbortSignal): Promise<void>;
}

export type StartOptions = Parameters<typeof openContext>[1] & {
  /** What can be checked before anything is created has been. */
  onChecked?(): void;
  /** It exists, and HTTP does not listen yet: its password is shown even when that fails. */
  onFirstAccount?(account: CreatedAccount): void;
};

/** Opens everything and listens. Nothing is left open when it throws. */
export async function startServer(config: Config, options: StartOptions = {}): Promise<Server> {
  await checkStart(config).catch(nameTheFault);
  const isFirst = !databasesIn(config.dataDir).includes('registry.db');
  const admin = isFirst ? readFirstAdmin(config) : undefined;
  options.onChecked?.();
  const opened = await openContext(config, options).catch(nameTheFault);
  const { broker } = opened.ctx;
  let app: App | undefined;
  let firstAccount: CreatedAccount | undefined;
  try {
    app = await openHttp(opened.ctx);
    broker.attachWebSocket(app.server);
    await opened.ctx.commands.requeueSent();
    await broker.listen().catch(nameTheVariable('SLIPWAY_MQTT_PORT or SLIPWAY_MQTTS_PORT'));
    await opened.ctx.jobs.start();
    await markParts(opened.ctx.registry, opened.ctx.sealing);
    // Late: a start that fails before leaves no account.
    firstAccount = await createFirstAccount(opened.ctx, admin);
    if (firstAccount) options.onFirstAccount?.(firstAccount);
    await listenHttp(app, config).catch(nameTheVariable('SLIPWAY_HTTP_PORT'));
    app.server.on('error', (error) => opened.ctx.log.error({ err: error }, 'the HTTP listener failed'));
  } catch (error) {
    await app?.close();
    await opened.close();
    throw error;
  }
  const listening = app;
  const tls =
    config.tls &&
    reloadTls(config.tls, {
      log: opened.ctx.log,
      apply: (changed) => {
        (listening.server as unknown as HttpsServer).setSecureContext(secureOptions(changed));
        broker.useCertificate(changed);
      },
    });
  const purging = startPurge({ ...opened.ctx, clock: opened.ctx.ages });
  const warnings = startExpiryWarnings(opened.ctx);
  opened.ctx.listFetcher.start();
  const { port } = listening.server.address() as AddressInfo;
  const url = addressAt(config, port);
  opened.ctx.serving.url = url;
  opened.ctx.firmwareEngine.startServing(url);
  return {
    ...opened,
    firstAccount,
    app: listening,
    url,
    mqttPort: broker.addresses.mqtt,
    rereadCertificate: tls?.now,
    announceEnd: async (hurry) => {
      opened.ctx.health.stopping();
      await sleep(config.shutdownDelay, undefined, { signal: hurry }).catch(() => {});
    },
    close: async () => {
      opened.ctx.health.stopping();
      tls?.stop();
      // Requests under way finish; what is not done in time is cut off, and the stores close after them.
      const cut = setTimeout(() => {
        opened.ctx.log.warn('requests that had not ended in time were cut off');
        listening.server.closeAllConnections();
      }, drainTime);
      await listening.close();
      clearTimeout(cut);
      warnings.stop();
      await purging.stop();
      await opened.close();
    },
  };
}

/** Where HTTP is. */
export function addressAt({ host, tls }: Pick<Config, 'host' | 'tls'>, port: number): string {
  return `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Connections that are accepted are as those of Node's HTTP server. */
function listenHttp(app: App, { host, httpPort: port, tls }: Config): Promise<void> {
  const options = { noDelay: true, allowHalfOpen: tls === undefined };
  return listenWide(app.server, { host, port }, options, (listening) => app.listen(listening));
}
