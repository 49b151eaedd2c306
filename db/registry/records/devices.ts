/** Devices, and what the service notes about them. */
import { Type } from 'typebox';
import {
  column,
  DateText,
  degrees,
  flag,
  hidden,
  Id,
  Nullable,
  OptionalDate,
  OptionalId,
  OptionalText,
  oneOf,
} from './columns.ts';

export const provisioningStates = ['defined', 'activated', 'associated', 'reserved'] as const;

const offlineShown = Type.Unsafe<string | null>({
  ...OptionalDate,
  description: 'When its last connection ended; null while it is connected, and before it first was.',
});

const possessionShown = Type.Unsafe<string | null>({
  ...OptionalDate,
  description:
    'When the present possession began: end-users see what the device has done since then. Null is from its beginning.',
});

/**
 * `possession` counts; `possessionFirst` is the first one that its people see; `left…` is where it was before it was in no
 * organization. `silent`: connected, without a message for too long; `usualInterval`: seconds between messages (broker/silence.ts).
 */
export const deviceColumns = {
  deviceTemplateId: column(Id, {
    create: 'optional',
    body: Type.String(),
    filter: 'exact',
    sort: true,
    keeps: 'deviceTemplates',
  }),
  organizationId: column(OptionalId, {
    create: 'optional',
    change: true,
    body: OptionalText,
    filter: 'reference',
    sort: true,
    keeps: 'organizations',
  }),
  serialNumber: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: { minLength: 1, maxLength: 255 },
    form: 'serialNumber',
    filter: 'partial',
    sort: 'default',
  }),
  provisioningState: column(Type.String(), { shown: oneOf<string>(provisioningStates), filter: 'exact', sort: true }),
  firmwareVersion: column(OptionalText, {
    create: 'optional',
    change: true,
    bounds: { maxLength: 255 },
    filter: 'partial',
    sort: true,
  }),
  firmwareVersionTime: column(OptionalDate, {
    shown: Nullable({
      ...DateText,
      description: 'When firmwareVersion was said or set as it is; null where that is not known.',
    }),
  }),
  firmwareVersionSource: column(OptionalText, {
    shown: Nullable(
      Type.String({
        description:
          'Who says firmwareVersion: `device`, the device itself, or `api`, somebody who has set it; null where that is not known.',
      }),
    ),
  }),
  latitude: degrees('latitude', { create: 'optional', change: true }),
  longitude: degrees('longitude', { create: 'optional', change: true }),
  connected: flag({ filter: 'flag' }),
  lastConnected: column(OptionalDate, { filter: 'date' }),
  externalIp: column(OptionalText, { create: 'optional', change: true, bounds: { maxLength: 255 }, filter: 'exact' }),
  geoIpLatitude: column(OptionalText, { filter: 'latitude' }),
  geoIpLongitude: column(OptionalText, { filter: 'longitude' }),
  reverseDns: column(OptionalText, { create: 'optional', change: true, bounds: { maxLength: 255 }, filter: 'exact' }),
  offlineSince: column(OptionalDate, { filter: 'since', shown: offlineShown }),
  silent: flag({ filter: 'flag' }),
  usualInterval: hidden(Nullable(Type.Integer())),
  replaced: hidden(OptionalDate),
  possession: hidden(Type.Integer()),
  possessionFirst: hidden(Type.Integer()),
  possessionSince: column(OptionalDate, { shown: possessionShown }),
  leftTree: hidden(OptionalId),
  leftFirst: hidden(Nullable(Type.Integer())),
  leftSince: hidden(OptionalDate),
  fields: hidden(Type.String()),
};

/** The columns that a connection writes, without a new version: they are in the table `devicePresence`. */
export const presenceNames = [
  'connected',
  'lastConnected',
  'externalIp',
  'geoIpLatitude',
  'geoIpLongitude',
  'reverseDns',
  'offlineSince',
  'silent',
  'usualInterval',
] as const;

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

/** `label` counts until another takes its place. With `giveAway` an owner gives the device away; it counts once, and `expires`. */
export const codeKinds = ['label', 'giveAway'] as const;

/** A device has one code of each kind. `keepHistory`: who claims with it sees what the device has done. */
export const AssociationCodeRecord = Type.Object({
  deviceId: Id,
  kind: oneOf(codeKinds),
  accountId: Id,
  codeHash: Type.String(),
  created: DateText,
  createdById: Type.String(),
  keepHistory: Type.Integer(),
  expires: OptionalDate,
});

/**
 * Why something of a device was refused. The principal is who was refused, with whose address and client
 * id: the device, or a user or an application that spoke to it; null for a CONNECT that proved nothing. `cause` is for programs.
 */
export const RefusalRecord = Type.Object({
  accountId: Id,
  deviceId: Id,
  time: DateText,
  action: Type.String(),
  topic: OptionalText,
  reason: Type.String(),
  cause: OptionalText,
  code: Type.Integer(),
  address: OptionalText,
  clientId: OptionalText,
  principalType: OptionalText,
  principalId: OptionalText,
});

/** A request for support that is open. `log` and `refusals` are JSON: what had happened to the device in the day before. */
export const SupportRequestRecord = Type.Object({
  id: Id,
  accountId: Id,
  deviceId: Id,
  created: DateText,
  createdById: Type.String(),
  message: OptionalText,
  log: Type.String(),
  refusals: Type.String(),
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

/** How many live devices of an account have a firmware version, of each product and in each state; kept by triggers, never 0. */
export const FirmwareVersionCountRecord = Type.Object({
  accountId: Id,
  deviceTemplateId: Id,
  provisioningState: Type.String(),
  firmwareVersion: Type.String(),
  count: Type.Integer(),
});
