/** QoS 1 as fast as it is acknowledged, with so little work for each message that the load generator is not what limits. */
import { type Link, publishBytes } from './link.ts';

/** Bytes of a PUBACK. */
const pubackSize = 4;
const payload = ',temperature,21.5,';

export interface Flood {
  /** Acknowledged so far. */
  count(): number;
  /** Sends no more; resolves when all that was sent is acknowledged. */
  stop(): Promise<void>;
  /** Resolves when as many as `until` have been acknowledged. */
  readonly done: Promise<void>;
}

/** Milliseconds between two handfuls of a flood with a pace. */
const beat = 5;

/**
 * Keeps `window` messages in flight on a link that receives nothing but PUBACKs, at most `until` in all, and `perSecond`.
 */
export function flood(
  { socket, level }: Link,
  topic: string,
  window: number,
  until = Number.POSITIVE_INFINITY,
  perSecond = Number.POSITIVE_INFINITY,
): Flood {
  const template = publishBytes(topic, payload, { qos: 1, messageId: 1 }, level);
  // From level 5 on the length of the properties, 0, is between them.
  const idAt = template.length - payload.length - (level === 5 ? 3 : 2);
  let [sent, bytes, most] = [0, 0, until];
  let finish: () => void = () => {};
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const count = () => Math.floor(bytes / pubackSize);
  const isPaced = perSecond < Number.POSITIVE_INFINITY;
  const from = performance.now();
  const send = (more: number) => {
    const batch = Math.min(more, most - sent);
    if (batch <= 0) return;
    const packets = Buffer.allocUnsafe(batch * template.length);
    for (let n = 0; n < batch; n += 1) {
      template.copy(packets, n * template.length);
      packets.writeUInt16BE(((sent + n) % 65_535) + 1, n * template.length + idAt);
    }
    sent += batch;
    socket.write(packets);
  };
  const hear = (chunk: Buffer) => {
    const before = count();
    bytes += chunk.length;
    if (!isPaced) send(count() - before);
    if (count() === most || (!isPaced && count() === sent)) end();
  };
  const end = () => {
    socket.off('data', hear);
    clearInterval(timer);
    finish();
  };
  // The parser of the link would cost more than all of this.
  socket.removeAllListeners('data');
  socket.on('data', hear);
  const keepPace = () => {
    const due = Math.floor(((performance.now() - from) / 1000) * perSecond);
    send(Math.min(window - (sent - count()), due - sent));
  };
  const timer = isPaced ? setInterval(keepPace, beat) : undefined;
  if (!isPaced) send(window);
  socket.on('close', () => clearInterval(timer));
  const stop = () => {
    most = sent;
    if (count() === sent) end();
    return done;
  };
  return { count, stop, done };
}
