/** Reasons of PUBACK that the MQTT client takes for an error of the broker, and ends its connection. */
import type { Socket } from 'node:net';

const puback = 4;
/** Packet too large: the standard does not list it for PUBACK, and brokers send it. */
const packetTooLarge = 0x95;
const implementationSpecific = 0x83;
/** Reasons that are remembered until they are asked for. */
const maxKept = 1000;

/**
 * Has the client read such a reason as one that it knows. The function returned tells what the broker meant for a packet
 * id, once. Call it before the client is made: it must hear the bytes first.
 */
export function readLateReasons(socket: Socket): (packetId: number) => number | undefined {
  const found = new Map<number, number>();
  let type = 0;
  /** Bytes of the packet that are left, and those that have been read; undefined while its length is read. */
  let left: number | undefined;
  let [read, packetId, length, shift] = [0, 0, 0, -1];
  socket.on('data', (chunk: Buffer) => {
    for (let at = 0; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (shift < 0) {
        type = byte >> 4;
        [left, read, packetId, length, shift] = [undefined, 0, 0, 0, 0];
      } else if (left === undefined) {
        length += (byte & 0x7f) * 2 ** shift;
        shift += 7;
        if (byte < 0x80) left = length;
      } else {
        if (type === puback && read < 2) packetId = packetId * 256 + byte;
        if (type === puback && read === 2 && byte === packetTooLarge && found.size < maxKept) {
          found.set(packetId, byte);
          chunk[at] = implementationSpecific;
        }
        read += 1;
        left -= 1;
      }
      if (left === 0) shift = -1;
    }
  });
  return (id) => {
    const reason = found.get(id);
    found.delete(id);
    return reason;
  };
}
