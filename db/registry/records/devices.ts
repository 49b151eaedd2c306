/** Devices, and what the service notes about them. */
import { Type } from 'typebox';
import { common, DateText, Id, Nullable, OptionalDate, OptionalId, OptionalText } from './columns.js';

/** `replaced`: when its hardware was replaced last; certificates that CAs have issued before count no more. */
export const DeviceRecord = Type.Object({
  ...common,
  deviceTemplateId: Id,
  organizationId: OptionalId,
  serialNumber: Type.String(),
  provisioningState: Type.String(),
  firmwareVersion: OptionalText,
  latitude: OptionalText,
  longitude: OptionalText,
  connected: Type.Integer(),
  lastConnected: OptionalDate,
  externalIp: OptionalText,
  geoIpLatitude: OptionalText,
  geoIpLongitude: OptionalText,
  reverseDns: OptionalText,
  replaced: OptionalDate,
  fields: Type.String(),
});

/**
 * Broker credentials, in a table of their own. `entityId` is the broker username. A connection made with an older
 * `generation` is closed, except that the previous one stays valid until `previousUntil` (`graceSeconds`).
 */
export const CredentialRecord = Type.Object({
  id: Id,
  accountId: Id,
  entityId: Id,
  entityType: Type.String(),
  secretHash: Type.String(),
  generation: Type.Integer(),
  created: DateText,
  createdById: Type.String(),
  lastModified: DateText,
  lastModifiedById: Type.String(),
  version: Type.Integer(),
  previousHash: OptionalText,
  previousGeneration: Nullable(Type.Integer()),
  previousUntil: OptionalDate,
});

/** When a device has published first since it was provisioned. */
export const PublicationRecord = Type.Object({ deviceId: Id, time: DateText });

/** One code per device; the device's former code is gone. */
export const AssociationCodeRecord = Type.Object({
  deviceId: Id,
  accountId: Id,
  codeHash: Type.String(),
  created: DateText,
  createdById: Type.String(),
});

/**
 * Why something of a device was refused. The principal is who was refused, with whose address and client
 * id: the device, or a user or an application that spoke to it; null for a CONNECT that proved nothing.
 */
export const RefusalRecord = Type.Object({
  accountId: Id,
  deviceId: Id,
  time: DateText,
  action: Type.String(),
  topic: OptionalText,
  reason: Type.String(),
  code: Type.Integer(),
  address: OptionalText,
  clientId: OptionalText,
  principalType: OptionalText,
  principalId: OptionalText,
});

/** How many live devices of an account are alike in what the lists filter by; kept by triggers, never 0. */
export const DeviceCountRecord = Type.Object({
  accountId: Id,
  deviceTemplateId: Id,
  provisioningState: Type.String(),
  connected: Type.Integer(),
  count: Type.Integer(),
});

/** The same for each organization; '' is outside of every one. */
export const PlacedDeviceCountRecord = Type.Object({ ...DeviceCountRecord.properties, organizationId: Type.String() });

/** How many live devices of an account contain a folded text in a column: texts asked for and found often, some of them. */
export const DeviceTextCountRecord = Type.Object({
  accountId: Id,
  column: Type.String(),
  pattern: Type.String(),
  count: Type.Integer(),
});
