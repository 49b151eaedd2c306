/**
 * Listening so that many connections are accepted in one turn of the event loop. Node accepts one in a turn from each
 * listening socket: while turns are long, who connects last would wait for as many of them as connect before it.
 */
// biome-ignore lint/style/noRestrictedImports: it calls only the port that this process is about to listen on.
import { type AddressInfo, connect, createServer, type ListenOptions, type Server, type Socket } from 'node:net';

/** Listening sockets of one port, among which the system divides those who connect. */
const sockets = 16;

export interface ListeningPlace {
  port: number;
  host: string;
}

/** What is to be passed to `listen`. */
type Listening = ListeningPlace & { reusePort: boolean };

/** As the sockets of the server itself are made. */
type SocketOptions = NonNullable<Parameters<typeof createServer>[0]>;

/**
 * Has `listen` open the port of `server`, then opens it several more times where the system divides a port; they end with it.
 * @throws Error when the port cannot be had, another program of the same user has it included.
 */
export async function listenWide(
  server: Server,
  place: ListeningPlace,
  options: SocketOptions,
  listen: (listening: Listening) => Promise<unknown> = (listening) => open(server, listening),
): Promise<void> {
  if (process.platform !== 'linux') {
    await listen({ ...place, reusePort: false });
    return;
  }
  // Who gives port 0 gets a port that nobody has.
  const claim = place.port === 0 ? [] : [await claimPort(place)];
  try {
    await listen({ ...place, reusePort: true });
  } catch (error) {
    for (const one of claim) one.close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  const further = Array.from({ length: sockets - 1 }, () =>
    createServer(options, (socket: Socket) => server.emit('connection', socket)),
  );
  endTogether(server, [...further, ...claim]);
  await Promise.all(further.map((one) => open(one, { ...place, port, reusePort: true })));
  for (const one of further) one.on('error', (error) => server.emit('error', error));
}

/**
 * Sockets that share a port let each other in without an error, so it is asked who answers there, and a name that one process at a
 * time can have is taken. @throws Error when somebody listens there.
 */
async function claimPort(place: ListeningPlace): Promise<Server> {
  const claim = createServer((socket) => socket.destroy());
  const taken = await isAnswered(place);
  if (!taken) {
    try {
      await open(claim, { path: `\0slipway listens on ${place.host} ${place.port}` });
      return claim;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
  throw inUse(place);
}

/** Ports below it are for root, or for programs that have the right to use them. */
const firstFreePort = 1024;

/**
 * Looks whether a port can be had, port 0 at its address alone. Nothing listens there meanwhile, which would turn away who
 * connects; a port for root is tried for a moment, because nothing else tells. @throws Error as listening would.
 */
export async function demandPort({ host, port }: ListeningPlace): Promise<void> {
  const tried = createServer((socket) => socket.destroy());
  await open(tried, { host, port: port < firstFreePort ? port : 0, exclusive: true });
  await new Promise((resolve) => tried.close(resolve));
  if (port >= firstFreePort && (await isAnswered({ host, port }))) throw inUse({ host, port });
}

function inUse({ host, port }: ListeningPlace): Error {
  const message = `listen EADDRINUSE: address already in use ${host}:${port}`;
  return Object.assign(new Error(message), { code: 'EADDRINUSE', syscall: 'listen', address: host, port });
}

/** Whether somebody accepts connections there, or is too busy to refuse them within a second. */
function isAnswered({ port, host }: ListeningPlace): Promise<boolean> {
  const anywhere: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  return new Promise((resolve) => {
    const socket = connect({ port, host: anywhere[host] ?? host });
    const end = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    // A socket can be given the port that it calls, and then it answers itself.
    socket.once('connect', () => end(socket.localPort !== port));
    socket.once('error', () => end(false));
    socket.setTimeout(1_000, () => end(true));
  });
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

function open(server: Server, listening: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(listening, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
