/** A channel template on the wire, and the channels of devices and device templates. */
import { Type } from 'typebox';
import { channelTemplateColumns } from '../../db/registry/records/templates.ts';
import type { Row } from '../../db/registry/records.ts';
import type { Channel } from '../core/channels.ts';
import { largest } from '../core/limits/table.ts';
import { serviceChannelNames } from '../core/topics.ts';
import { commonShape, showCommon, showing, shownProperties } from '../entity/columns.ts';

/** Channels of a device or a device template, at most. */
export const maxChannels = largest('channelTemplates') + serviceChannelNames.length;

/** Properties of a channel, also in the answers of devices and device templates. */
export const channelProperties = {
  flags: Type.Object({ deviceUpdatable: Type.Boolean(), timeSeries: Type.Boolean() }),
  streamBridgeDelivery: channelTemplateColumns.streamBridgeDelivery.stored,
  serviceTopic: Type.Boolean(),
  persistenceType: channelTemplateColumns.persistenceType.marks.shown,
};

export const channelTemplateShape = Type.Object({
  ...commonShape,
  ...shownProperties(channelTemplateColumns),
  ...channelProperties,
});
export function showChannelProperties({
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

const show = showing(channelTemplateColumns);

export function showChannelTemplate(row: Row<'channelTemplates'>) {
  const properties = showChannelProperties({ ...row, service: row.name.startsWith('_') });
  return { ...showCommon(row), ...show(row), ...properties };
}
