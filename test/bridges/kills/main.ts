/** `npm run test:bridges -- [--messages N] [--devices D] [--seed S]`: ends 1 when level 2 loses or repeats a message. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { withNats } from '../../support/nats-server.ts';
import { proveDelivery } from './proof.ts';

const { values } = parseArgs({
  options: {
    messages: { type: 'string', default: '100000' },
    devices: { type: 'string', default: '200' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
});
const [messages, devices, seed] = [values.messages, values.devices, values.seed].map(Number) as [
  number,
  number,
  number,
];
const directory = mkdtempSync(join(tmpdir(), 'slipway-bridges-'));
try {
  if ('skip' in withNats) throw new Error(`${withNats.skip}: this test needs it.`);
  const blows = { targetKills: 5, serviceKills: 2, awaySeconds: 60 };
  console.log(`${messages} messages of ${devices} devices, seed ${seed}\n`);
  const proof = await proveDelivery({ directory, messages, devices, seed, ...blows, say: console.log });
  const { acknowledged, stored, faults } = proof;
  console.log(`\n${acknowledged} messages were acknowledged, ${stored} are in the stream`);
  console.log(faults.length === 0 ? 'each once, in order per device' : `${faults.length} FAULTS\n${faults.join('\n')}`);
  if (faults.length > 0 || acknowledged < messages) process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}
