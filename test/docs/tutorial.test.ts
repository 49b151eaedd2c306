/** Runs the commands of docs/tutorial.md as they are there, one block after the other in one shell. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import t from 'tap';
import { adminEmail, adminPassword, startService } from '../support/service.js';

const run = promisify(execFile);
const blocks = [...readFileSync('docs/tutorial.md', 'utf8').matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(
  ([, text = '']) => text,
);

t.test('every step of the tutorial prints what the text says', async (t) => {
  const service = await startService(t);
  service.secrets.add('flour water salt');
  const env = {
    PATH: process.env.PATH ?? '',
    API: `${service.server.url}/api/v1`,
    ACCOUNT: service.accountId,
    EMAIL: adminEmail,
    PASSWORD: adminPassword,
  };
  const script = blocks.map((block) => `${block}\necho ---`).join('\n');
  const { stdout } = await run('bash', ['-eo', 'pipefail', '-c', script], { env });
  const [login, defined, activated, customer, move, ada, child, field, stale, trash, rest] = stdout.split('---\n');
  t.equal(login, '');
  t.equal(defined, 'defined\n');
  t.match(activated, /^[2-9]\d\nactivated\n$/);
  const [organizationId, otherDevice] = customer?.split('\n') ?? [];
  t.equal(otherDevice, 'SN-101');
  t.equal(move, `${organizationId}\n`);
  t.equal(ada, 'SN-100\n', 'Ada sees one device');
  t.equal(child, 'SN-100\n', 'Ada moves it down');
  t.equal(field, 'room\noven\n');
  t.equal(stale, '108\n');
  t.equal(trash, '107\nSN-100\nSN-100\n');
  t.equal(rest, '', 'and no others are left');

  const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=SN-100`);
  const [device] = devices.results;
  t.match(device, { room: 'oven', provisioningState: 'activated' }, 'it came back as it was');
  t.not(device.organizationId, organizationId, 'in the child organization');
});
