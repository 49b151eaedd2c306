import { clientPropertiesOf, type Properties } from '../../src/core/formats/message-properties.ts';
import { canonicalTopic } from '../../src/core/topics.ts';
import type { Will } from '../message-types.ts';
import { type Codec, types } from './codec.ts';
import { Fields, Malformed } from './fields.ts';
import { Level3 } from './level-3.ts';
import { Level4 } from './level-4.ts';
import { demandResponseTopic, Level5, secondsOf } from './level-5.ts';

/** A CONNECT of a level that is spoken here. */
export interface Connect {
  codec: Codec;
  clientId: string;
  username: string | undefined;
  password: Buffer | undefined;
  /** Whether it begins a new session. */
  cleanStart: boolean;
  /** Seconds that its session is kept when it leaves; Infinity for as long as the server keeps any. */
  sessionExpiry: number;
  /** Seconds; 0 for none. */
  keepAlive: number;
  will: Will | undefined;
  /** Messages of QoS 1 and 2 that it is sent before it acknowledges any. */
  receiveMaximum: number;
  wantsResponseInformation: boolean;
  /** Whether it names a method to prove itself that takes several packets. */
  hasAuthenticationMethod: boolean;
}

/** A CONNECT of a protocol level that the broker does not speak. Its names are empty if they cannot be read. */
export interface UnsupportedConnect {
  unsupportedLevel: number;
  clientId: string;
  username: string;
}

/** A malformed CONNECT of MQTT 5, which is told so. */
export class MalformedConnect5 extends Malformed {
  override name = 'MalformedConnect5';
}

/** Bytes to the level of a CONNECT, behind the longest header, and of the body of the shortest one. */
const toLevel = 12;
const shortestConnect = 10;
/** Messages that a client is sent before it acknowledges any, if it does not take less. */
const deliveryWindow = 1000;
const bridgeBit = 0x80;
const level5 = 5;
const levels: Record<string, 3 | 4> = { MQTT: 4, MQIsdp: 3 };
const noBytes = Buffer.alloc(0);
const beginOfLevel5 = Buffer.from([0, 4, 0x4d, 0x51, 0x54, 0x54, level5]);

/** Whether the begin of a connection is that of a CONNECT of MQTT 5, of which no more may be there. */
export function beginsLevel5(bytes: Buffer): boolean {
  const at = bytes.indexOf(beginOfLevel5);
  return at >= 2 && at <= 5;
}

/** Whether more bytes are needed, and may come, to tell of which level a CONNECT is. */
export function mayTellLevel(begin: Buffer): boolean {
  const isConnect = begin[0] === types.connect << 4 && (begin[1] ?? shortestConnect) >= shortestConnect;
  return isConnect && begin.length < toLevel;
}

/**
 * Reads the body of a CONNECT. The answer to an unsupported level is CONNACK 1 [MQTT-3.1.2-2].
 * @throws Malformed
 */
export function readConnect(body: Buffer, clock: { now(): number }): Connect | UnsupportedConnect {
  const fields = new Fields(body);
  const level = levels[fields.text('protocol name')];
  if (level === undefined) throw new Malformed('unknown protocol name');
  const given = fields.byte();
  if (level === 4 && given === level5) return readLevel5(fields, clock);
  if ((given & ~bridgeBit) !== level) return { unsupportedLevel: given, ...namesIn(fields, given) };
  const isBridge = (given & bridgeBit) !== 0;
  const read = readFields(fields, false);
  // [MQTT-3.1.2-22]
  if (read.password && read.username === undefined) throw new Malformed('a password without a username');
  const codec = level === 3 ? new Level3(isBridge) : new Level4(isBridge);
  const sessionExpiry = read.cleanStart ? 0 : Number.POSITIVE_INFINITY;
  const abilities = { receiveMaximum: deliveryWindow, wantsResponseInformation: false };
  return { codec, ...read, sessionExpiry, ...abilities, hasAuthenticationMethod: false };
}

function readLevel5(fields: Fields, clock: { now(): number }): Connect {
  try {
    const { properties, ...read } = readFields(fields, true);
    const sessionExpiry = secondsOf(properties.sessionExpiry ?? 0);
    const codec = new Level5(clock, {
      maximumPacketSize: properties.maximumPacketSize ?? Number.POSITIVE_INFINITY,
      topicAliasMaximum: properties.topicAliasMaximum ?? 0,
      wantsProblemInformation: properties.requestProblemInformation !== 0,
      keepsSession: sessionExpiry > 0,
    });
    if (properties.authenticationData && properties.authenticationMethod === undefined)
      throw new Malformed('authentication data without a method', { code: 0x82 });
    return {
      ...{ codec, ...read, sessionExpiry },
      receiveMaximum: Math.min(properties.receiveMaximum ?? deliveryWindow, deliveryWindow),
      wantsResponseInformation: properties.requestResponseInformation === 1,
      hasAuthenticationMethod: properties.authenticationMethod !== undefined,
    };
  } catch (error) {
    if (error instanceof Malformed) throw new MalformedConnect5(error.message, { code: error.code });
    throw error;
  }
}

/** What comes after the level. */
function readFields(fields: Fields, hasProperties: boolean) {
  const flags = fields.byte();
  const hasWill = (flags & 0x04) !== 0;
  const willQos = (flags >> 3) & 3;
  if (flags & 0x01) throw new Malformed('reserved CONNECT flag');
  if (willQos === 3 || (!hasWill && flags & 0x38)) throw new Malformed('will flags');
  const keepAlive = fields.number();
  const properties: Properties = hasProperties ? fields.properties('connect').properties : {};
  const clientId = fields.text('client id');
  const will = hasWill ? readWill(fields, willQos as 0 | 1 | 2, (flags & 0x20) !== 0, hasProperties) : undefined;
  const username = flags & 0x80 ? nameIn(fields.text('username')) : undefined;
  const password = flags & 0x40 ? fields.bytes() : undefined;
  fields.end();
  return { clientId, username, password, cleanStart: (flags & 0x02) !== 0, keepAlive, will, properties };
}

function readWill(fields: Fields, qos: 0 | 1 | 2, retain: boolean, hasProperties: boolean): Will {
  const { properties, travelling } = hasProperties
    ? fields.properties('will')
    : { properties: {} as Properties, travelling: noBytes };
  demandResponseTopic(properties);
  const clientProperties = clientPropertiesOf(properties, ownCopy(travelling));
  const topic = canonicalTopic(fields.text('will topic'));
  const payload = ownCopy(fields.bytes());
  return { topic, payload, qos, retain, delay: properties.willDelay ?? 0, clientProperties };
}

/** Without what SDKs of AWS IoT say of themselves behind it: no name has a question mark. */
function nameIn(username: string): string {
  return username.split('?', 1)[0] as string;
}

/** Never throws: no more is known of such a packet than that somebody sent it. */
function namesIn(fields: Fields, level: number): Pick<UnsupportedConnect, 'clientId' | 'username'> {
  const hasProperties = (level & ~bridgeBit) >= level5;
  const names = { clientId: '', username: '' };
  try {
    const flags = fields.byte();
    fields.number();
    if (hasProperties) fields.properties('connect');
    names.clientId = fields.text('client id');
    if (flags & 0x04) {
      if (hasProperties) fields.properties('will');
      fields.bytes();
      fields.bytes();
    }
    if (flags & 0x80) names.username = fields.text('username');
  } catch {
    // What has been read so far is enough.
  }
  return names;
}

/** What is kept for as long as the connection lasts must not keep all that was read with it. */
function ownCopy(bytes: Buffer): Buffer {
  return Buffer.from(bytes);
}
