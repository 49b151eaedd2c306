/** Where units connect and where they are claimed: the same for units of a job and for single ones. */

import { Type } from 'typebox';
import type { Config } from '../config.js';
import type { Context } from '../context.js';
import type { App } from '../http/app.js';

/** The broker address for units. */
export function brokerUrl({ config, broker }: Pick<Context, 'config' | 'broker'>): string {
  if (config.mqttPublicUrl) return config.mqttPublicUrl;
  const { mqtt, mqtts } = broker.addresses;
  const host = config.publicUrl ? new URL(config.publicUrl).hostname : ownHost(config);
  return mqtts === undefined ? `mqtt://${host}:${mqtt}` : `mqtts://${host}:${mqtts}`;
}

/** Where anyone who holds a unit claims it; withCode adds its code. */
export function claimUrl({ config }: { config: Config }): string {
  if (config.claimUrl) return config.claimUrl;
  const own = `${config.tls ? 'https' : 'http'}://${ownHost(config)}:${config.httpPort}`;
  return `${config.publicUrl ?? own}/claim`;
}

function ownHost({ host }: Config): string {
  return host.includes(':') ? `[${host}]` : host;
}

const answer = Type.Object(
  {
    provisioning: Type.Object({
      broker: Type.String({ description: 'As `mqtt://host:port`, or `mqtts://host:port` under TLS.' }),
      claimUrl: Type.String({ description: 'The association code of a unit is added to it as `code`.' }),
    }),
  },
  { description: 'The addresses.' },
);

/** GET /provisioning/addresses. */
export function addressRoutes(app: App, ctx: Context): void {
  app.get(
    '/provisioning/addresses',
    {
      config: { right: ['create', 'associationCode'], errors: ['forbidden'] },
      schema: {
        tags: ['Association'],
        summary: 'Read where units connect, and where they are claimed',
        response: { 200: answer },
      },
    },
    async () => {
      return { provisioning: { broker: brokerUrl(ctx), claimUrl: claimUrl(ctx) } };
    },
  );
}
