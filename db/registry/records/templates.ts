/** Templates of devices, end-users, organizations and channels, and their custom fields. */
import { Type } from 'typebox';
import { common, Id, Nullable, OptionalText } from './columns.js';

/** Device, end-user and organization templates have one shape; `fields` holds values of device templates only. */
export const TemplateRecord = Type.Object({
  ...common,
  name: Type.String(),
  default: Type.Integer(),
  fields: Type.String(),
});

export const ChannelTemplateRecord = Type.Object({
  ...common,
  entityId: Id,
  entityType: Type.String(),
  name: Type.String(),
  streamBridgeDelivery: Type.Integer({ minimum: 0, maximum: 2 }),
  persistenceType: Type.String(),
  retentionDays: Nullable(Type.Integer()),
  payload: Type.String({ description: 'The form of payloads: src/messages/payload/payload.ts.' }),
});

/** A custom field. `templateId` is the account's id for fields of device templates themselves. */
export const CustomFieldRecord = Type.Object({
  ...common,
  kind: Type.String(),
  templateId: Id,
  name: Type.String(),
  fieldType: Type.String(),
  description: OptionalText,
  required: Type.Integer(),
  default: OptionalText,
});
