/** The peer: a Fastify route that returns bytes which it has, and asks nobody. They come as the argument. */
import type { AddressInfo } from 'node:net';
import { fastify } from 'fastify';

const [body = ''] = process.argv.slice(2);
const app = fastify();
app.get('/devices/:id', (_, reply) => reply.type('application/json; charset=utf-8').send(body));
await app.listen({ host: '127.0.0.1', port: 0 });
console.log((app.server.address() as AddressInfo).port);
process.on('SIGTERM', () => process.exit());
