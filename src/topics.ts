/** Channel topics, `<root>/<account>/d/<device>/<channel>`. Nothing else parses one. */

export interface ChannelTopic {
  accountId: string;
  deviceId: string;
  channel: string;
}

const tail =
  /^\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/d\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/(_set\/fields|_updates\/fields|_firmware\/status|_commands\/replies|[^/+#\0]+)$/;

/**
 * The parts of a topic below `root`; undefined for anything else. Strict: exact root, lower-case ids, no wildcards,
 * and only service channels such as `_set/fields` hold a slash.
 */
export function parseTopic(root: string, topic: string): ChannelTopic | undefined {
  if (!topic.startsWith(root)) return undefined;
  const [, accountId, deviceId, channel] = tail.exec(topic.slice(root.length)) ?? [];
  return accountId && deviceId && channel ? { accountId, deviceId, channel } : undefined;
}

/** The topic of a channel; parseTopic gives the parts back. */
export function formatTopic(root: string, accountId: string, deviceId: string, channel: string): string {
  return `${root}/${accountId}/d/${deviceId}/${channel}`;
}

/**
 * A control topic of a device, `<control root>/<device id>/cln` (service to device) or `…/svc` (device to service). The
 * device is its only client.
 */
export function controlTopic(controlRoot: string, deviceId: string, direction: 'cln' | 'svc'): string {
  return `${controlRoot}/${deviceId}/${direction}`;
}
