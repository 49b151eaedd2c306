/** How each kind looks on the wire: its schema, and the function that shows a stored record so. */

import { type TProperties, Type } from 'typebox';
import { DateText, Id, Nullable, type Row } from '../../db/registry/records.js';
import type { Access, Channel } from '../access.js';
import type { Config } from '../config.js';
import type { Fields } from '../entity/fields.js';
import { oneOf } from '../entity/listing.js';
import { builtInFields, type Field, type FieldKind, showFields } from '../entity/values.js';
import { formatVersion } from '../entity/verbs.js';
import { invitationSent } from '../identity/invitations.js';
import { type PayloadForm, payloadForms } from '../messages/payload/payload.js';
import { formatTopic } from '../topics.js';

const text = Nullable(Type.String());
const id = Nullable(Id);
const date = Nullable(DateText);

/** Schemas of the fields common to every entity. */
export const commonShape = {
  id: Id,
  accountId: Id,
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.String({ description: 'Send it in the etag header on update, delete and recover.' }),
  deleted: Type.Optional(DateText),
};

type CommonRow = Pick<
  Row<'devices'>,
  'id' | 'accountId' | 'created' | 'createdById' | 'lastModified' | 'lastModifiedById' | 'version' | 'deleted'
>;

type Stamped = 'id' | 'accountId' | 'created' | 'createdById' | 'lastModified' | 'lastModifiedById' | 'version';

export function showCommon(row: CommonRow) {
  const { accountId, created, createdById, lastModified, lastModifiedById, version, deleted } = row;
  const shown: { deleted?: string } & Record<Stamped, string> = {
    id: row.id,
    accountId,
    created,
    createdById,
    lastModified,
    lastModifiedById,
    version: formatVersion(version),
  };
  if (deleted !== null) shown.deleted = deleted;
  return shown;
}

/** Built-in custom fields as properties of a response: null by default. Those of the template are next to them. */
function fieldShapes(kind: FieldKind): TProperties {
  return Object.fromEntries(builtInFields[kind].map(({ name }) => [name, text]));
}

/** The types of built-in custom fields as schemas; all of them are text. `checkValue` decides. */
const fieldSchemas: Partial<Record<Field['type'], object>> = {
  countryCode: { maxLength: 2 },
  datetime: { maxLength: 40, description: 'An ISO 8601 date.' },
  isoCountry: { maxLength: 6, description: 'An ISO 3166 code, such as US or US-MA.' },
  name: { minLength: 5, maxLength: 100 },
  personName: { minLength: 1, maxLength: 100 },
  postalCode: { maxLength: 10 },
  string: { maxLength: 255 },
  territory: { maxLength: 2 },
  text: { maxLength: 1000 },
};

/** Built-in custom fields as properties of a body. */
export function fieldBody(kind: FieldKind): TProperties {
  return Object.fromEntries(
    builtInFields[kind].map(({ name, type }) => {
      const schema = { ...fieldSchemas[type], type: ['string', 'null'] };
      return [name, Type.Optional(Type.Unsafe<string | null>(schema))];
    }),
  );
}

/** The data for showing an entity. */
export type ShowContext = { access: Access; config: Config; fields: Fields };

// Accounts

export function showAccount({ id: accountId, name, created }: Row<'accounts'>) {
  return { id: accountId, name, created };
}

// Templates

const flagsShape = Type.Object({ deviceUpdatable: Type.Boolean(), timeSeries: Type.Boolean() });

const channelProperties = {
  flags: flagsShape,
  streamBridgeDelivery: Type.Integer({ minimum: 0, maximum: 2 }),
  serviceTopic: Type.Boolean(),
  persistenceType: oneOf<string>(['simple', 'timeSeries']),
};

const templateProperties = {
  ...commonShape,
  name: Type.String(),
  default: oneOf<string>(['true', 'false'], { description: 'A text, not a boolean.' }),
};

const payloadShape = oneOf(payloadForms, { description: 'The form of payloads.' });

export const deviceTemplateShape = Type.Object({
  ...templateProperties,
  ...fieldShapes('deviceTemplates'),
  channelTemplates: Type.Array(
    Type.Object({ id: Id, name: Type.String(), ...channelProperties, payload: payloadShape }),
  ),
  deviceCount: Type.Optional(Type.Integer()),
  deviceFieldCount: Type.Optional(Type.Integer()),
});

export const endUserTemplateShape = Type.Object({
  ...templateProperties,
  endUserCount: Type.Optional(Type.Integer()),
  endUserFieldCount: Type.Optional(Type.Integer()),
});

export const organizationTemplateShape = Type.Object({
  ...templateProperties,
  organizationCount: Type.Optional(Type.Integer()),
  organizationFieldCount: Type.Optional(Type.Integer()),
});

export function showTemplate(row: Row<'endUserTemplates'>) {
  return { ...showCommon(row), name: row.name, default: row.default === 1 ? 'true' : 'false' };
}

export function showDeviceTemplate({ access, fields }: ShowContext, row: Row<'deviceTemplates'>) {
  const channels = [...access.channelsOf(row.id).values()];
  return {
    ...showTemplate(row),
    ...showFields(fields.of('deviceTemplates', row.accountId), row.fields),
    channelTemplates: channels.map((channel) => ({
      id: channel.id,
      name: channel.name,
      ...showChannelProperties(channel),
      payload: channel.payload as PayloadForm,
    })),
  };
}

// Channel templates

export const channelTemplateShape = Type.Object({
  ...commonShape,
  entityId: Id,
  entityType: oneOf<string>(['deviceTemplate']),
  name: Type.String(),
  ...channelProperties,
  retentionDays: Nullable(
    Type.Integer({ description: 'How long points are kept; 0 is forever, null as long as the account says.' }),
  ),
  payload: payloadShape,
});

function showChannelProperties({
  persistenceType,
  streamBridgeDelivery,
  service,
}: Pick<Channel, 'persistenceType' | 'streamBridgeDelivery' | 'service'>) {
  return {
    flags: { deviceUpdatable: false, timeSeries: persistenceType === 'timeSeries' },
    streamBridgeDelivery,
    serviceTopic: service,
    persistenceType,
  };
}

export function showChannelTemplate(row: Row<'channelTemplates'>) {
  return {
    ...showCommon(row),
    entityId: row.entityId,
    entityType: row.entityType,
    name: row.name,
    ...showChannelProperties({ ...row, service: row.name.startsWith('_') }),
    retentionDays: row.retentionDays,
    payload: row.payload as PayloadForm,
  };
}

// Organizations and end-users

export const endUserShape = Type.Object({
  ...commonShape,
  endUserTemplateId: Id,
  organizationId: Id,
  userId: Nullable(Type.String({ ...Id, description: 'The identity that logs in; null without a person.' })),
  invitationSent,
  ...fieldShapes('endUsers'),
});

export const organizationShape = Type.Object({
  ...commonShape,
  organizationTemplateId: Id,
  parentId: id,
  name: Type.String(),
  ...fieldShapes('organizations'),
  deviceCount: Type.Optional(Type.Integer()),
  endUserCount: Type.Optional(Type.Integer()),
  childCount: Type.Optional(Type.Integer()),
  defaultEndUser: Type.Optional(endUserShape),
});

export function showOrganization({ fields }: ShowContext, row: Row<'organizations'>) {
  const { organizationTemplateId, parentId, name } = row;
  const custom = showFields(fields.of('organizations', organizationTemplateId), row.fields);
  return Object.assign(showCommon(row), { organizationTemplateId, parentId, name }, custom);
}

export function showEndUser({ fields }: ShowContext, row: Row<'endUsers'>) {
  const { endUserTemplateId, organizationId, userId } = row;
  const custom = showFields(fields.of('endUsers', endUserTemplateId), row.fields);
  return Object.assign(showCommon(row), { endUserTemplateId, organizationId, userId }, custom);
}

// Devices

export const deviceShape = Type.Object({
  ...commonShape,
  deviceTemplateId: Id,
  organizationId: id,
  serialNumber: Type.String(),
  provisioningState: oneOf<string>(['defined', 'activated', 'associated', 'reserved']),
  firmwareVersion: text,
  latitude: text,
  longitude: text,
  connected: Type.Boolean(),
  lastConnected: date,
  externalIp: text,
  geoIpLatitude: text,
  geoIpLongitude: text,
  reverseDns: text,
  ...fieldShapes('devices'),
  channels: Type.Array(
    Type.Object({
      channelTemplateId: Id,
      channelTemplateName: Type.String(),
      channel: Type.String({ description: 'The topic.' }),
      ...channelProperties,
    }),
  ),
});

/** The content of `_updates/fields` for a device. */
export function showDeviceState({ fields }: Pick<ShowContext, 'fields'>, row: Row<'devices'>) {
  const state = {
    organizationId: row.organizationId,
    serialNumber: row.serialNumber,
    provisioningState: row.provisioningState,
    firmwareVersion: row.firmwareVersion,
    latitude: row.latitude,
    longitude: row.longitude,
    connected: row.connected === 1,
    lastConnected: row.lastConnected,
    externalIp: row.externalIp,
    geoIpLatitude: row.geoIpLatitude,
    geoIpLongitude: row.geoIpLongitude,
    reverseDns: row.reverseDns,
  };
  return Object.assign(state, showFields(fields.of('devices', row.deviceTemplateId), row.fields));
}

/** Assigned and not spread: into so many properties that takes ten times as long, and a page shows a hundred devices. */
export function showDevice(ctx: ShowContext, row: Row<'devices'>) {
  const { access, config } = ctx;
  const { id, accountId, deviceTemplateId } = row;
  const channels = [...access.channelsOf(deviceTemplateId).values()].map((channel) =>
    Object.assign(
      {
        channelTemplateId: channel.id,
        channelTemplateName: channel.name,
        channel: formatTopic(config.topicRoot, accountId, id, channel.name),
      },
      showChannelProperties(channel),
    ),
  );
  return Object.assign(showCommon(row), { deviceTemplateId }, showDeviceState(ctx, row), { channels });
}
