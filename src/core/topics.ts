import type { Right } from './rights.ts';

/** Channel topics, `<root>/<account>/d/<device>/<channel>`, and the table of service channels. Nothing else parses a channel topic. */

interface ServiceChannel {
  /** What others than the device need to publish on it, besides `publish` of devices; without it only the device may. */
  needs?: Right;
  /** The broker's handler of a message before its acknowledgement. Without one no client publishes here, unless it is private. */
  handler?: 'log' | 'fields' | 'report';
  /**
   * Whether every device template has it among its channels. Of the others, end-users hear none (`mayHearChannel` in
   * channels.ts).
   */
  listed: boolean;
  /** Whether the service sends work to devices on it. */
  isDownlink?: true;
  /** Whether what is said on it is between the service and one connection of the device: nobody else hears it, nothing keeps it. */
  isPrivate?: true;
}

/** The channels that every device has besides those of its template, by name. */
export const serviceChannels = {
  _log: { needs: ['create', 'logEntry'], handler: 'log', listed: true },
  _rejected: { listed: true },
  '_set/fields': { needs: ['update', 'device'], handler: 'fields', listed: true },
  '_updates/fields': { listed: true },
  _firmware: { listed: false, isDownlink: true },
  '_firmware/status': { handler: 'report', listed: false },
  _commands: { listed: false, isDownlink: true },
  _credentials: { listed: false, isPrivate: true },
  '_commands/replies': { handler: 'report', listed: false },
} as const satisfies Record<string, ServiceChannel>;

type Table = typeof serviceChannels;
export type ServiceChannelName = keyof Table;
/** Service channels with this property. */
type NamesWith<P> = { [K in ServiceChannelName]: Table[K] extends P ? K : never }[ServiceChannelName];
export type DownlinkChannel = NamesWith<{ isDownlink: true }>;
/** Service channels with a handler. */
export type HandledChannel = NamesWith<{ handler: string }>;

const entries = Object.entries(serviceChannels) as Array<[ServiceChannelName, ServiceChannel]>;

/** The service channel of this name, or undefined. */
export function serviceChannel(name: string): ServiceChannel | undefined {
  return Object.hasOwn(serviceChannels, name) ? serviceChannels[name as ServiceChannelName] : undefined;
}

export const serviceChannelNames = entries.map(([name]) => name);
export const downlinkChannels = entries.flatMap(([name, one]) => (one.isDownlink ? [name as DownlinkChannel] : []));
export const handledChannels = entries.flatMap(([name, one]) => (one.handler ? [name as HandledChannel] : []));

export interface ChannelTopic {
  accountId: string;
  deviceId: string;
  channel: string;
}

const uuid = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const deeper = serviceChannelNames.filter((name) => name.includes('/')).join('|');
const tail = new RegExp(`^/(${uuid})/d/(${uuid})/(${deeper}|[^/+#\\0]+)$`);

/**
 * The parts of a topic below `root`; undefined for anything else. Strict: exact root, lower-case ids, no wildcards,
 * and only service channels such as `_set/fields` hold a slash.
 */
export function parseTopic(root: string, topic: string): ChannelTopic | undefined {
  if (!topic.startsWith(root)) return undefined;
  const [, accountId, deviceId, channel] = tail.exec(topic.slice(root.length)) ?? [];
  return accountId && deviceId && channel ? { accountId, deviceId, channel } : undefined;
}

/** Ids of accounts and devices where they are in topics, filters and control topics, in any letter case. */
const anyCase = uuid.replaceAll('a-f', 'a-fA-F');
const idsInTopic = new RegExp(`(?<=/)${anyCase}(?=/(?:d/|#$|[+]/|cln$|svc$))|(?<=/d/)${anyCase}(?=/|$)`, 'g');

/** A topic or a filter with its ids as they are kept: in capitals they are the same ids. */
export function canonicalTopic(text: string): string {
  return /[A-F]/.test(text) ? text.replace(idsInTopic, (id) => id.toLowerCase()) : text;
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
