/** The answer of an exchange, and of a renewal: the device, its credential, and where it connects. */
import { Type } from 'typebox';
import { Id, type Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Config } from '../../core/config.ts';
import { formatTopic } from '../../core/topics.ts';
import type { BrokerState } from '../../ports/broker-state.ts';
import type { EnrollmentAnswer } from '../../ports/enrollment.ts';
import { brokerUrl } from '../../registry/addresses.ts';

const port = Type.Optional(Type.Integer());
export const answerShape = Type.Object(
  {
    device: Type.Object({ id: Id, serialNumber: Type.String(), accountId: Id }),
    credential: Type.Object({
      username: Type.String({ description: 'The id of the device, for MQTT and for Basic.' }),
      secret: Type.Optional(Type.String({ description: 'Its password.' })),
      certificate: Type.Optional(Type.String({ description: 'PEM.' })),
      chain: Type.Optional(Type.String({ description: 'PEM; it begins with the issuing CA.' })),
      expires: Type.Optional(Type.String({ format: 'date-time' })),
    }),
    broker: Type.Object({
      host: Type.String(),
      ports: Type.Object({ mqtt: port, mqtts: port, http: port }, { description: 'Those that are open.' }),
      topicRoot: Type.String(),
    }),
    channels: Type.Record(Type.String(), Type.String(), { description: 'The topic of each channel, by its name.' }),
  },
  { description: 'The device, and the only answer with its new secret.' },
);

/** Where HTTP is, once it listens. */
export interface Serving {
  url: string | undefined;
}

export interface AnswerServices {
  access: Access;
  config: Config;
  broker: Pick<BrokerState, 'addresses'>;
  serving: Serving;
}

/** What a device is told with a new credential, of an exchange or of a renewal. */
export function answerFor(
  ctx: AnswerServices,
  {
    device,
    credential,
  }: {
    device: Pick<Row<'devices'>, 'id' | 'serialNumber' | 'accountId' | 'deviceTemplateId'>;
    credential: Omit<EnrollmentAnswer['credential'], 'username'>;
  },
): EnrollmentAnswer {
  const { access, config } = ctx;
  const { id, serialNumber, accountId, deviceTemplateId } = device;
  const channels = [...access.channelsOf(deviceTemplateId)].filter(([, { service }]) => !service);
  return {
    device: { id, serialNumber, accountId },
    credential: { username: id, ...credential },
    broker: { ...whereBroker(ctx), topicRoot: config.topicRoot },
    channels: Object.fromEntries(channels.map(([name]) => [name, formatTopic(config.topicRoot, accountId, id, name)])),
  };
}

/** The address for devices, and the ports that are open there. */
function whereBroker(ctx: AnswerServices): Pick<EnrollmentAnswer['broker'], 'host' | 'ports'> {
  const { config, broker, serving } = ctx;
  const url = new URL(brokerUrl(ctx));
  const { mqtt, mqtts } = broker.addresses;
  const own = { mqtt, ...(mqtts !== undefined && { mqtts }) };
  const scheme = url.protocol === 'mqtts:' ? 'mqtts' : 'mqtt';
  const usual = { mqtt: 1883, mqtts: 8883 };
  const ports = config.mqttPublicUrl ? { [scheme]: Number(url.port || usual[scheme]) } : own;
  const http = config.publicUrl ?? serving.url;
  return { host: url.hostname, ports: { ...ports, ...(http !== undefined && { http: httpPort(new URL(http)) }) } };
}

function httpPort({ port, protocol }: URL): number {
  return Number(port || (protocol === 'https:' ? 443 : 80));
}
