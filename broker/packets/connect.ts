import type { Will } from '../message-types.ts';
import type { Codec } from './codec.ts';
import { Fields, Malformed } from './fields.ts';
import { Level3 } from './level-3.ts';
import { Level4 } from './level-4.ts';

/** A CONNECT of a level that is spoken here. */
export interface Connect {
  codec: Codec;
  clientId: string;
  username: string | undefined;
  password: Buffer | undefined;
  clean: boolean;
  /** Seconds; 0 for none. */
  keepAlive: number;
  will: Will | undefined;
}

/** A CONNECT of a protocol level that the broker does not speak. Its names are empty if they cannot be read. */
export interface UnsupportedConnect {
  unsupportedLevel: number;
  clientId: string;
  username: string;
}

const bridgeBit = 0x80;
const levels: Record<string, 3 | 4> = { MQTT: 4, MQIsdp: 3 };
/** From this level on a CONNECT has properties. */
const levelWithProperties = 5;

/**
 * Reads the body of a CONNECT. The answer to an unsupported level is CONNACK 1 [MQTT-3.1.2-2].
 * @throws Malformed
 */
export function readConnect(body: Buffer): Connect | UnsupportedConnect {
  const fields = new Fields(body);
  const level = levels[fields.text('protocol name')];
  if (level === undefined) throw new Malformed('unknown protocol name');
  const given = fields.byte();
  if ((given & ~bridgeBit) !== level) return { unsupportedLevel: given, ...namesIn(fields, given) };
  const isBridge = (given & bridgeBit) !== 0;
  const flags = fields.byte();
  const hasWill = (flags & 0x04) !== 0;
  const willQos = (flags >> 3) & 3;
  if (flags & 0x01) throw new Malformed('reserved CONNECT flag');
  if (willQos === 3 || (!hasWill && flags & 0x38)) throw new Malformed('will flags');
  // [MQTT-3.1.2-22]
  if ((flags & 0xc0) === 0x40) throw new Malformed('a password without a username');
  const keepAlive = fields.number();
  const clientId = fields.text('client id');
  const will = hasWill
    ? {
        topic: fields.text('will topic'),
        payload: ownCopy(fields.bytes()),
        qos: willQos as 0 | 1 | 2,
        retain: (flags & 0x20) !== 0,
      }
    : undefined;
  const username = flags & 0x80 ? fields.text('username') : undefined;
  const password = flags & 0x40 ? fields.bytes() : undefined;
  fields.end();
  const codec = level === 3 ? new Level3(isBridge) : new Level4(isBridge);
  return { codec, clientId, username, password, clean: (flags & 0x02) !== 0, keepAlive, will };
}

/** Never throws: no more is known of such a packet than that somebody sent it. */
function namesIn(fields: Fields, level: number): Pick<UnsupportedConnect, 'clientId' | 'username'> {
  const hasProperties = (level & ~bridgeBit) >= levelWithProperties;
  const names = { clientId: '', username: '' };
  try {
    const flags = fields.byte();
    fields.number();
    if (hasProperties) fields.properties();
    names.clientId = fields.text('client id');
    if (flags & 0x04) {
      if (hasProperties) fields.properties();
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
