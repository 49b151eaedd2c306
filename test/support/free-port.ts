/** A port for a program that is started later. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Each is drawn once in a process, which may want several before it uses the first. */
let last = randomInt(20_000, 31_000);

/**
 * A port of loopback that nothing listens on now. It is below those that the system gives to connections and to listeners on
 * port 0: none of them is given it before the program that it is for.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    last += 1;
    const port = last;
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch {
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}
