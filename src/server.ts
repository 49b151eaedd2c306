/** A running server: context, listeners, and their end. */
import type { AddressInfo } from 'node:net';
import { type Opened, openContext } from './context.js';
import { type App, buildHttp } from './http.js';

/** How long requests under way may take to finish after a signal, in milliseconds. */
const drainTime = 3000;

/** A running server: where it is, and its end. */
export interface Server extends Opened {
  app: App;
  url: string;
  mqttPort: number;
}

/** Opens everything and listens. Nothing is left open when it throws. */
export async function startServer(...given: Parameters<typeof openContext>): Promise<Server> {
  const opened = await openContext(...given);
  const { config, broker } = opened.ctx;
  let app: App | undefined;
  try {
    app = await buildHttp(opened.ctx);
    broker.attachWebSocket(app.server);
    await broker.listen();
    await app.listen({ host: config.host, port: config.httpPort });
  } catch (error) {
    await app?.close();
    await opened.close();
    throw error;
  }
  const listening = app;
  const { port } = listening.server.address() as AddressInfo;
  const host = config.host.includes(':') ? `[${config.host}]` : config.host;
  return {
    ...opened,
    app: listening,
    url: `${config.tls ? 'https' : 'http'}://${host}:${port}`,
    mqttPort: broker.addresses.mqtt,
    close: async () => {
      // Requests under way finish; what is not done in time is cut off, and the stores close after them.
      const cut = setTimeout(() => listening.server.closeAllConnections(), drainTime);
      await listening.close();
      clearTimeout(cut);
      await opened.close();
    },
  };
}
