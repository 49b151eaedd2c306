/** A bad network in front of a server: connections break before a request arrives, or before its answer does. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Test } from 'tap';

/** Numbers from 0 to 1 that are the same for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Forwards to what `target` gives; each piece of data that passes breaks its connection with the probability `breaks`. */
export async function flakyProxy(
  t: Test,
  target: () => string,
  breaks: () => boolean,
): Promise<{ url: string; broken(): number }> {
  const sockets = new Set<Socket>();
  let broken = 0;
  const server: Server = createServer((client) => {
    const { hostname, port } = new URL(target());
    const upstream = connect(Number(port), hostname);
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', end).on('close', end);
      from.on('data', (piece) => {
        if (breaks()) {
          broken += 1;
          end();
        } else if (to.writable) to.write(piece);
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, broken: () => broken };
}
