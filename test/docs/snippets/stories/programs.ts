/** The programs of examples/ that are not devices themselves. */
import { copyFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { publish, rollOut, rolloutUntil } from '../../../firmware/fleet.ts';
import type { Story } from '../story.ts';

const project = process.cwd();

export const deviceSimulator: Story = {
  tell: async ({ t, next, service, shell }) => {
    const template = await service.template();
    const { device, secret } = await service.device({ deviceTemplateId: template.id });
    const { id } = await rollOut(service, await publish(service, template.id, '2'), {
      target: { deviceIds: [device.id] },
    });
    await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
    const sh = shell({
      instead: { '<device id>': device.id, '<secret>': secret, 'examples/': `${project}/examples/` },
    });
    await sh.set({ ACCOUNT: service.accountId });
    t.match(await sh.answers(next()), [{ id: device.id, state: 'succeeded' }]);
    await rolloutUntil(service, id, ({ state }) => state === 'finished');
  },
};

export const typescriptClient: Story = {
  tell: async ({ t, next, service, email, password, shell }) => {
    const sh = shell({
      instead: {
        'http://localhost:3000': service.server.url,
        'admin@example.com': email,
        'the password': password,
        'the account ID': service.accountId,
      },
    });
    const [init = '', install = '', ...others] = next().trim().split('\n');
    copyFileSync('examples/typescript-client/devices.ts', join(sh.directory, 'devices.ts'));
    await sh.run(init);
    // What it would fetch is here.
    t.match(install, /^npm install .* @types\/node$/);
    symlinkSync(join(project, 'node_modules'), join(sh.directory, 'node_modules'));
    const printed = await sh.run(others.join('\n'));
    t.match(JSON.parse(printed.slice(printed.indexOf('{'))), {
      before: 0,
      firmwareVersion: '1.4.2',
      stale: [412, 108],
    });
  },
};
