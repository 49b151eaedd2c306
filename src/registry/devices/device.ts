/** A device on the wire: its answers, its bodies, its list and `_updates/fields`. */
import { Type } from 'typebox';
import { deviceColumns } from '../../../db/registry/records/devices.ts';
import { Id, type Row } from '../../../db/registry/records.ts';
import type { Access } from '../../core/access.ts';
import type { Caller } from '../../core/caller.ts';
import type { Config } from '../../core/config.ts';
import type { HistoryWindow } from '../../core/history-window.ts';
import { formatTopic } from '../../core/topics.ts';
import {
  changeProperties,
  commonShape,
  createProperties,
  listingOf,
  showCommon,
  showing,
  shownProperties,
  without,
} from '../../entity/columns.ts';
import { type Fields, fieldBody, fieldShapes } from '../../entity/fields.ts';
import { showFields } from '../../entity/values.ts';
import { channelProperties, maxChannels, showChannelProperties } from '../channel.ts';
import { searchDevices } from './search.ts';
import { valuesShape } from './values.ts';

/** The data for showing a device. */
export type ShowContext = { access: Access; config: Config; fields: Fields };

export const deviceShape = Type.Object({
  ...commonShape,
  ...shownProperties(deviceColumns),
  ...fieldShapes('devices'),
  channels: Type.Array(
    Type.Object({
      channelTemplateId: Id,
      channelTemplateName: Type.String(),
      channel: Type.String({ description: 'The topic.' }),
      ...channelProperties,
    }),
    { maxItems: maxChannels },
  ),
  values: valuesShape,
});

export const createBody = Type.Object({
  accountId: Type.String(),
  ...createProperties(deviceColumns),
  ...fieldBody('devices'),
});
/** Of whatever moves a device. */
export const keepHistory = Type.Optional(
  Type.Boolean({
    default: false,
    description:
      'Of a device that leaves the tree of its top-level organization: whether its next people see what it has done. For callers of the whole account.',
  }),
);
export const updateBody = Type.Object({ ...changeProperties(deviceColumns), keepHistory, ...fieldBody('devices') });

/** The columns that a body sets, without the place, which has its own rules. */
export const settable = without(deviceColumns, ['deviceTemplateId', 'organizationId']);
/** Fields of a new device without its place; rows of provisioning jobs are checked against the same. */
export const newDeviceShape = Type.Object({ ...createProperties(settable), ...fieldBody('devices') });
/** The body of `state` on `_set/fields`: what PUT may set, but not the place. */
export const stateShape = Type.Object({ ...changeProperties(settable), ...fieldBody('devices') });

export const deviceListing = listingOf('devices', deviceColumns, {
  reach: 'organizationId',
  below: true,
  expands: { name: 'device-template', table: 'deviceTemplates', column: 'deviceTemplateId' },
  search: searchDevices,
});

/** Who has said the version, and when, is no state: a device need not hear it. */
const showState = showing(without(deviceColumns, ['deviceTemplateId', 'firmwareVersionTime', 'firmwareVersionSource']));

/** The content of `_updates/fields` for a device. */
export function showDeviceState({ fields }: Pick<ShowContext, 'fields'>, row: Row<'devices'>, window: HistoryWindow) {
  const { lastConnected } = row;
  const shown = showState(row);
  if (lastConnected !== null && !window.sees(lastConnected)) Object.assign(shown, notConnected);
  return Object.assign(shown, showFields(fields.of('devices', row.deviceTemplateId), row.fields));
}

/** What people see of a device that has not connected since it is theirs. */
const notConnected = { lastConnected: null, offlineSince: null };

/** Assigned and not spread: into so many properties that takes ten times as long, and a page shows a hundred devices. */
export function showDevice(ctx: ShowContext, caller: Caller, row: Row<'devices'>) {
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
  const window = access.historyWindowOf(caller, row);
  const { firmwareVersionTime: said, firmwareVersionSource } = row;
  return Object.assign(showCommon(row), { deviceTemplateId }, showDeviceState(ctx, row, window), {
    firmwareVersionTime: said !== null && window.sees(said) ? said : null,
    firmwareVersionSource,
    channels,
  });
}
