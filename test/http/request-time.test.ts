/** A request has to come in time; an upload has to keep coming. */
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isUpload, limitRequestTime } from '../../src/http/guards/request-time.ts';
import { part } from '../support/part.ts';

const t = await part(import.meta);

const time = 1000;

t.test('bodies that do not come are cut off, and uploads that keep coming are not', async (t) => {
  const server = createServer((request, response) => {
    if (request.url === '/upload') isUpload(request);
    request.resume().on('end', () => response.end('whole'));
    request.on('error', () => {});
  });
  limitRequestTime(server, { time, minBytes: 100 });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    socket.end(`HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n${error.code}`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;

  /** Sends parts of a body, ten in the time, and reads the status. */
  const send = (path: string, parts: number, bytes: number) =>
    new Promise<number | undefined>((resolve, reject) => {
      const sending = request({ port, path, method: 'PUT', headers: { 'content-length': 10_000 } }, (response) => {
        clearInterval(timer);
        response.resume();
        resolve(response.statusCode);
      });
      let sent = 0;
      const timer = setInterval(() => {
        sent += 1;
        if (sent < parts) sending.write(Buffer.alloc(bytes));
        if (sent === parts) sending.end(Buffer.alloc(10_000 - (parts - 1) * bytes));
      }, time / 10);
      sending.on('error', reject);
      sending.flushHeaders();
    });

  t.equal(await send('/', 15, 600), 408, 'whatever comes: the whole has to come in time');
  t.equal(await send('/upload', 15, 600), 200, 'an upload may take longer than that');
  t.equal(await send('/upload', 100, 1), 408, 'a byte now and then does not keep a connection');
});

t.end();
