/** How one device connects, with lines ready to run; and how many devices are in which state. */

import { Type } from 'typebox';
import { type Category, channelTemplateColumns } from '../../../db/registry/records/templates.ts';
import { oneOf } from '../../../db/registry/records.ts';
import type { Caller } from '../../core/caller.ts';
import { formatTopic, serviceChannel } from '../../core/topics.ts';
import { list } from '../../entity/list.ts';
import { idParams } from '../../entity/routes.ts';
import { demandLive, findReached } from '../../entity/verbs.ts';
import type { App } from '../../http/app.ts';
import { nameIgnored } from '../../http/ignored-names.ts';
import { brokerUrl } from '../addresses.ts';
import { maxChannels } from '../channel.ts';
import type { RegistryContext } from '../context.ts';
import { connectLines } from './connect-lines.ts';
import { deviceListing } from './device.ts';

/** Placeholder for the secret in the lines: it is shown only once, by the call that makes it. */
const secretPlaceholder = 'YOUR_SECRET';

const text = Type.String();
const connectivityShape = Type.Object({
  host: Type.String({ description: 'Of the broker, as the caller reaches this service.' }),
  port: Type.Integer({ description: 'Of the broker, with TLS where `tls` says so.' }),
  tls: Type.Boolean(),
  webSocketUrl: Type.String({ description: 'MQTT over WebSocket.' }),
  httpUrl: text,
  clientId: Type.String({ description: 'A proposal. A device may use any client ID.' }),
  username: text,
  topics: Type.Array(
    Type.Object({
      channel: text,
      topic: text,
      persistenceType: text,
      service: Type.Boolean({ description: 'Whether every device has this channel.' }),
      devicePublishes: Type.Boolean({ description: 'Whether the device may publish there.' }),
      categories: channelTemplateColumns.categories.marks.shown,
    }),
    { maxItems: maxChannels },
  ),
  lines: Type.Object(
    {
      mosquitto: text,
      python: text,
      node: text,
      arduino: text,
      espIdf: text,
      microPython: text,
      zephyr: text,
      curl: text,
    },
    {
      description: `Each publishes a first message. Replace ${secretPlaceholder} by the secret of the device.`,
    },
  ),
});
const connectivityQuery = Type.Object({
  lines: Type.Optional(
    Type.Boolean({ default: true, description: 'Whether `lines` has the commands; without, each is empty.' }),
  ),
});
const connectivityAnswer = Type.Object(
  { connectivity: connectivityShape },
  { description: 'Where and how the device connects. It holds no secret.' },
);

const noLines = { mosquitto: '', python: '', node: '', arduino: '', espIdf: '', microPython: '', zephyr: '', curl: '' };

const states = ['defined', 'activated', 'associated', 'reserved'] as const;
const countsQuery = Type.Object({ accountId: text });
const countsAnswer = Type.Object(
  {
    counts: Type.Object({
      total: Type.Integer(),
      connected: Type.Integer(),
      states: Type.Array(Type.Object({ provisioningState: oneOf(states), count: Type.Integer() }), {
        maxItems: states.length,
      }),
    }),
  },
  { description: 'How many devices in reach there are.' },
);

/** GET /devices/{id}/connectivity and GET /devices/counts. */
export function connectivityRoutes(app: App, ctx: RegistryContext): void {
  const { access, config } = ctx;

  app.get(
    '/devices/:id/connectivity',
    {
      config: { right: ['read', 'device'], errors: ['notFound', 'deleted', 'forbidden'] },
      schema: {
        tags: ['Devices'],
        operationId: 'getDeviceConnectivity',
        summary: 'Read where and how a device connects, with commands that you can run',
        description: 'The commands have a place for the secret, which the service does not know.',
        params: idParams,
        querystring: connectivityQuery,
        response: { 200: connectivityAnswer },
      },
    },
    async ({ caller, params, query, hostname, protocol, host }) => {
      const device = demandLive(findReached(ctx, caller, 'devices', params.id));
      const broker = new URL(brokerUrl(ctx));
      // Without a public address, the name by which the caller has reached us is the best one that is known.
      const isNamed = config.mqttPublicUrl !== undefined || config.publicUrl !== undefined;
      const tls = broker.protocol === 'mqtts:';
      const categories = await categoriesOf(ctx, device.deviceTemplateId);
      const channels = [...access.channelsOf(device.deviceTemplateId).values()].map(
        ({ name, persistenceType, service }) => ({
          channel: name,
          topic: formatTopic(config.topicRoot, device.accountId, device.id, name),
          persistenceType,
          service,
          devicePublishes: !service || serviceChannel(name)?.handler !== undefined,
          categories: categories.get(name) ?? [],
        }),
      );
      const own = channels.filter(({ service }) => !service);
      const first = own.find(({ persistenceType }) => persistenceType === 'timeSeries') ?? own[0];
      const httpUrl = config.publicUrl ?? `${protocol}://${host}`;
      const message = {
        host: isNamed ? broker.hostname : hostname,
        port: Number(broker.port || (tls ? 8883 : 1883)),
        tls,
        url: httpUrl,
        clientId: device.id,
        username: device.id,
        secret: secretPlaceholder,
        topic: first?.topic ?? formatTopic(config.topicRoot, device.accountId, device.id, '_log'),
        payload: first ? ',temperature,21.5,' : 'Hello from the device',
      };
      return {
        connectivity: {
          host: message.host,
          port: message.port,
          tls,
          webSocketUrl: `${httpUrl.replace(/^http/, 'ws')}/mqtt`,
          httpUrl,
          clientId: device.id,
          username: device.id,
          topics: channels,
          lines: query.lines === false ? noLines : connectLines(message),
        },
      };
    },
  );
  countRoute(app, ctx);
}

/** How values of the channels of a device template are shown, by the names of the channels. */
async function categoriesOf({ registry }: RegistryContext, templateId: string): Promise<Map<string, Category[]>> {
  const channels = registry.query.selectFrom('channelTemplates').select(['name', 'categories']);
  const rows = await channels.where('entityId', '=', templateId).where('deleted', 'is', null).execute();
  return new Map(rows.map(({ name, categories }) => [name, JSON.parse(categories) as Category[]]));
}

function countRoute(app: App, ctx: RegistryContext): void {
  const { access } = ctx;
  app.get(
    '/devices/counts',
    {
      config: { right: ['subscribe', 'device'], errors: ['notFound', 'forbidden'], sends: ['ignored'] },
      schema: {
        tags: ['Devices'],
        operationId: 'countDevices',
        summary: 'Count devices by state',
        description: 'Counts only devices that the caller may read.',
        querystring: countsQuery,
        response: { 200: countsAnswer },
      },
    },
    async (request, reply) => {
      const { caller, query } = request;
      access.demandAccount(caller, query.accountId);
      nameIgnored(request, reply, countsQuery);
      const of = { accountId: query.accountId };
      const total = await countOf(ctx, caller, of);
      const connected = await countOf(ctx, caller, { ...of, connected: true });
      const counts = [];
      for (const provisioningState of states)
        counts.push({ provisioningState, count: await countOf(ctx, caller, { ...of, provisioningState }) });
      return { counts: { total, connected, states: counts } };
    },
  );
}

async function countOf(ctx: RegistryContext, caller: Caller, query: { accountId: string; [filter: string]: unknown }) {
  const { meta } = await list(ctx, caller, deviceListing, { ...query, pageSize: 1, results: false });
  return meta?.count ?? 0;
}
