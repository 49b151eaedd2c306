/** The files that a flash tool reads. A serial number or a channel name holds any text, and none leaves its place. */
import { createHash } from 'node:crypto';
import { csvCell } from '../../core/formats/spreadsheets.ts';
import type { FlashFormat, Unit } from '../provisioning/unit.ts';
import { asObject, type FlashExtra } from './unit-object.ts';

export type { FlashExtra } from './unit-object.ts';

export interface FlashFile {
  /** Without a dot. */
  extension: string;
  content: string;
}

/** One value that the firmware gets: its name in the flat formats, and what it is. */
interface Value {
  name: string;
  value: string | number;
}

/** The content of a flash file, in the format of its flash tool. @throws Error for a broker that is no address. */
export function flashFile(format: FlashFormat, unit: Unit, extra: FlashExtra = {}): FlashFile {
  switch (format) {
    case 'esp-nvs-csv':
      return { extension: 'csv', content: nvsCsv(unit, extra) };
    case 'env':
      return { extension: 'env', content: shellVariables(unit, extra) };
    case 'c-header':
      return { extension: 'h', content: cHeader(unit, extra) };
    case 'json':
      return { extension: 'json', content: `${JSON.stringify(asObject(unit, extra), null, 2)}\n` };
  }
}

/** The values of flat formats, without the topics. */
function flatValues(unit: Unit, extra: FlashExtra): Value[] {
  const { broker, username, password, accountId, serialNumber, ca, certificate, privateKey } = asObject(unit, extra);
  const certificates = { CA_CERT: ca, CLIENT_CERT: certificate, CLIENT_KEY: privateKey };
  return [
    { name: 'BROKER_URI', value: broker.uri },
    { name: 'BROKER_HOST', value: broker.host },
    { name: 'BROKER_PORT', value: broker.port },
    { name: 'BROKER_TLS', value: broker.tls ? 1 : 0 },
    { name: 'USERNAME', value: username },
    { name: 'PASSWORD', value: password },
    { name: 'ACCOUNT_ID', value: accountId },
    { name: 'SERIAL_NUMBER', value: serialNumber },
    ...Object.entries(certificates).flatMap(([name, value]) => (value ? { name, value } : [])),
  ];
}

/** The same for every unit of a template: eight hexadecimal digits of the channel's name. */
function digest(channel: string): string {
  return createHash('sha256').update(channel).digest('hex').slice(0, 8);
}

/** The identifier of a channel: its name in capitals where only it can be meant, else with a digest of the name. */
function topicName(channel: string): string {
  const plain = channel.startsWith('_') ? channel.replace('/', '_') : channel;
  const text = plain.replace(/[^A-Za-z0-9_]/g, '_').toUpperCase();
  const isPlain = /^[a-z0-9_]{1,60}$/.test(plain) && !/_[0-9a-f]{8}$/.test(plain);
  return isPlain ? `TOPIC_${text}` : `TOPIC_${text.slice(0, 40)}_${digest(channel)}`;
}

function topicValues({ topics }: Unit): Value[] {
  return Object.entries(topics).map(([channel, value]) => ({ name: topicName(channel), value }));
}

/** For `set -a; . ./file`. The names begin with DEVICE_, so that they are no settings of the service or its command. */
function shellVariables(unit: Unit, extra: FlashExtra): string {
  const values = [...flatValues(unit, extra), ...topicValues(unit)];
  return values.map(({ name, value }) => `DEVICE_${name}='${`${value}`.replaceAll("'", `'\\''`)}'\n`).join('');
}

function cHeader(unit: Unit, extra: FlashExtra): string {
  const values = [...flatValues(unit, extra), ...topicValues(unit)];
  const lines = values.map(({ name, value }) => {
    const written = typeof value === 'number' ? `${value}` : cString(value);
    return `#define SLIPWAY_${name} ${written}\n`;
  });
  return `#ifndef SLIPWAY_UNIT_H\n#define SLIPWAY_UNIT_H\n\n${lines.join('')}\n#endif\n`;
}

/** A C string of UTF-8, a literal for each line. Three octal digits end by themselves; a bare ? may begin a trigraph. */
function cString(text: string): string {
  const literals = text.split(/(?<=\n)/).map((line) => {
    const characters = [...Buffer.from(line)].map((byte) => {
      if (byte === 0x0a) return '\\n';
      const isPlain = byte >= 0x20 && byte < 0x7f && !'"\\?'.includes(String.fromCharCode(byte));
      return isPlain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, '0')}`;
    });
    return `"${characters.join('')}"`;
  });
  return literals.length > 1 ? `\\\n  ${literals.join(' \\\n  ')}` : literals.join('');
}

/** Bytes of an NVS string with its NUL: the documentation says 4000, the generator fits 124 entries of 32 into a page. */
const maxNvsStringLength = 124 * 32;

/**
 * For Espressif's NVS partition generator. Texts that its strings would spoil are blobs that end with NUL: it counts characters
 * instead of bytes, reads CR LF as LF, and takes every line that begins with # for a comment.
 */
function nvsCsv(unit: Unit, extra: FlashExtra): string {
  const { broker, username, password, accountId, serialNumber, ca, certificate, privateKey } = asObject(unit, extra);
  const certificates = { ca_cert: ca, client_cert: certificate, client_key: privateKey };
  const rows = [
    ['key', 'type', 'encoding', 'value'],
    ['slipway', 'namespace', '', ''],
    nvsText('broker_uri', broker.uri),
    nvsText('broker_host', broker.host),
    ['broker_port', 'data', 'u16', `${broker.port}`],
    ['broker_tls', 'data', 'u8', broker.tls ? '1' : '0'],
    nvsText('username', username),
    nvsText('password', password),
    nvsText('account_id', accountId),
    nvsText('serial_number', serialNumber),
    ...Object.entries(certificates).flatMap(([key, value]) => (value ? [nvsText(key, value)] : [])),
    ['slipway_topics', 'namespace', '', ''],
    ...Object.entries(unit.topics).map(([channel, topic]) => nvsText(nvsKey(channel), topic)),
  ];
  return rows.map((row) => `${row.map((cell) => csvCell(cell)).join(',')}\n`).join('');
}

function nvsText(key: string, text: string): string[] {
  const isString = /^[\t\n\x20-\x7e]*$/.test(text) && !/^#/m.test(text) && text.length < maxNvsStringLength;
  if (isString) return [key, 'data', 'string', text];
  return [key, 'data', 'base64', Buffer.from(`${text}\0`).toString('base64')];
}

/** The key of a channel: its name where that is 1 to 15 safe characters, else its beginning and a digest. */
function nvsKey(channel: string): string {
  if (/^[A-Za-z0-9_/.-]{1,15}$/.test(channel)) return channel;
  return `${channel.replace(/[^A-Za-z0-9_.-]/g, '_').slice(0, 6)}~${digest(channel)}`;
}
