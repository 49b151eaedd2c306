/** How long the bytes of a request may take. Node's own limit is one for all routes; uploads on slow lines need another one. */
import type { IncomingMessage, Server } from 'node:http';

/** Milliseconds until a whole request has come; for an upload, until `minBytes` more have. */
const usual = { time: 30_000, minBytes: 30 * 1024 };

const uploads = new WeakSet<IncomingMessage>();

/** From now on the body may take any time, as long as it keeps coming. Only for callers that are authenticated. */
export function isUpload(request: IncomingMessage): void {
  uploads.add(request);
}

/** Cuts off requests that do not come in time, as `requestTimeout` of Node does: the server emits `clientError`. */
export function limitRequestTime(server: Server, { time, minBytes } = usual): void {
  server.prependListener('request', (request: IncomingMessage) => {
    const { headers, socket } = request;
    if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0) return;
    let before = socket.bytesRead;
    const timer = setInterval(() => {
      if (request.complete) return clearInterval(timer);
      const come = socket.bytesRead - before;
      before = socket.bytesRead;
      if (uploads.has(request) && come >= minBytes) return;
      clearInterval(timer);
      const error = Object.assign(new Error('The request did not come in time.'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
      server.emit('clientError', error, socket);
    }, time);
    timer.unref();
    for (const event of ['end', 'close'] as const) request.once(event, () => clearInterval(timer));
  });
}
