/** The three forms in which a message reaches a distributed log: `json`, `raw` and `envelope` (docs/bridges.md). */
import { createHash } from 'node:crypto';
import { type BridgedMessage, type Form, showMessage } from './target.ts';

/** A message as it is stored in a log. Names of headers are lower case; targets without headers send the value alone. */
export interface LogRecord {
  value: Buffer;
  headers: Record<string, string>;
}

/** @throws RangeError if a part of an envelope is longer than its length field can say. */
export function toRecord(form: Form, message: BridgedMessage): LogRecord {
  const own = propertyHeaders(message);
  if (form === 'raw') return { value: bytesOf(message.payload), headers: { ...headersOf(message), ...own } };
  if (form === 'envelope') return { value: envelope(message), headers: {} };
  return { value: Buffer.from(JSON.stringify(showMessage(message))), headers: own };
}

function bytesOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** The fields that `raw` puts into headers. */
function headersOf(message: BridgedMessage): Record<string, string> {
  const { id, topic, accountId, deviceId, organizationId, deviceTemplateId, channel, qos, time, test } = message;
  return {
    'slipway-id': id,
    'slipway-topic': topic,
    'slipway-account': accountId,
    'slipway-device': deviceId,
    ...(organizationId !== null && { 'slipway-organization': organizationId }),
    'slipway-template': deviceTemplateId,
    'slipway-channel': channel,
    'slipway-qos': String(qos),
    'slipway-time': new Date(time).toISOString(),
    ...(test && { 'slipway-test': 'true' }),
  };
}

/** Properties that an MQTT 5 client sent along; user properties as JSON, because a name may stand twice. */
function propertyHeaders({ properties = {} }: BridgedMessage): Record<string, string> {
  const { contentType, responseTopic, correlationData, userProperties, messageExpiry } = properties;
  const named = {
    'slipway-content-type': contentType,
    'slipway-response-topic': responseTopic,
    'slipway-correlation-data': correlationData,
    'slipway-user-properties': userProperties && JSON.stringify(userProperties),
    'slipway-message-expiry': messageExpiry?.toString(),
  };
  return Object.fromEntries(
    Object.entries(named).flatMap(([name, text]) => (text === undefined ? [] : [[name, headerText(text)]])),
  );
}

/** Headers have no control characters: a line break would begin another one. */
function headerText(text: string): string {
  return text.replace(/\p{Cc}/gu, ' ');
}

const envelopeVersion = 1;

/**
 * The envelope: version (u8), time UUID (16 bytes, network byte order), source name, source properties, target name and target
 * properties, each after its length (u16, little endian), and the payload after its length (u32, little endian).
 */
function envelope(message: BridgedMessage): Buffer {
  const { accountId, deviceId, organizationId, deviceTemplateId, topic, payload } = message;
  const source = {
    SchemaVersion: 1,
    EntityType: 'device',
    OrganizationIds: organizationId === null ? [] : [organizationId],
    TemplateId: deviceTemplateId,
    AccountId: accountId,
  };
  const target = { SchemaVersion: 1, EntityType: 'topic', TopicOwner: { EntityType: 'device', AccountId: accountId } };
  const parts = [deviceId, JSON.stringify(source), topic, JSON.stringify(target)];
  const payloadLength = Buffer.alloc(4);
  payloadLength.writeUInt32LE(payload.byteLength);
  return Buffer.concat([
    Buffer.from([envelopeVersion]),
    timeUuid(message),
    ...parts.flatMap(withLength),
    payloadLength,
    bytesOf(payload),
  ]);
}

function withLength(text: string): Buffer[] {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(2);
  length.writeUInt16LE(bytes.length);
  return [length, bytes];
}

/** 100-nanosecond intervals between the beginning of UUID time (15 October 1582) and 1970. */
const gregorianOffset = 122_192_928_000_000_000n;

/**
 * A version 1 UUID with the time of acceptance. Its other bits come from the message's id, so that every try of a
 * message sends the same bytes and two messages of the same millisecond differ.
 */
function timeUuid({ id, time }: { id: string; time: number }): Buffer {
  const digest = createHash('sha256').update(id).digest();
  // The clock counts milliseconds; the 10,000 intervals within one tell messages apart.
  const ticks = BigInt(time) * 10_000n + gregorianOffset + BigInt(digest.readUInt16BE(0) % 10_000);
  const bytes = Buffer.alloc(16);
  bytes.writeUInt32BE(Number(ticks & 0xffff_ffffn), 0);
  bytes.writeUInt16BE(Number((ticks >> 32n) & 0xffffn), 4);
  bytes.writeUInt16BE(Number((ticks >> 48n) & 0x0fffn) | 0x1000, 6);
  digest.copy(bytes, 8, 2, 10);
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  // The multicast bit marks a node that is not a network address.
  bytes[10] = (bytes[10] ?? 0) | 0x01;
  return bytes;
}
