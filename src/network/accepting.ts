/**
 * Listening so that many connections are accepted in one turn of the event loop. Node accepts one in a turn from each
 * listening socket: while turns are long, who connects last would wait for as many of them as connect before it.
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

/** Listening sockets of one port, among which the system divides those who connect. */
const sockets = 16;

export interface Place {
  port: number;
  host: string;
}

/** What is to be passed to `listen`. */
type Listening = Place & { reusePort: boolean };

/** As the sockets of the server itself are made. */
type SocketOptions = NonNullable<Parameters<typeof createServer>[0]>;

/**
 * Has `listen` open the port of `server`, then opens it several more times: what comes there is a connection of `server`.
 * They end with it, and its `close` calls back when the connections of all have ended. Where the system cannot divide a
 * port, it is opened once. @throws Error when the port cannot be had, another program of the same user has it included.
 */
export async function listenWide(
  server: Server,
  place: Place,
  options: SocketOptions,
  listen: (listening: Listening) => Promise<unknown> = (listening) => open(server, listening),
): Promise<void> {
  // Sockets that share a port let each other in without an error. The system finds a port that nobody has by itself.
  if (place.port !== 0) await demandFree(place);
  try {
    await listen({ ...place, reusePort: true });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTSUP' && code !== 'EINVAL') throw error;
    await listen({ ...place, reusePort: false });
    return;
  }
  const { port } = server.address() as AddressInfo;
  const further = Array.from({ length: sockets - 1 }, () =>
    createServer(options, (socket: Socket) => server.emit('connection', socket)),
  );
  endTogether(server, further);
  await Promise.all(further.map((one) => open(one, { ...place, port, reusePort: true })));
  for (const one of further) one.on('error', (error) => server.emit('error', error));
}

/** @throws Error when somebody listens there. */
async function demandFree(place: Place): Promise<void> {
  const server = createServer((socket) => socket.destroy());
  await open(server, place);
  await new Promise((resolve) => server.close(resolve));
}

function endTogether(server: Server, further: readonly Server[]): void {
  const close = server.close.bind(server);
  server.close = (done) => {
    const all = [close, ...further.map((one) => one.close.bind(one))].map(
      (end) => new Promise<Error | undefined>((resolve) => end(resolve)),
    );
    void Promise.all(all).then(([error]) => done?.(error));
    return server;
  };
}

function open(server: Server, listening: Partial<Listening>): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(listening, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
