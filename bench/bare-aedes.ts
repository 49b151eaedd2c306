/** The peer: Aedes with nothing added but what any user of it would set (no Nagle, no limit on what is routed at once). */
import { type AddressInfo, createServer } from 'node:net';
import { Aedes } from 'aedes';

const aedes = await Aedes.createBroker({ concurrency: 0 });
const server = createServer({ noDelay: true }, (socket) => void aedes.handle(socket));
server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port));
process.on('SIGTERM', () => process.exit());
