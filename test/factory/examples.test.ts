/** Runs docs/factory.md as it is there, in one shell, from an empty account to units that have been verified. */
import { execFile } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { certificate } from '../broker/certificate.js';
import { temporaryDirectory } from '../support/directory.js';
import { cliFile } from '../support/process.js';
import { adminEmail, adminPassword, startService } from '../support/service.js';

const fixture = fileURLToPath(new URL('fixture.js', import.meta.url));
const blocks = [...readFileSync('docs/factory.md', 'utf8').matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(
  ([, text]) => text,
);

t.test('a line is set up from nothing, and every unit of it is verified', async (t) => {
  const env = certificate(t);
  const service = await startService(t, { env });
  const directory = temporaryDirectory(t);
  copyFileSync(env.SLIPWAY_TLS_CERT ?? '', join(directory, 'ca.pem'));
  const tools = join(directory, 'bin');
  mkdirSync(tools);
  const node = `env -u NODE_OPTIONS '${process.execPath}'`;
  // The tools of a fixture, as far as the page calls them; a partition that breaks the rules of NVS ends its unit.
  const scripts: Record<string, string> = {
    slipway: `exec ${node} ${cliFile} "$@"`,
    'nvs_partition_gen.py': '[ "$1 $4" = "generate 0x6000" ] && cp "$2" "$3"',
    'esptool.py': `[ "$1 $3 $4" = "--port write_flash 0x9000" ] || exit 1
partition=$(cat "$5")
${node} ${fixture} "$partition" </dev/null >/dev/null 2>&1 &`,
  };
  for (const [name, script] of Object.entries(scripts)) {
    writeFileSync(join(tools, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(tools, name), 0o755);
  }
  t.equal(blocks.length, 13);
  const given = {
    PATH: `${tools}:${process.env.PATH}`,
    SLIPWAY_URL: service.server.url,
    SLIPWAY_ACCOUNT_ID: service.accountId,
    EMAIL: adminEmail,
    PASSWORD: adminPassword,
    PORT: '/dev/ttyUSB0',
  };
  const shell = [
    '-i',
    ...Object.entries(given).map(([name, value]) => `${name}=${value}`),
    'sh',
    '-euc',
    blocks.join('\n'),
  ];
  const { stdout } = await promisify(execFile)('env', shell, { cwd: directory });
  t.match(stdout, '3 rows: 3 could be made, 0 could not\n');
  t.match(stdout, '3 rows: 3 done (3 now), 0 failed, 0 open\n');
  t.strictSame(readdirSync(join(directory, 'units/labels')).sort(), ['TH-0001.svg', 'TH-0002.svg', 'TH-0003.svg']);
  const serials = ['TH-0001', 'TH-0002', 'TH-0003', 'TH-0101', 'TH-0102'];
  for (const serial of serials) t.match(stdout, `${serial} passed: it connects and publishes\n`);
  const path = `/api/v1/provisioning/verifications?accountId=${service.accountId}&passed=true`;
  const { verifications } = await service.ok('GET', path);
  t.strictSame(verifications.results.map(({ serialNumber }) => serialNumber).sort(), serials);
  const list = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`);
  t.strictSame(
    list.devices.results.map(({ serialNumber }) => serialNumber),
    [...serials, 'TH-0201'],
  );
  t.ok(readFileSync(join(directory, 'units.zip')).includes('TH-0201.csv'), 'by curl');
  t.ok(readFileSync(join(directory, 'labels.zip')).includes('TH-0201.svg'));
  const { certificateAuthorities } = await service.ok(
    'GET',
    `/api/v1/access/certificate-authorities?accountId=${service.accountId}`,
  );
  t.match(certificateAuthorities.results, [{ name: 'Units CA', createDevices: true, state: 'active' }]);
  const claimed = list.devices.results[0];
  t.match(stdout, `{"deviceId":"${claimed.id}"`);
  const { endUsers } = await service.ok('GET', `/api/v1/end-users?accountId=${service.accountId}`);
  t.equal(claimed.organizationId, endUsers.results[0].organizationId, 'the customer has it');
  const [associationCode] =
    /(?<![\w-])[0-9A-Z]{4}(-[0-9A-Z]{4}){2}(?![\w-])/.exec(
      readFileSync(join(directory, 'units/labels/TH-0001.svg'), 'utf8'),
    ) ?? [];
  const { id: organizationId } = await service.organization();
  const { token } = await service.endUser(organizationId);
  const body = { associationCode, organizationId };
  t.match(
    await service.http('POST', '/api/v1/association/start-association-with-code', { token, body }),
    { status: 422 },
    'and nobody else claims it',
  );
});
