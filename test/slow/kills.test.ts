/** Level 2 to NATS while the service and the target are killed, in short; `npm run test:bridges` is the long form. */
import t from 'tap';
import { proveDelivery } from '../bridges/kills/proof.ts';
import { temporaryDirectory } from '../support/directory.ts';
import { withNats } from '../support/nats-server.ts';

t.test(
  'every acknowledged message is in the stream once, in order per device, though service and target are killed',
  withNats,
  async (t) => {
    const directory = temporaryDirectory(t);
    const size = { messages: 3000, devices: 20, targetKills: 2, serviceKills: 1, awaySeconds: 0, seed: 22 };
    const proof = await proveDelivery({ directory, ...size, say: (line) => t.comment(line) });
    t.strictSame(proof.faults, []);
    t.equal(proof.acknowledged, size.messages);
  },
);
