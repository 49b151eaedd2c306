/** What a client sends that wants to hear, speak for, or disturb somebody else. */
import {
  answerBytes,
  type ConnectFields,
  connectBytes,
  packetBytes,
  publishBytes,
  subscribeBytes,
  type Text,
  unsubscribeBytes,
} from './bytes.ts';

/** Whom it is about, as the attacker may have learned it. */
export interface Target {
  root: string;
  accountId: string;
  deviceId: string;
  clientId: string;
  /** Identities and entities of the target's account. */
  principals: string[];
}

export interface Attacker {
  name: string;
  accountId: string;
  login: { username: string; password: Text };
  /** A topic of its own, which it may use. */
  own: string;
}

/** One connection: what it logs in with, and what it sends afterwards. */
export interface Attack {
  title: string;
  connect: Partial<ConnectFields>;
  send: Buffer[];
}

const fullWidth = (text: string) => text.replace(/[!-~]/g, (c) => String.fromCharCode(c.charCodeAt(0) + 0xfee0));
const percent = (text: string) => text.replace(/[^/]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
const decomposed = 'A\u030A';
/** Bytes that are no UTF-8: overlong `/` and U+0000, an unpaired surrogate, one that is cut off. */
export const notUtf8 = [
  [0xc0, 0xaf],
  [0xc0, 0x80],
  [0xed, 0xa0, 0x80],
  [0xe2, 0x82],
].map((bytes) => Buffer.from(bytes));

/** Spellings of a topic of the target that are not the topic. */
export function lookalikes({ root, accountId, deviceId }: Target): string[] {
  const base = `${root}/${accountId}/d/${deviceId}`;
  return [
    `${base}/chat/`,
    `/${base}/chat`,
    `${base}//chat`,
    `${root}//${accountId}/d/${deviceId}/chat`,
    `${base}/chat/..`,
    `${base}/./chat`,
    `${base}/Chat`,
    `${base}/chat `,
    `${base.toUpperCase()}/chat`,
    `${root}/${accountId.toUpperCase()}/d/${deviceId}/chat`,
    `${root}/${accountId}/d/${deviceId.toUpperCase()}/chat`,
    `${root}/${accountId}/D/${deviceId}/chat`,
    `${root}/${percent(accountId)}/d/${deviceId}/chat`,
    `${percent(base)}/chat`,
    `${root}/${fullWidth(accountId)}/d/${deviceId}/chat`,
    `${root}/${accountId.replaceAll('a', decomposed)}\u200D/d/${deviceId}/chat`,
    `${root}/${accountId.replaceAll('-', '\u2010')}/d/${deviceId}/chat`,
    `\uFEFF${base}/chat`,
    `other/v1/${accountId}/d/${deviceId}/chat`,
    `${accountId}/d/${deviceId}/chat`,
    `$SYS/${base}/chat`,
    `$share/g/${base}/chat`,
    '__proto__/constructor',
  ];
}

const channels = ['chat', 'temperature', '_log', '_rejected', '_set/fields', '_updates/fields'];

export function foreignTopics({ root, accountId, deviceId }: Target, own: string): string[] {
  const exact = channels.map((channel) => `${root}/${accountId}/d/${deviceId}/${channel}`);
  // The target's device under the attacker's account, and the attacker's device under the target's.
  const [ownAccount, ownDevice] = own.slice(root.length + 1).split('/d/') as [string, string];
  return [...exact, `${root}/${ownAccount}/d/${deviceId}/chat`, `${root}/${accountId}/d/${ownDevice}`];
}

export function wildcards({ root, accountId, deviceId }: Target): string[] {
  return [
    ...['#', '+', '/#', '+/#', '+/+/#', '+/+/+/+/+/+', '+/+/+/d/+/#', `+/+/+/+/${deviceId}/+`],
    ...[`${root}/#`, `${root}/+/d/+/chat`, `${root}/+/d/${deviceId}/chat`, `${root}/+/+/${deviceId}/#`],
    ...[
      `${root}/${accountId}/#`,
      `${root}/${accountId}/d/#`,
      `${root}/${accountId}/d/+/chat`,
      `${root}/${accountId}/+`,
    ],
    ...[`${root}/${accountId}/d/${deviceId}/#`, `${root}/${accountId}/d/${deviceId}/+`],
    ...['$SYS/#', '$SYS/+/new/clients', '+/new/clients', '$SYS/+/new/subscribes', '$', '$/#', '$+', '$#'],
    ...['$share/g/#', `$share/g/${root}/${accountId}/d/${deviceId}/+`, '$share//#', '$share/+/#', '$queue/#'],
    ...[`$exclusive/${root}/#`, '$local/#', '__proto__/#', 'constructor', 'hasOwnProperty'],
  ];
}

/** Filters that no client may send. */
export function malformed({ root, accountId, deviceId }: Target): Text[] {
  const base = `${root}/${accountId}/d/${deviceId}`;
  return [
    ...['', 'a#', '#/a', '##', '+a', 'a+/b', `${base}+`, `${base}/ch+t`, `${base}/#/chat`, `${base}#`],
    ...['\0', `${base}/chat\0`, '#\0'],
    ...notUtf8.map((bytes) => Buffer.concat([Buffer.from(`${base}/`), bytes])),
    ...['x'.repeat(65_535), '+/'.repeat(32_767), '/'.repeat(65_535), `${'+/'.repeat(99)}#`, `${'+/'.repeat(200)}#`],
  ];
}

/** Connections of somebody whose credential is good, against a target that is none of its business. */
export function attacksOf({ own, accountId }: Attacker, target: Target): Attack[] {
  const { clientId, principals, deviceId } = target;
  const foreign = [...foreignTopics(target, own), ...lookalikes(target)];
  const filters = [own, ...wildcards(target), ...foreign];
  const privateIds = principals.map((principal) => `${target.accountId}/${principal}/${clientId}`);
  const stored = { clientId, flags: 0 };
  const inTurn = (make: (topic: string, id: number) => Buffer) => foreign.map((topic, n) => make(topic, n + 1));
  const attack = (title: string, connect: Partial<ConnectFields>, ...send: Buffer[]) => ({ title, connect, send });
  const login = connectBytes({ clientId, username: deviceId });
  return [
    attack('filters, one by one', {}, ...filters.map((filter, n) => subscribeBytes(n + 1, [filter], n % 3))),
    attack('filters, all in one packet', {}, subscribeBytes(1, filters, 2)),
    attack('a mixed SUBSCRIBE of a stored session', stored, subscribeBytes(1, filters, 1)),
    attack('what the stored session has kept', stored),
    attack('filters that come again', stored, subscribeBytes(1, filters.reverse(), 2), subscribeBytes(2, filters, 0)),
    attack('filters of others are given up', stored, unsubscribeBytes(1, filters)),
    attack('nothing is left', stored, unsubscribeBytes(2, filters), answerBytes(0x40, 1)),
    ...malformed(target).map((filter, n) => attack(`malformed filter ${n}`, stored, subscribeBytes(1, [own, filter]))),
    ...malformed(target).map((filter, n) =>
      attack(`malformed filter ${n} is given up`, stored, unsubscribeBytes(1, [filter])),
    ),

    attack('QoS 0 to others', {}, ...inTurn((topic) => publishBytes(topic, '66'))),
    attack('QoS 1 to others', {}, ...inTurn((topic, id) => publishBytes(topic, '66', 2, id))),
    attack('QoS 2 to others', stored, ...inTurn((topic, id) => publishBytes(topic, '66', 4, id))),
    attack('QoS 2 to others goes on', stored, ...inTurn((_, id) => answerBytes(0x62, id))),
    attack('retained messages for others', {}, ...inTurn((topic, id) => publishBytes(topic, 'forged', 3, id))),
    attack('retained messages of others are cleared', {}, ...inTurn((topic, id) => publishBytes(topic, '', 3, id))),
    attack('and with QoS 0', {}, ...inTurn((topic) => publishBytes(topic, '', 1))),
    attack('fields of others', {}, publishBytes(foreign[4] as string, '{"state":{"name":"forged"}}', 2)),
    ...['new/clients', 'disconnect/clients', 'heartbeat', 'birth', 'new/subscribes'].map((event) =>
      attack(`$SYS ${event}`, {}, ...privateIds.map((id) => publishBytes(`$SYS/x/${event}`, id, 2))),
    ),
    ...[...notUtf8, '\0', '#', '+', '', '/'.repeat(200), '/'.repeat(65_535)].map((topic, n) =>
      attack(`malformed topic ${n}`, {}, publishBytes(topic, 'x', 2)),
    ),

    attack('the packet id of another', stored, publishBytes(own, '1', 4, 9), publishBytes(own, '1', 12, 9)),
    attack('is released twice', stored, answerBytes(0x62, 9), answerBytes(0x62, 9), answerBytes(0x50, 9)),
    attack('acknowledgements of nothing', stored, ...[0x40, 0x50, 0x62, 0x70].map((first) => answerBytes(first, 5))),
    ...[
      publishBytes(own, '1', 2, 0),
      publishBytes(own, '1', 4, 0),
      subscribeBytes(0, ['#']),
      unsubscribeBytes(0, ['#']),
    ].map((packet, n) => attack(`packet id 0, ${n}`, {}, packet)),

    ...[...foreign, '', 'a/+', '#', '\0', `${own}\0`, '/'.repeat(200), ...notUtf8].map((topic, n) =>
      attack(`a will for another ${n}`, { will: { topic, payload: 'last word' }, flags: 0x2a }),
    ),
    attack('a will for another that clears', { will: { topic: foreign[0] as string, payload: '' }, flags: 0x2a }),
    attack('a huge will', { will: { topic: own, payload: 'x'.repeat(60_000) } }),
    attack('a will of QoS 3', { will: { topic: own, payload: '1' }, flags: 0x1a }),

    ...[...privateIds, ...principals, deviceId, `${accountId}/../${privateIds[0]}`, '__proto__', '#', '+/+/+'].flatMap(
      (id) =>
        [0, 2].map((flags) => attack(`client id ${id}, ${flags}`, { clientId: id, flags }, subscribeBytes(1, ['#']))),
    ),
    attack('CONNECT twice', {}, login),
    attack('CONNECT twice in one chunk', stored, login, login),
    ...protocolErrors(own).map((packet, n) => attack(`protocol error ${n}`, { clientId, flags: 2 }, packet)),
  ];
}

/** Packets that end the connection of anyone who sends them, or mean nothing. */
export function protocolErrors(own: string): Buffer[] {
  return [
    publishBytes(own, 'x', 6, 1),
    publishBytes(own, 'x', 8),
    subscribeBytes(1, ['#'], 1, 0x80),
    subscribeBytes(1, ['#'], 3),
    subscribeBytes(1, ['#'], 0xff),
    subscribeBytes(1, []),
    unsubscribeBytes(1, ['#'], 0xa0),
    unsubscribeBytes(1, []),
    answerBytes(0x60, 1),
    answerBytes(0x4f, 1),
    // Types 0 and 15, and what only a server sends.
    ...[0x00, 0xf0, 0x20, 0x90, 0xb0, 0xd0].map((first) => packetBytes(first, Buffer.from([0, 0]))),
    packetBytes(0xc1),
    packetBytes(0xe1),
    packetBytes(0xc0, Buffer.alloc(100)),
    Buffer.from([0x30, 0xff, 0xff, 0xff, 0xff, 1]),
    Buffer.from([0x32, 3, 0, 200, 65]),
    Buffer.from([0x82, 1, 0]),
    Buffer.from([0x30, 0]),
  ];
}

/** CONNECTs that must be refused: nobody has such credentials. */
export function impostures({ password }: Attacker['login'], target: Target, token: string): ConnectFields[] {
  const { clientId, principals, accountId, deviceId } = target;
  const forged = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${token.split('.')[1]}.`;
  const names = [
    ...principals,
    deviceId.toUpperCase(),
    ` ${deviceId}`,
    `${deviceId}\u0000`,
    `${accountId}/${deviceId}`,
  ];
  return [
    ...names.flatMap((username) => ['', 'x', password].map((secret) => ({ clientId, username, password: secret }))),
    { clientId },
    { clientId, username: deviceId },
    { clientId: deviceId, password },
    { clientId: deviceId, username: '', password },
    { clientId: `${accountId}/${deviceId}/${clientId}`, username: '', password: '' },
    ...[forged, `${token}x`, token.slice(0, -2), '', '..'].map((jwt) => ({
      clientId,
      username: 'Auth:JWT',
      password: jwt,
    })),
    ...['auth:jwt', 'Auth:JWT ', 'Auth:JWT\0'].map((username) => ({ clientId, username, password: token })),
    { clientId, username: deviceId, password: token },
    ...[1, 3, 0x82, 0xc3].map((flags) => ({ clientId, username: deviceId, password, flags })),
    ...[0, 2, 5, 6, 0x84, 255].map((level) => ({ clientId, username: deviceId, password, level })),
    ...['MQIsdp', 'mqtt', 'HTTP', ''].map((protocol) => ({ clientId, username: deviceId, password, protocol })),
    ...notUtf8.map((bytes) => ({ clientId: bytes, username: deviceId, password })),
    ...notUtf8.map((bytes) => ({ clientId, username: bytes, password: bytes })),
    { clientId: 'x'.repeat(65_535), username: deviceId, password },
    { clientId: '', username: deviceId, password, flags: 0 },
  ];
}
