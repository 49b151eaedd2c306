import type { Story } from '../story.ts';

export const tutorial: Story = {
  tell: async ({ t, next, service, email, password, shell }) => {
    service.secrets.add('flour water salt');
    const bash = shell({ program: 'bash' });
    const set = next();
    t.equal(set, 'export API=http://127.0.0.1:3000/api/v1 ACCOUNT=… EMAIL=… PASSWORD=…\n');
    await bash.run([service.accountId, email, `'${password}'`].reduce((text, value) => text.replace('…', value), set));
    t.equal(await bash.run(next()), '', 'login');
    t.equal(await bash.run(next()), 'defined\n');
    t.match(await bash.run(next()), /^[2-9]\d\nactivated\n$/);
    const [organizationId = '', otherDevice] = (await bash.run(next())).split('\n');
    t.equal(otherDevice, 'SN-101');
    t.equal(await bash.run(next()), `${organizationId}\n`);
    t.equal(await bash.run(next()), 'SN-100\n', 'Ada sees one device');
    t.equal(await bash.run(next()), 'SN-100\n', 'Ada moves it down');
    t.equal(await bash.run(next()), 'room\noven\n');
    t.equal(await bash.run(next()), '108\n');
    t.equal(await bash.run(next()), '107\nSN-100\nSN-100\n');

    const { devices } = await service.ok('GET', `/api/v1/devices?accountId=${service.accountId}&serialNumber=SN-100`);
    const [device] = devices.results;
    t.match(device, { room: 'oven', provisioningState: 'activated' }, 'it came back as it was');
    t.not(device.organizationId, organizationId, 'in the child organization');
  },
};
