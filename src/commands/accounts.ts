/** `slipway account create|list`: accounts are made on the machine of the service, never over HTTP. */
import { loadConfig } from '../config.js';
import { Passwords } from '../identity/secrets/passwords.js';
import { createAccount } from '../registry/accounts.js';
import { demanded, print, withNewRegistry, withRegistry } from './data/files.js';

export async function accountCreate(args: string[]): Promise<void> {
  const options = { name: 'string', 'admin-email': 'string', 'admin-password': 'string' } as const;
  await withNewRegistry(args, options, async ({ registry, clock, values }) => {
    const [name, adminEmail] = [demanded(values, 'name'), demanded(values, 'admin-email')];
    const account = { name, adminEmail, adminPassword: values['admin-password'], slots: loadConfig().slots };
    print(await createAccount({ registry, clock, passwords: new Passwords() }, account));
  });
}

export async function accountList(args: string[]): Promise<void> {
  await withRegistry(args, {}, async ({ registry }) => {
    const accounts = await registry.query.selectFrom('accounts').selectAll().orderBy('created').execute();
    for (const { id, name, created } of accounts) print({ accountId: id, name, created });
  });
}
