/** Topic filters: whether one is well formed, what it matches, and whether it can match anything in a caller's reach. */
import type { Access } from '../src/core/access.ts';
import type { Caller } from '../src/core/caller.ts';
import { mayHearChannel } from '../src/core/channels.ts';
import { serviceChannel, serviceChannelNames } from '../src/core/topics.ts';

/** U+0000 ends a connection [MQTT-1.5.3-2]. */
export function hasForbiddenCharacter(text: string): boolean {
  return text.includes('\0');
}

/** Whether wildcards stand alone in their level, and `#` last [MQTT-4.7.1-2, MQTT-4.7.1-3]. */
export function isWellFormed(filter: string): boolean {
  if (filter === '' || hasForbiddenCharacter(filter)) return false;
  const levels = filter.split('/');
  return levels.every((level, place) => {
    if (level === '#') return place === levels.length - 1;
    return level === '+' || !(level.includes('#') || level.includes('+'));
  });
}

const sharePrefix = '$share/';
/** Characters of a share name. */
const maxShareNameLength = 100;

export function isShared(filter: string): boolean {
  return filter.startsWith(sharePrefix);
}

/** The share name and the filter of a shared subscription; undefined when it is malformed [MQTT-4.8.2-1, MQTT-4.8.2-2]. */
export function parseShared(shared: string): { name: string; filter: string } | undefined {
  const end = shared.indexOf('/', sharePrefix.length);
  if (!isShared(shared) || end === -1) return undefined;
  const [name, filter] = [shared.slice(sharePrefix.length, end), shared.slice(end + 1)];
  if (name === '' || /[+#]/.test(name) || [...name].length > maxShareNameLength) return undefined;
  return isWellFormed(filter) ? { name, filter } : undefined;
}

/** The filter by which messages are found: that of a shared subscription is behind its name. */
export function matchedFilter(filter: string): string {
  return isShared(filter) ? (parseShared(filter)?.filter ?? filter) : filter;
}

const codes = { '#': 35, '+': 43, '/': 47 } as const;

/** Whether a topic matches a well-formed filter. It cuts neither into levels: a client may have hundreds of filters. */
export function matches(filter: string, topic: string): boolean {
  let at = 0;
  for (let place = 0; place < filter.length; place += 1) {
    const character = filter.charCodeAt(place);
    if (character === codes['#']) return true;
    if (character === codes['+']) while (at < topic.length && topic.charCodeAt(at) !== codes['/']) at += 1;
    else if (at === topic.length) return place === filter.length - 2 && filter.endsWith('/#');
    else if (character === topic.charCodeAt(at)) at += 1;
    else return false;
  }
  return at === topic.length;
}

/**
 * Whether a well-formed filter below the topic root can match a topic in the caller's reach. With a wildcard in the device's level
 * the shape decides: reach is decided again for every delivery.
 */
export function canMatch(root: string, access: Access, caller: Caller, filter: string): boolean {
  if (!access.may(caller, 'subscribe', 'device')) return false;
  const rest = afterPrefix(filter.split('/'), [...root.split('/'), caller.accountId, 'd']);
  if (rest === undefined) return false;
  if (rest === 'everything') return true;
  const [device, ...channel] = rest;
  if (device === '#') return true;
  if (device === undefined || channel.length === 0) return false;
  if (device === '+' && caller.kind !== 'device') return couldBeChannel(caller, channel);
  const placement = access.reachableDevice(caller, device === '+' ? caller.id : device, 'subscribe');
  if (!placement) return false;
  for (const name of access.channelNamesOf(placement.deviceTemplateId))
    if (matchesLevels(channel, name.split('/')) && access.mayHear(caller, placement.id, name)) return true;
  return false;
}

/** Whether a filter can match the topic of any channel, for any caller and any devices. */
export function couldMatchChannel(root: string, filter: string): boolean {
  const levels = filter.split('/');
  const rootLevels = root.split('/');
  // The account's level may hold anything.
  const account = levels[rootLevels.length];
  const rest = afterPrefix(levels, [...rootLevels, account === '#' || account === undefined ? '+' : account, 'd']);
  if (rest === undefined || rest === 'everything') return rest === 'everything';
  return rest[0] === '#' || rest.length > 1;
}

/** The rest of the filter after these levels; `everything` if it ended in `#` before. */
function afterPrefix(filter: string[], prefix: string[]): string[] | 'everything' | undefined {
  for (const [place, level] of prefix.entries()) {
    if (filter[place] === '#') return 'everything';
    if (filter[place] !== '+' && filter[place] !== level) return undefined;
  }
  return filter.slice(prefix.length);
}

/** Characters of the name of a channel. */
const maxChannelNameLength = 100;

/** Whether these levels can match the name of a channel that the caller may hear on some device. */
function couldBeChannel(caller: Caller, levels: string[]): boolean {
  const [first = ''] = levels;
  if (first.length > maxChannelNameLength) return false;
  // Channels of a template have names of one level, and never that of a service channel.
  if (!serviceChannel(first) && matchesLevels(levels, [first])) return true;
  return serviceChannelNames.some((name) => mayHearChannel(caller, name) && matchesLevels(levels, name.split('/')));
}

function matchesLevels(filter: string[], topic: string[]): boolean {
  for (const [place, level] of filter.entries()) {
    if (level === '#') return true;
    if (place >= topic.length || (level !== '+' && level !== topic[place])) return false;
  }
  return filter.length === topic.length;
}
