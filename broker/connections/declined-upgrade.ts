import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { Server as TlsServer } from 'node:tls';

/** Headers, and tokens of `Connection`, that only ask for another protocol. */
const asking = ['upgrade', 'http2-settings'];

/**
 * For Node before 24.9: serves requests that ask for another protocol as if they had not [RFC 9110, 7.8], as `curl --http2` does.
 * Node has taken its parser off the socket by then, so the head is written again and read by a new parser.
 */
export function upgradeDecliner(server: HttpServer): (request: IncomingMessage, socket: Duplex, head: Buffer) => void {
  const answers = new WeakMap<Duplex, ServerResponse>();
  server.on('request', ({ socket }, response) => answers.set(socket, response));
  return (request, socket, head) => {
    const serve = () => {
      socket.unshift(Buffer.concat([Buffer.from(headOf(request), 'latin1'), head]));
      // An HTTPS server speaks HTTP on what its TLS part hands over; its `connection` is still encrypted.
      server.emit(server instanceof TlsServer ? 'secureConnection' : 'connection', socket);
    };
    const earlier = answers.get(socket);
    if (earlier && !earlier.closed) afterwards(earlier, socket, serve);
    else serve();
  };
}

/** A request that came before the one before it was answered has to wait: a new parser knows nothing of that one. */
function afterwards(earlier: ServerResponse, socket: Duplex, serve: () => void): void {
  const ignore = () => {};
  socket.on('error', ignore);
  earlier.once('close', () => {
    if (!socket.writable) return;
    socket.off('error', ignore);
    serve();
  });
}

function headOf({ method, url, httpVersion, rawHeaders }: IncomingMessage): string {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name, value] = rawHeaders.slice(at, at + 2) as [string, string];
    const key = name.toLowerCase();
    const kept = key === 'connection' ? withoutAsking(value) : value;
    if (!asking.includes(key) && (kept !== '' || value === '')) lines.push(`${name}: ${kept}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function withoutAsking(connection: string): string {
  const tokens = connection.split(',').map((token) => token.trim());
  return tokens.filter((token) => !asking.includes(token.toLowerCase())).join(', ');
}
