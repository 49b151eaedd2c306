import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { adminEmail, adminPassword } from '../../../support/service.ts';
import type { Story } from '../story.ts';

const fixture = fileURLToPath(new URL('../../../factory/fixture.ts', import.meta.url));

/** The tools of a fixture, as far as the page calls them; a partition that breaks the rules of NVS ends its unit. */
const tools = {
  'nvs_partition_gen.py': '[ "$1 $4" = "generate 0x6000" ] && cp "$2" "$3"',
  'esptool.py': `[ "$1 $3 $4" = "--port write_flash 0x9000" ] || exit 1
partition=$(cat "$5")
env -u NODE_OPTIONS '${process.execPath}' '${fixture}' "$partition" </dev/null >/dev/null 2>&1 &`,
};

export const factory: Story = {
  tell: async ({ t, next, secure, shell }) => {
    const { service, caFile } = await secure();
    const names = { 'things.example.com"': 'localhost"', 'DNS:things.example.com': 'DNS:localhost,IP:127.0.0.1' };
    const authority = shell({ instead: names });
    await authority.run(next());
    t.match(await authority.run('openssl verify -CAfile ca.pem server.pem'), /OK/);

    // The page's server is another machine: units are told its public name.
    const { broker } = (await service.ok('GET', '/api/v1/provisioning/addresses')).provisioning;
    const instead = { '--format esp-nvs-csv': `--format esp-nvs-csv --broker ${broker}` };
    const sh = shell({ tools, instead });
    copyFileSync(caFile, join(sh.directory, 'ca.pem'));
    const url = service.server.url;
    await sh.run(`export SLIPWAY_URL=${url} SLIPWAY_ACCOUNT_ID=${service.accountId}\n`);
    await sh.set({ EMAIL: adminEmail, PASSWORD: adminPassword, PORT: '/dev/ttyUSB0' });
    let stdout = '';
    const run = async () => {
      stdout += await sh.run(next());
    };
    for (let steps = 1; steps <= 11; steps += 1) await run();
    t.match(stdout, '3 rows: 3 could be made, 0 could not\n');
    t.match(stdout, '3 rows: 3 done (3 now), 0 failed, 0 open\n');
    t.strictSame(readdirSync(join(sh.directory, 'units/labels')).sort(), ['TH-0001.svg', 'TH-0002.svg', 'TH-0003.svg']);
    const serials = ['TH-0001', 'TH-0002', 'TH-0003', 'TH-0101', 'TH-0102'];
    for (const serial of serials) t.match(stdout, `${serial} passed: it connects and publishes\n`);
    const path = `/api/v1/provisioning/verifications?accountId=${service.accountId}&passed=true`;
    const { verifications } = await service.ok('GET', path);
    t.strictSame(verifications.results.map(({ serialNumber }) => serialNumber).sort(), serials);
    await run();
    t.ok(readFileSync(join(sh.directory, 'units.zip')).includes('TH-0201.csv'), 'by curl');
    t.ok(readFileSync(join(sh.directory, 'labels.zip')).includes('TH-0201.svg'));
    const list = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}`);
    const claimed = list.devices.results.find(({ serialNumber }) => serialNumber === 'TH-0001');
    t.match(stdout, `{"deviceId":"${claimed?.id}"`);
    const { endUsers } = await service.ok('GET', `/api/v1/end-users?accountId=${service.accountId}`);
    t.equal(claimed?.organizationId, endUsers.results[0].organizationId, 'the customer has it');

    const certify = next();
    await run();
    const { certificateAuthorities } = await service.ok(
      'GET',
      `/api/v1/access/certificate-authorities?accountId=${service.accountId}`,
    );
    t.match(certificateAuthorities.results, [{ name: 'Units CA', createDevices: true, state: 'active' }]);
    writeFileSync(join(sh.directory, 'certify.sh'), certify);
    const one = 'slipway provision one --serial TH-0301 --format esp-nvs-csv --out certified --ca ca.pem';
    await sh.run(`chmod +x certify.sh\n${one} --certify ./certify.sh`);

    const label = readFileSync(join(sh.directory, 'units/labels/TH-0001.svg'), 'utf8');
    const [associationCode] = /(?<![\w-])[0-9A-Z]{4}(-[0-9A-Z]{4}){2}(?![\w-])/.exec(label) ?? [];
    const { id: organizationId } = await service.organization();
    const { token } = await service.endUser(organizationId);
    const body = { associationCode, organizationId };
    t.match(
      await service.http('POST', '/api/v1/association/start-association-with-code', { token, body }),
      { status: 422 },
      'and nobody else claims it',
    );
  },
};
